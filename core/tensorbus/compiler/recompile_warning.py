"""The warnings of functions that are captured more often than they should be."""

from __future__ import annotations

import warnings


class RecompileWarning(UserWarning):
    """A compiled function was captured too often: the message names the guard that kept failing."""


def warn_of_captures(name: str, captures: int, why: str) -> None:
    """Say that Python runs a function from now on, whose caller's caller called it."""
    warnings.warn(
        f"compile: {name} was captured {captures} times, and still calls find something else, last {why};"
        f" Python runs it from now on. Pass what changes as a tensor; for lengths that change there are"
        f" dynamic=True and mark_dynamic.",
        RecompileWarning,
        stacklevel=4,
    )


def warn_of_mark(name: str, what: str) -> None:
    """Say that a function decides by a length that was marked as open."""
    warnings.warn(
        f"compile: {name} asks for {what}, which mark_dynamic left open: another length is captured anew."
        f" Do not decide by that length, or take the mark away.",
        RecompileWarning,
        stacklevel=6,
    )
