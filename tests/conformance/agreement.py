"""The conformance kit's judgement of results, as assertions."""

from __future__ import annotations

from typing import Any

from tensorbus_conformance.agreement import difference
from tensorbus_conformance.agreement import same_bits as same
from tensorbus_conformance.native import wide

from samples import Array

__all__ = ["check", "same", "wide"]


def check(actual: Array, expected: Any, ulps: float, scale: Any = 0.0) -> None:
    """Assert that ``actual`` is ``expected`` within the tolerance."""
    problem = difference(actual, expected, ulps, scale)
    assert problem is None, problem
