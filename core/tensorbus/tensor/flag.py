"""A setting that is true or false, checked below the ops, whose arguments have ``ops.call_errors``."""

from __future__ import annotations

from typing import Any

from ..errors import ArgumentError


def checked_flag(function: str, parameter: str, value: Any) -> bool:
    """Return a setting as a bool. Raises ``ArgumentError`` for what is merely taken as one.

    >>> checked_flag("requires_grad_", "requires_grad", 1)
    True
    """
    if isinstance(value, int) or type(value).__name__ in ("bool_", "bool"):  # NumPy's too
        return bool(value)
    got = repr(value) if value is None or isinstance(value, (str, float)) else type(value).__name__
    raise ArgumentError(f"{function}: {parameter!r} must be True or False, got {got}.")
