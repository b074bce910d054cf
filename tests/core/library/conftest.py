"""Custom ops of a test are gone behind it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tensorbus import library


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """Unregister the custom ops of each test."""
    yield
    for name in list(library.custom_op_names()):
        if name.startswith("t::"):
            library.unregister(name)
