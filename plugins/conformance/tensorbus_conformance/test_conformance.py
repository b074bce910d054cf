"""Every case, as a test: ``pytest --pyargs tensorbus_conformance --device X``."""

from __future__ import annotations

from collections.abc import Callable

from .outcome import Case


def test_conformance(conformance_case: Case, conformance: Callable[[Case], None]) -> None:
    """The op does on the device, in the dtype, what it means."""
    conformance(conformance_case)
