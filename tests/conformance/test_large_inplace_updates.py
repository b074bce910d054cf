"""In-place updates of tensors large enough for in-place kernels: views change along, copies do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import Tensor

SHAPE = (300, 500)
CHANGES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "an element": lambda x, y: x.__setitem__((7, 3), 50.0),
    "a row": lambda x, y: x.__setitem__(7, y[3]),
    "columns": lambda x, y: x.__setitem__((..., slice(None, None, -2)), y[:, :250]),
    "rows by index": lambda x, y: x.__setitem__(tb.asarray([9, -1], device=x.device), y[:2]),
    "by a mask": lambda x, y: x.__setitem__(y > 0, -1.0),
    "add": lambda x, y: x.__iadd__(y),
    "add a row": lambda x, y: x.__iadd__(y[0]),
    "add a number": lambda x, y: x.__iadd__(3),
    "multiply by itself": lambda x, y: x.__imul__(x),
    "minimum of a view": lambda x, y: x.__isub__(x[::-1]),
    "divide": lambda x, y: x.__itruediv__(4.0),
    "mul_": lambda x, y: x.mul_(y),
    "masked_fill_": lambda x, y: x.masked_fill_(y > 0, 5.0),
    "fill_": lambda x, y: x.fill_(2.0),
    "copy_": lambda x, y: x.copy_(y),
}
VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "detach": lambda x: x.detach(),
    "part": lambda x: x[3:9, ::2],
    "transpose": lambda x: x.T,
    "broadcast": lambda x: tb.broadcast_to(x, (2, *SHAPE)),
}
COPIES: dict[str, Callable[[Tensor], Tensor]] = {
    "clone": lambda x: x.clone(),
    "clone of a view": lambda x: x[3:9].clone(),
    "on the host": lambda x: x.to("cpu", non_blocking=True).clone(),
}


def _pair(device: str) -> tuple[Tensor, Tensor]:
    drawn = np.random.default_rng(3).integers(-9, 10, (2, *SHAPE)).astype(np.float32)
    return tb.asarray(drawn[0], device=device) * 1, tb.asarray(drawn[1], device=device) * 1


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_the_same_whoever_holds_the_value(device: str, change: str) -> None:
    alone, y = _pair(device)
    CHANGES[change](alone, y)
    for name, take in (VIEWS | COPIES).items():
        x, _ = _pair(device)
        held = take(x)
        shown = take(alone if name in VIEWS else _pair(device)[0])
        CHANGES[change](x, y)
        np.testing.assert_array_equal(held.numpy(), shown.numpy(), err_msg=name)
        np.testing.assert_array_equal(x.numpy(), alone.numpy(), err_msg=name)


def test_results_from_before_a_change_are_right(device: str) -> None:
    """The device may still be at them when the change is asked for."""
    x, y = _pair(device)
    sums = []
    for k in range(20):
        sums.append((x + k).sum())
        x += y
        x[0, 0] = 0.0
    first, second = (t.numpy().astype(np.float64) for t in _pair(device))
    for k, value in enumerate(sums):
        assert value.item() == (first + k).sum()  # whole numbers, below 2 ** 24 together
        first += second
        first[0, 0] = 0.0


def test_a_history_keeps_what_it_needs(device: str) -> None:
    x, y = _pair(device)
    w = x.detach().requires_grad_()
    z = w * 1.0
    copy = z.clone()
    total = (copy * copy).sum()
    z *= y
    z += 1.0
    z[0] = y[0]
    (total + z.sum()).backward()
    wanted = 2 * x.numpy() + np.concatenate([np.zeros((1, SHAPE[1]), np.float32), y.numpy()[1:]])
    np.testing.assert_array_equal(w.grad.numpy(), wanted)
