"""Tensors of up to 64 axes give what those of a few do: libraries' own limits are lower in places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb

OPS: dict[str, Callable[[Any], Any]] = {
    "sort": lambda x: tb.sort(x, axis=0),
    "sort downwards": lambda x: tb.sort(x, axis=-1, descending=True),
    "argsort": lambda x: tb.argsort(x, axis=0, descending=True),
    "topk": lambda x: tb.topk(x, 1)[0],
    "cumulative_sum": lambda x: tb.cumulative_sum(x, axis=0),
    "take": lambda x: tb.take(x, tb.asarray([2, 0, 0], device=x.device), axis=0),
    "take_along_axis": lambda x: tb.take_along_axis(x, tb.argsort(x, axis=0), axis=0),
    "mask": lambda x: x[x > 1],
    "assignment": lambda x: _assigned(x.clone()),
    "std": lambda x: tb.std(x, axis=-1),
    "roll": lambda x: tb.roll(x, 1, axis=0),
    "concat": lambda x: tb.concat([x, x], axis=0),
}
COPIES: dict[str, Callable[[Any], Any]] = {
    "tile": lambda x: tb.tile(x, (2, *[1] * (x.ndim - 2), 3)),
    "repeat": lambda x: tb.repeat(x, 2, axis=0),
}


def _assigned(x: Any) -> Any:
    x[tb.asarray([0, 2], device=x.device)] = 7.0
    return x


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize(
    ("name", "axes"),
    [*((name, axes) for name in OPS for axes in (33, 64)), *((name, 40) for name in COPIES)],
)
def test_op(device: str, name: str, axes: int, compiled: bool) -> None:
    function = (OPS | COPIES)[name]
    run = tb.compile(function) if compiled else function
    values = np.array([[3.0, -1.0], [0.5, 2.0], [5.0, 4.0]], np.float32)
    flat, many = (tb.asarray(values, device=device).requires_grad_() for _ in range(2))
    expected, result = function(flat), run(tb.reshape(many, (3, *[1] * (axes - 2), 2)))
    np.testing.assert_array_equal(result.numpy().reshape(expected.shape), expected.numpy())
    if expected.dtype == tb.float32:
        (expected * expected).sum().backward()
        (result * result).sum().backward()
        np.testing.assert_array_equal(many.grad.numpy(), flat.grad.numpy())
