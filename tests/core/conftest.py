"""Unit tests need no C compiler: a run of this folder has none, so that a test which does fails here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    """Name a compiler that does not exist, where nothing but this folder is run (`make test` does that)."""
    places = [Path(config.invocation_params.dir, argument.partition("::")[0]) for argument in config.args]
    if all(place.resolve().is_relative_to(HERE) for place in places):
        os.environ["CC"] = str(HERE / "no-c-compiler")
