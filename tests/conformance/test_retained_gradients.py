"""Which tensors retain gradients, the hooks that run when these arrive, and copies that carry them."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import tensorbus as tb
from tensorbus import Tensor


def test_results_keep_gradients_when_asked(device: str) -> None:
    x = tb.asarray([1.0, 2.0], device=device).requires_grad_()
    h, seen = x * 2, []
    h.retain_grad()
    h.register_hook(lambda g: seen.append(g.tolist()) or g * 10)  # before what keeps the gradient
    (h * h).sum().backward(retain_graph=True)
    assert (seen, h.grad.tolist(), x.grad.tolist()) == ([[4.0, 8.0]], [40.0, 80.0], [80.0, 160.0])
    h.sum().backward()
    assert h.grad.tolist() == [50.0, 90.0]
    h.grad = None
    assert h.grad is None
    x.retain_grad()
    with pytest.raises(tb.AutogradError, match="retain_grad: this tensor requires no gradient"):
        tb.ones(2, device=device).retain_grad()
    with pytest.raises(tb.AutogradError, match="only a leaf"):
        (x * 2).grad = x.detach()


def test_gradients_of_some_inputs(device: str) -> None:
    x, y = (tb.asarray([1.0, 2.0], device=device).requires_grad_() for _ in range(2))
    (x * y).sum().backward(inputs=x)
    assert (x.grad.tolist(), y.grad) == ([1.0, 2.0], None)
    h = x * 3
    h.retain_grad()
    tb.backward((h * y).sum(), inputs=[h, y])
    assert (x.grad.tolist(), y.grad.tolist(), h.grad.tolist()) == ([1.0, 2.0], [3.0, 6.0], [1.0, 2.0])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (lambda x: [], "inputs is empty"),
        (lambda x: [x, x.detach()], "input 1 does not require a gradient"),
        (lambda x: x * 2, "input 0 is the result of an op; call retain_grad"),
    ],
)
def test_inputs_that_keep_no_gradient(device: str, inputs: Callable[[Tensor], object], message: str) -> None:
    x = tb.ones(2, device=device).requires_grad_()
    with pytest.raises(tb.AutogradError, match=message):
        (x * x).sum().backward(inputs=inputs(x))


def test_a_hook_when_the_gradient_has_come(device: str) -> None:
    x, seen = tb.asarray([1.0, 2.0], device=device).requires_grad_(), []

    def take(p: Tensor) -> None:
        seen.append(p.grad.tolist())
        p.grad = None

    handle = x.register_post_accumulate_grad_hook(take)
    (x * x).sum().backward()
    assert (seen, x.grad) == ([[2.0, 4.0]], None)
    handle.remove()
    (x * x).sum().backward()
    assert (len(seen), x.grad.tolist()) == (1, [2.0, 4.0])
    with pytest.raises(tb.AutogradError, match="gradients gather at leaves"):
        (x * 2).register_post_accumulate_grad_hook(take)


@pytest.mark.parametrize("compiled", [False, True])
def test_optimizers_that_step_as_gradients_come(device: str, compiled: bool) -> None:
    model = tb.nn.Linear(2, 1, device=device)
    tb.nn.init.ones_(model.weight)
    tb.nn.init.zeros_(model.bias)
    optimizers = {p: tb.optim.SGD([p], lr=0.25) for p in model.parameters()}

    def take(p: Tensor) -> None:
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(take)

    def step(x: Tensor) -> Tensor:
        loss = (model(x) ** 2).sum() / 2
        loss.backward()
        return loss

    run = tb.compile(step) if compiled else step
    assert [run(tb.ones((1, 2), device=device)).item() for _ in range(4)] == [2.0, 0.125, 0.0078125, 2.0**-11]
    assert [p.grad for p in model.parameters()] == [None, None]


def test_a_compiled_step_whose_result_keeps_its_gradient(device: str) -> None:
    def step(x: Tensor) -> Tensor | None:
        h = x.detach().requires_grad_() * 2
        h.retain_grad()
        (h * h).sum().backward()
        return h.grad

    run = tb.compile(step)
    for n in (1.0, 2.0, 3.0):
        assert run(tb.asarray([n], device=device)).tolist() == [4 * n]


def test_copies_keep_the_gradient(device: str) -> None:
    model = tb.nn.Linear(2, 2, device=device)
    model(tb.ones((1, 2), device=device)).sum().backward()
    other = copy.deepcopy(model)
    assert other.weight.grad.tolist() == model.weight.grad.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    other.weight.grad = None
    assert model.weight.grad is not None
    x = tb.ones(2, device=device).requires_grad_()
    assert copy.deepcopy(x).grad is None
    (x * 3).sum().backward()
    again = copy.deepcopy(x)
    assert (again.grad.tolist(), again.requires_grad, again.grad is x.grad) == ([3.0, 3.0], True, False)
