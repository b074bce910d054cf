"""Tensors never alias: a change in place is seen by that one cell, and by nothing made from it before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import Tensor

CHANGES: dict[str, Callable[[Tensor], Any]] = {
    "an element": lambda x: x.__setitem__((0, 1), 9.0),
    "a slice": lambda x: x.__setitem__((slice(None), slice(None, None, 2)), 9.0),
    "everything": lambda x: x.__setitem__(..., 9.0),
    "by a mask": lambda x: x.__setitem__(x > 2, 9.0),
    "by an index": lambda x: x.__setitem__(([0, 1], [1, 0]), 9.0),
    "add": lambda x: x.__iadd__(1.0),
    "subtract": lambda x: x.__isub__(x),
    "multiply": lambda x: x.__imul__(2.0),
    "divide": lambda x: x.__itruediv__(2.0),
    "floor": lambda x: x.__ifloordiv__(2.0),
    "remainder": lambda x: x.__imod__(2.0),
    "power": lambda x: x.__ipow__(2.0),
    "matmul": lambda x: x.__imatmul__(tb.ones((3, 3), device=x.device)),
    "copy_": lambda x: x.copy_(tb.ones(3)), "fill_": lambda x: x.fill_(9.0), "zero_": lambda x: x.zero_(),
    "add_": lambda x: x.add_(x, alpha=2), "sub_": lambda x: x.sub_(1.0), "mul_": lambda x: x.mul_(x),
    "div_": lambda x: x.div_(2.0), "pow_": lambda x: x.pow_(2), "lerp_": lambda x: x.lerp_(x * 3, 0.5),
    "clamp_": lambda x: x.clamp_(2.0, 3.0), "clip_": lambda x: x.clip_(min=2.0),
    "addcmul_": lambda x: x.addcmul_(x, x), "addcdiv_": lambda x: x.addcdiv_(x, x),
    "masked_fill_": lambda x: x.masked_fill_(x > 2, 0.0), "normal_": lambda x: x.normal_(5.0),
    "uniform_": lambda x: x.uniform_(7.0, 8.0),
}  # fmt: skip
DERIVED: dict[str, Callable[[Tensor], Tensor]] = {
    "clone": Tensor.clone, "detach": Tensor.detach, "positive": lambda x: +x,
    "to device": lambda x: x.to(x.device),
    "to dtype": lambda x: x.to(x.dtype),
    "asarray": lambda x: tb.asarray(x),
    "cast": lambda x: tb.cast(x, x.dtype),
    "clip": lambda x: tb.clip(x),
    "conj": lambda x: tb.conj(x),
    "whole slice": lambda x: x[:],
    "ellipsis": lambda x: x[...],
    "row": lambda x: x[0], "backwards": lambda x: x[:, ::-1], "reshape": lambda x: x.reshape(3, 2),
    "same shape": lambda x: x.reshape(2, 3), "flatten": lambda x: x.flatten(), "transpose": lambda x: x.T,
    "permute": lambda x: tb.permute_dims(x, (0, 1)), "broadcast": lambda x: tb.broadcast_to(x, (2, 2, 3)),
    "same broadcast": lambda x: tb.broadcast_to(x, (2, 3)), "flip nothing": lambda x: tb.flip(x, axis=()),
    "sum of nothing": lambda x: x.sum(axis=()),
    "pad nothing": lambda x: tb.ops.movement.movement.pad(x, (0, 0), (0, 0)),
    "concat one": lambda x: tb.concat([x]),
    "stack": lambda x: tb.stack([x]),
    "expand": lambda x: tb.expand_dims(x),
    "iterate": lambda x: next(iter(x)),
    "windows": lambda x: tb.ops.movement.movement.windows(x, (2,), (1,), (1,)),
    "moveaxis": lambda x: tb.moveaxis(x, 0, 0),
    "squeeze": lambda x: tb.squeeze(x, ()),
    "round trip": lambda x: tb.asarray(x.numpy(), device=x.device),
}  # fmt: skip


def start(device: str) -> Tensor:
    return tb.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device=device)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_reaches_nothing_made_before(device: str, change: str) -> None:
    x = start(device)
    made = {name: derive(x) for name, derive in DERIVED.items()}
    before = {name: np.array(t.numpy()) for name, t in made.items()}
    view, held = x.numpy(), np.array(x.numpy())
    CHANGES[change](x)
    assert not np.array_equal(x.numpy(), held)
    assert np.array_equal(view, held)
    for name, t in made.items():
        assert np.array_equal(t.numpy(), before[name]), name


@pytest.mark.parametrize("name", DERIVED)
def test_a_change_does_not_reach_back(device: str, name: str) -> None:
    x = start(device)
    y = DERIVED[name](x)
    assert y is not x
    y[...] = 9.0
    y += 1.0
    assert x.tolist() == start(device).tolist()


def test_another_name_is_the_same_cell(device: str) -> None:
    x = start(device)
    y = x
    y += 1.0
    y[0, 0] = 0.0
    assert x is y
    assert x.tolist() == [[0.0, 3.0, 4.0], [5.0, 6.0, 7.0]]


def test_a_value_stored_is_not_the_cell(device: str) -> None:
    x, v = start(device), tb.asarray([7.0, 8.0, 9.0], device=device)
    x[0] = v
    v += 1
    x[1] = x[0]
    x[0] = 0.0
    assert x.tolist() == [[0.0, 0.0, 0.0], [7.0, 8.0, 9.0]]


def test_overlapping_parts_of_oneself(device: str) -> None:
    x = tb.arange(6, device=device)
    x[1:] = x[:-1]
    assert x.tolist() == [0, 0, 1, 2, 3, 4]
    x[::-1] = x
    assert x.tolist() == [4, 3, 2, 1, 0, 0]


def test_history_keeps_the_old_values(device: str) -> None:
    x = tb.asarray([1.0, 2.0, 3.0], device=device).requires_grad_()
    y = x * 2
    z = y * y
    y[0] = 100.0
    y += 1000.0
    z.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [8.0, 16.0, 24.0]


def test_gradients_flow_through_changes(device: str) -> None:
    x = tb.asarray([1.0, 2.0, 3.0], device=device).requires_grad_()
    v = tb.asarray(5.0, device=device).requires_grad_()
    y = x * 1
    y[1] = v
    y *= 3
    (y * y).sum().backward()
    assert x.grad is not None
    assert v.grad is not None
    assert (x.grad.tolist(), v.grad.item()) == ([18.0, 0.0, 54.0], 90.0)


def test_a_plain_tensor_takes_history_in(device: str) -> None:
    total, x = tb.zeros((2,), device=device), tb.ones((2,), device=device).requires_grad_()
    for k in range(3):
        total += x * k
    assert total.requires_grad
    total.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3.0, 3.0]


def _after_backward(y: Tensor, x: Tensor, at: Tensor) -> Tensor:
    y.backward(at)
    assert x.grad is not None
    return x.grad


def test_the_gradient_is_a_value_of_its_own(device: str) -> None:
    x, y, ones = (tb.ones((2,), device=device) for _ in range(3))
    x.requires_grad_()
    y.requires_grad_()
    first = _after_backward(x * 1, x, ones)
    first *= 5
    x.grad = None
    second = _after_backward(x * 1, x, ones)
    second += 1
    third = _after_backward(x + y, y, ones)
    third += 7
    assert x.grad is not None
    assert [g.tolist() for g in (first, second, third, x.grad, ones)] == [
        [5.0, 5.0], [2.0, 2.0], [8.0, 8.0], [3.0, 3.0], [1.0, 1.0]
    ]  # fmt: skip


def test_gradients_that_are_equal_are_not_one_cell(device: str) -> None:
    x, ones = tb.ones((2,), device=device).requires_grad_(), tb.ones((2,), device=device)
    y = x * 1
    found = tb.grad(y, [x, y], ones)
    for g in found:
        assert g is not None
        g += 1
    assert [g.tolist() for g in (*found, ones) if g is not None] == [[2.0, 2.0], [2.0, 2.0], [1.0, 1.0]]


def _halved(x: Tensor) -> Tensor:
    h = x * 2
    with tb.no_grad():
        h[0] = 0.0
        h *= 0.5
    return h


@pytest.mark.parametrize("run", [_halved, tb.compile(_halved)], ids=["eager", "compiled"])
def test_a_change_that_is_not_recorded_keeps_the_history(
    device: str, run: Callable[[Tensor], Tensor]
) -> None:
    for _ in range(3):
        x = tb.asarray([1.0, 2.0], device=device).requires_grad_()
        h = run(x)
        assert (h.tolist(), h.requires_grad) == ([0.0, 2.0], True)
        ((h * h).sum() + x.sum()).backward()
        assert x.grad.tolist() == [1.0, 9.0]


def _step(x: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    h = _halved(x)
    ((h * h).sum() + x.sum()).backward()
    assert x.grad is not None
    return x.grad


def test_a_change_that_is_not_recorded_within_a_compiled_step(device: str) -> None:
    x, step = tb.asarray([1.0, 2.0], device=device), tb.compile(_step)
    assert [step(x).tolist() for _ in range(3)] == [[1.0, 9.0]] * 3


def test_a_change_that_is_not_recorded_gives_no_history(device: str) -> None:
    x, y = tb.ones(2, device=device), tb.ones(2, device=device).requires_grad_()
    z = y * 2
    with tb.no_grad():
        x.rebind(z)
    assert (x.tolist(), x.requires_grad, z.requires_grad) == ([2.0, 2.0], False, True)
