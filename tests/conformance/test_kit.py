"""The conformance kit on every device: a quick part of it here, the whole by ``make conformance``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.conformance(quick=True)
def test_conformance(conformance_case: Any, conformance: Callable[[Any], None]) -> None:
    conformance(conformance_case)
