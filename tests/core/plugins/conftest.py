"""The fixture of the tests of plugins."""

from __future__ import annotations

from pathlib import Path

import pytest

from throwaway import Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """An empty folder of distributions, and interpreters that see only that."""
    return Site(tmp_path)
