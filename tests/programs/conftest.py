"""Every test with a ``device`` argument runs on every device that can be used here."""

from __future__ import annotations

import pytest
from tensorbus_conformance.plugin import chosen


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Hand out the devices."""
    if "device" in metafunc.fixturenames:
        metafunc.parametrize("device", chosen(metafunc.config))
