"""Changes in place and the histories of gradients: what was recorded keeps the values that it saw."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tensorbus as tb
from tensorbus import Tensor


def test_history_keeps_the_values_of_a_copy(device: str) -> None:
    x = tb.asarray([1.0, 2.0, 3.0], device=device).requires_grad_()
    y = x * 2
    c = y.clone()
    z = c * c
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
    grads = tb.grad(y, [x, y], ones)
    for g in grads:
        assert g is not None
        g += 1
    assert [g.tolist() for g in (*grads, ones) if g is not None] == [[2.0, 2.0], [2.0, 2.0], [1.0, 1.0]]


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
