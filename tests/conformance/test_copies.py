"""Copies that are asked for may be changed, also those of leaves, whose gradients flow through them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tensorbus as tb
from tensorbus import Tensor

COPIES: dict[str, Callable[[Tensor], Tensor]] = {
    "asarray": lambda x: tb.asarray(x, copy=True),
    "astype": lambda x: tb.astype(x, x.dtype),
    "to": lambda x: x.to(x.device, copy=True),
    "clone": Tensor.clone,
}


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_of_a_leaf_may_be_changed(name: str, device: str) -> None:
    x = tb.asarray([1.0, 2.0, 3.0], device=device).requires_grad_()
    y = COPIES[name](x)
    y[1] = 5.0
    assert x.tolist() == [1.0, 2.0, 3.0]
    (gradient,) = tb.grad((y * y).sum(), [x])
    assert gradient is not None
    assert gradient.tolist() == [2.0, 0.0, 6.0]


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_without_history_has_none(name: str, device: str) -> None:
    x = tb.asarray([1.0, 2.0], device=device).requires_grad_()
    with tb.no_grad():
        assert not COPIES[name](x).requires_grad
