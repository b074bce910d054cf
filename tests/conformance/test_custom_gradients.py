"""Functions with derivatives of their own, and derivatives held against differences."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import Tensor
from tensorbus.autograd import Function, gradcheck

from error_bounds import assert_within, gamma

SCALE = 1.0


class Cube(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return g * 3 * x * x


class Exponential(Function):
    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return tb.exp(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * ctx.saved_tensors[0]


class Rounded(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return tb.round(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * SCALE


class Several(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, factor: float) -> tuple[Any, ...]:
        ctx.save_for_backward(x, None, y)
        ctx.factor = factor
        order = tb.argsort(x)
        flat = x * 0
        ctx.mark_non_differentiable(flat)
        return x * y * factor, x + y, order, flat, "word"

    @staticmethod
    def backward(ctx: Any, first: Tensor, second: Tensor, *others: Any) -> tuple[Any, ...]:
        x, none, y = ctx.saved_tensors
        assert none is None
        assert [g if g is None else (g.shape, g.dtype) for g in others] == [
            (x.shape, tb.int64), (x.shape, x.dtype), None
        ]  # fmt: skip
        assert ctx.needs_input_grad == (True, True, False)
        return first * y * ctx.factor + second, first * x * ctx.factor + second, None


@pytest.mark.parametrize(
    ("kind", "wanted"), [(Cube, [[12.0], [12.0], [6.0]]), (Exponential, [[math.exp(2)]] * 3)]
)
def test_derivatives_of_every_order(device: str, kind: type[Function], wanted: list[list[float]]) -> None:
    x = tb.asarray([2.0], device=device).requires_grad_()
    out = kind.apply(x)
    for order in wanted:
        (out,) = tb.grad(out.sum(), x, create_graph=True)
        assert_within(out.detach().numpy(), order, gamma(2, "float32") * np.abs(order))
    y = kind.apply(x)
    y.backward()
    with pytest.raises(tb.AutogradError, match=f"{kind.__name__}: the history was let go"):
        y.backward()
    with tb.no_grad():
        assert not kind.apply(x).requires_grad
    assert not kind.apply(x.detach()).requires_grad


def test_several_results(device: str) -> None:
    x, y = (tb.asarray(v, device=device).requires_grad_() for v in ([2.0, 3.0], [4.0, 5.0]))
    product, total, order, flat, word = Several.apply(x, y, 2.0)
    assert (order.tolist(), word, flat.requires_grad, order.requires_grad) == ([0, 1], "word", False, False)
    (product * tb.asarray([1.0, 0.0], device=device)).sum().backward(retain_graph=True)
    assert (x.grad.tolist(), y.grad.tolist()) == ([8.0, 0.0], [4.0, 0.0])
    total.sum().backward()
    assert (x.grad.tolist(), y.grad.tolist()) == ([9.0, 1.0], [5.0, 1.0])

    def summed(x: Tensor, y: Tensor) -> Tensor:
        product, *_ = Several.apply(x, y, 2.0)
        return product.sum()

    slopes = tb.func.grad(summed, argnums=(0, 1))
    backs = [*slopes(x.detach(), y.detach()), *tb.vmap(slopes)(x.detach()[None], y.detach()[None])]
    assert [g.reshape(-1).tolist() for g in backs] == [[8.0, 10.0], [4.0, 6.0]] * 2


class Shifted(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, bias)
        return x * x if bias is None else x * x + bias

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor | None]:
        x, bias = ctx.saved_tensors
        return g * 2 * x, None if bias is None else g


@pytest.mark.parametrize("has_bias", [True, False])
def test_an_argument_that_may_be_left_out_is_saved(device: str, has_bias: bool) -> None:
    x = tb.asarray([1.0, -3.0], device=device).requires_grad_()
    bias = tb.ones((2,), device=device).requires_grad_() if has_bias else None
    Shifted.apply(x, bias).sum().backward()
    assert x.grad.tolist() == [2.0, -6.0]
    assert bias is None or bias.grad.tolist() == [1.0, 1.0]


def test_what_is_saved_must_not_be_changed_later(device: str) -> None:
    x = tb.asarray([2.0], device=device).requires_grad_()
    y = Cube.apply(x)
    with tb.no_grad():
        x[0] = 5.0
    text = "Cube.backward needs saved tensor 0, .* which an assignment to elements has overwritten since"
    with pytest.raises(tb.AutogradError, match=text):
        y.backward()


@pytest.mark.parametrize("compiled", [False, True])
def test_training_steps(device: str, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    weight = tb.asarray([1.5, 2.0], device=device).requires_grad_()
    optimizer = tb.optim.SGD([weight], lr=0.25)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (Rounded.apply(weight * 1) * x).sum()
        loss.backward()
        optimizer.step()
        return loss

    run, results = tb.compile(step) if compiled else step, []
    for scale in (1.0, 1.0, 1.0, 2.0):
        monkeypatch.setitem(globals(), "SCALE", scale)  # a compiled step notices
        results.append(run(tb.asarray([1.0, 2.0], device=device)).item())
    assert results == [6.0, 5.0, 3.0, 1.0]
    assert weight.tolist() == [0.25, -0.5]


def test_results_of_compiled_functions(device: str) -> None:
    def square(x: Tensor) -> Tensor:
        return (Rounded.apply(x * 1.25) ** 2).sum()

    run = tb.compile(square)
    for _ in range(3):
        x = tb.asarray([1.0], device=device).requires_grad_()
        (slope,) = tb.grad(run(x), x, create_graph=True)
        assert (slope.item(), tb.grad(slope.sum(), x)[0].item()) == (2.5, 3.125)


def test_inside_of_vmap(device: str) -> None:
    x = tb.asarray([[1.25], [2.75]], device=device)
    assert tb.vmap(Rounded.apply)(x).tolist() == [[1.0], [3.0]]

    def slope(row: Tensor) -> Any:
        row = row.detach().requires_grad_()
        return tb.grad(Cube.apply(row).sum(), row)[0]

    assert tb.vmap(slope)(tb.asarray([[1.0], [2.0]], device=device)).tolist() == [[3.0], [12.0]]
    tb.vmap(Rounded.apply)(x.requires_grad_()).sum().backward()
    assert x.grad.tolist() == [[SCALE], [SCALE]]


@pytest.mark.parametrize(
    ("backward", "message"),
    [
        (lambda ctx, g: (g, g), "returned 2 gradient"),
        (lambda ctx, g: (), "returned 0 gradient"),
        (lambda ctx, g: 3.0, "returned float for argument 0"),
        (lambda ctx, g: tb.ones(3, device=g.device), r"returned a gradient of shape \(3,\) for argument 0"),
    ],
)
def test_wrong_derivatives(device: str, backward: Callable[..., Any], message: str) -> None:
    kind = type("Wrong", (Rounded,), {"backward": staticmethod(backward)})
    x = tb.ones(2, device=device).requires_grad_()
    with pytest.raises(tb.AutogradError, match=f"Wrong.backward {message}"):
        kind.apply(x).sum().backward()


def test_derivatives_that_are_larger_or_missing(device: str) -> None:
    def larger(ctx: Any, g: Tensor) -> Tensor:
        return tb.stack([g, g])

    x = tb.ones(2, device=device).requires_grad_()
    type("Larger", (Rounded,), {"backward": staticmethod(larger)}).apply(x).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]
    y = tb.ones(2, device=device).requires_grad_()
    type("Missing", (Rounded,), {"backward": staticmethod(lambda ctx, g: None)}).apply(y).sum().backward()
    assert y.grad is None
    with pytest.raises(tb.AutogradError, match="save_for_backward keeps tensors and None, got int"):
        type("Keeps", (Rounded,), {"forward": staticmethod(lambda ctx, x: ctx.save_for_backward(3))}).apply(x)


def test_gradients_against_differences(device: str) -> None:
    x = tb.asarray([0.5, 2.0], dtype=tb.float64, device=device).requires_grad_()
    y = tb.asarray([[1.0], [3.0]], dtype=tb.float64, device=device).requires_grad_()
    assert gradcheck(Cube.apply, x)
    assert gradcheck(lambda a, b, k: (a * b * k, a.exp()), [x, y, 3.0])
    with pytest.raises(tb.AutogradError, match="element 0 of result 0 by element 0 of input 0 is 1, where"):
        gradcheck(Rounded.apply, x.detach().requires_grad_())
    assert not gradcheck(Rounded.apply, x, raise_exception=False)
    with pytest.raises(tb.ArgumentError, match="no input requires a gradient"):
        gradcheck(Cube.apply, x.detach())
    with pytest.raises(tb.ArgumentError, match="input 0 is complex"):
        gradcheck(Cube.apply, tb.asarray([1j], device=device).requires_grad_())
