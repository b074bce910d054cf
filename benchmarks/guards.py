"""The cost of the guards of a compiled call, of a training step, beside the call; how many there are.

The head of the generated code of a captured call, which checks its guards, is timed by itself.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable
from typing import Any, Final

import tensorbus as tb

from benchmarks.compiled.models import Library, gpt

TARGET: Final = 30.0
"""Microseconds that the guards of the training step may take."""
END: Final = "except (LookupError, AttributeError, TypeError, ValueError):\n        return GUARD_MISS\n"
"""The end of what checks guards, in the code of a captured call."""


def rows() -> list[dict[str, Any]]:
    """Return a row for each function."""
    training, x = training_step()
    functions: tuple[tuple[str, Callable[..., Any], tuple[Any, ...], float | None], ...] = (
        ("a training step of a 12-layer transformer, AdamW", training, (x,), TARGET),
        ('(x * 2).to("cpu")', lambda x: (x * 2).to("cpu"), (tb.ones((3,)),), None),
        ("x * 2", lambda x: x * 2, (tb.ones((3,)),), None),
    )
    return [_row(name, function, args, most) for name, function, args, most in functions]


def training_step() -> tuple[Callable[[Any], Any], Any]:
    """Return a step of a narrow transformer of 12 layers and 148 parameters, and its input."""
    library = Library(
        nn=tb.nn, functional=tb.nn.functional, arrays=tb, permute=tb.permute_dims, unbind=tb.unstack
    )  # fmt: skip
    model = gpt(library, 12, 32, 2, 16, 64)
    optimizer = tb.optim.AdamW(model.parameters(), lr=1e-4)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, tb.randint(0, 64, (1, 16))


def _row(
    name: str, function: Callable[..., Any], args: tuple[Any, ...], most: float | None
) -> dict[str, Any]:
    compiled = tb.compile(function, compare_eager=False)
    for _ in range(4):
        compiled(*args)
    (entry,) = compiled.replays
    scope = {**entry.scope}
    exec(entry.source[: entry.source.index(END)] + END + "    return True\n", scope)
    holds = scope["replay"]
    assert holds(args, {}) is True
    guards, call = (
        min(timeit.repeat(timed, number=100, repeat=15)) / 100 * 1e6
        for timed in (lambda: holds(args, {}), lambda: compiled(*args))
    )
    row: dict[str, Any] = {
        "function": name, "guards": len(entry.guards), "guards us": round(guards, 2),
        "call us": round(call, 1),
    }  # fmt: skip
    return row if most is None else {**row, "at most us": most, "met": guards <= most}
