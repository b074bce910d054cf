"""Compiled training steps, each held against an eager step from the same parameters, and one in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorbus as tb

from error_bounds import assert_as_exact_as_eager


def check_steps(
    models: tuple[Any, Any, Any], stepping: Callable[[Any], Callable[[Any], Any]], x: Any, operations: int
) -> None:
    """Run four steps of the first model compiled, and of the two others eagerly, the last one in float64.

    What steps add up to is not compared: rounding errors of one grow in the next. ``operations`` is how many
    roundings of a gradient may follow each other.
    """
    fast, eager, exact = models
    exact.to("float64")
    wide = x.to("float64") if x.dtype.is_floating else x
    compiled, plain, reference = tb.compile(stepping(fast)), stepping(eager), stepping(exact)
    for turn in range(4):
        eager.load_state_dict(fast.state_dict())
        exact.load_state_dict(fast.state_dict())
        losses = [float(step(actual)) for step, actual in ((compiled, x), (plain, x), (reference, wide))]
        assert_as_exact_as_eager(*losses, operations + x.size, "float32", f"loss {turn}")
        for (name, a), b, c in zip(
            fast.named_parameters(), eager.parameters(), exact.parameters(), strict=True
        ):
            for what, values in (("gradient of ", [p.grad for p in (a, b, c)]), ("", [a, b, c])):
                actual = [value.detach().numpy().copy() for value in values]
                assert_as_exact_as_eager(*actual, operations, "float32", f"{what}{name}, step {turn}")
