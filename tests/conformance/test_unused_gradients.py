"""An input that nothing depends on has no gradient (None), one without a slope has zeros, on every device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorbus as tb

ZERO, SOME = "zeros", "numbers"
CASES: list[tuple[str, Callable[[Any, Any], Any], str | None, str | None]] = [
    ("never read", lambda a, b: b * 2, None, SOME),
    ("of one of two results", lambda a, b: (a * 2, b * 3)[1], None, SOME),
    ("detached", lambda a, b: a.detach() * b, None, SOME),
    ("a condition", lambda a, b: tb.where(a > 0, b, -b), None, SOME),
    ("indices", lambda a, b: b[tb.argsort(a)], None, SOME),
    ("made from its shape", lambda a, b: b + tb.zeros_like(a), None, SOME),
    ("through integers", lambda a, b: a.to(tb.int32).to(tb.float32) + b, None, SOME),
    ("steps", lambda a, b: tb.sign(a) + tb.floor(a) + tb.round(a) + b, ZERO, SOME),
    ("steps of two operands", lambda a, b: tb.floor_divide(a, b) + b, ZERO, SOME),
    ("a sign", lambda a, b: tb.copysign(b, a), ZERO, SOME),
    ("branches not taken", lambda a, b: tb.where(b > 0, b, a), ZERO, SOME),
    ("parts of a whole", lambda a, b: tb.split(tb.concat([a, b]), 2)[1], ZERO, SOME),
    ("rows of a stack", lambda a, b: tb.unstack(tb.stack([a, b]))[1], ZERO, SOME),
    ("multiplied by zero", lambda a, b: a * 0 + b, ZERO, SOME),
    ("one result of several", lambda a, b: tb.linalg.slogdet(tb.diag(a))[0] + b, ZERO, SOME),
]


def kind(g: Any) -> str | None:
    if g is None:
        return None
    return SOME if any(v != 0 for v in g.tolist()) else ZERO


@pytest.mark.parametrize("compiled", [False, True])
def test_unused_inputs_have_no_gradient(device: str, compiled: bool) -> None:
    def leaves() -> tuple[Any, Any]:
        values = ([1.5, 2.5], [0.5, 0.25])
        return tuple(tb.asarray(v, dtype=tb.float32, device=device).requires_grad_() for v in values)

    def results(a: Any, b: Any) -> tuple[Any, ...]:
        return tuple(function(a, b).sum() for _, function, *_ in CASES)

    def inside(a: Any, b: Any) -> list[Any]:
        return [tb.grad(out, (a, b), allow_unused=True) for out in results(a, b)]

    inputs = leaves()
    taken = (tb.compile(inside) if compiled else inside)(*inputs)
    outs = (tb.compile(results) if compiled else results)(*inputs)
    for (name, function, *want), within, out in zip(CASES, taken, outs, strict=True):
        a, b = leaves()
        function(a, b).sum().backward()
        outside = tb.grad(out, inputs, allow_unused=True, retain_graph=True)
        for way, got in (("inside", within), ("of a result", outside), ("backward", (a.grad, b.grad))):
            assert [kind(g) for g in got] == want, f"{name}: {way}"
        if want[0] is None:
            with pytest.raises(tb.AutogradError, match="do not depend on input 0"):
                tb.grad(out, inputs, retain_graph=True)
