"""Gradients where derivatives do not decide: ties, zeros, repeats, dead branches; the rules of history."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import Tensor

from error_bounds import assert_within, of_difference

NAN, INF = float("nan"), float("inf")


@pytest.fixture(autouse=True)
def _on_cpu() -> Any:
    with tb.device("cpu"):
        yield


def leaf(values: Any, dtype: str = "float64") -> Tensor:
    return tb.asarray(values, dtype=dtype).requires_grad_()


def gradient(f: Callable[[Tensor], Tensor], values: Any) -> Any:
    x = leaf(values)
    f(x).sum().backward()
    assert x.grad is not None
    return x.grad.tolist()


def gradient_of(y: Tensor, x: Tensor) -> Any:
    y.sum().backward()
    assert x.grad is not None
    return x.grad.tolist()


CASES: dict[str, tuple[Callable[[Tensor], Tensor], Any, Any]] = {
    "max shares among equals": (lambda x: x.max(), [1.0, 3.0, 3.0], [0.0, 0.5, 0.5]),
    "min along an axis shares": (lambda x: x.min(axis=1), [[1.0, 1.0], [0.0, 2.0]], [[0.5, 0.5], [1.0, 0.0]]),
    "maximum shares": (lambda x: tb.maximum(x, 2.0), [1.0, 2.0, 3.0], [0.0, 0.5, 1.0]),
    "minimum shares": (lambda x: tb.minimum(2.0, x), [1.0, 2.0, 3.0], [1.0, 0.5, 0.0]),
    "relu at zero": (tb.relu, [-1.0, 0.0, -0.0, 2.0], [0.0, 0.0, 0.0, 1.0]),
    "abs at zero": (abs, [0.0, -2.0], [0.0, -1.0]),
    "max_pool gives all to the first": (
        lambda x: tb.max_pool2d(x, 2), [[[5.0, 5.0], [5.0, 1.0]]], [[[1.0, 0.0], [0.0, 0.0]]],
    ),
    "prod with one zero": (lambda x: x.prod(), [2.0, 0.0, 3.0], [0.0, 6.0, 0.0]),
    "prod with two zeros": (lambda x: x.prod(), [2.0, 0.0, 0.0], [0.0, 0.0, 0.0]),
    "prod of one": (lambda x: x.prod(), [2.0], [1.0]),
    "gather adds repeats up": (lambda x: x[[0, 0, 2, 0]], [1.0, 2.0, 3.0], [3.0, 0.0, 1.0]),
    "a power of zero": (lambda x: x**2, [0.0, -1.0], [0.0, -2.0]),
    "the zeroth power": (lambda x: x**0, [0.0, 3.0], [0.0, 0.0]),
    "the first power of zero": (lambda x: x**1, [0.0], [1.0]),
    "a tensor's zeroth power": (lambda x: x ** tb.zeros((2,), dtype="float64"), [0.0, 3.0], [0.0, 0.0]),
    "sigmoid far out": (tb.sigmoid, [-INF, INF], [0.0, 0.0]),
    "softplus far out": (tb.softplus, [-1000.0, 1000.0], [0.0, 1.0]),
    "logaddexp of equal infinities": (lambda x: tb.logaddexp(x, x), [INF, -INF], [1.0, 1.0]),
    "logsumexp of one infinity": (lambda x: tb.logsumexp(x), [0.0, -INF], [1.0, 0.0]),
    "where cuts NaN off": (
        lambda x: tb.where(x > 0, x, NAN) + tb.where(x > 0, NAN, x), [1.0, -2.0], [1.0, 1.0],
    ),
    "a sum over nothing": (lambda x: x.sum(axis=0), np.zeros((0, 2)), []),
    "rounding": (lambda x: tb.floor(x) + tb.round(x) + tb.sign(x) + x // 0.3, [0.4, -1.2], [0.0, 0.0]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_gradient(name: str) -> None:
    f, values, expected = CASES[name]
    assert gradient(f, values) == expected


def test_where_gives_the_dead_branch_nothing() -> None:
    x, y = leaf([1.0, -1.0]), leaf([NAN, 2.0])
    tb.where(x > 0, x, y).sum().backward()
    assert (x.grad.tolist(), y.grad.tolist()) == ([1.0, 0.0], [0.0, 1.0])


def test_only_the_last_value_set_at_a_place_has_a_gradient() -> None:
    x, v = leaf([1.0, 2.0, 3.0]), leaf([4.0, 5.0, 6.0])
    y = x * 1
    y[[1, 1, 2]] = v
    (y * tb.asarray([1.0, 10.0, 100.0], dtype="float64")).sum().backward()
    assert y.tolist() == [1.0, 5.0, 6.0]
    assert (x.grad.tolist(), v.grad.tolist()) == ([1.0, 0.0, 0.0], [0.0, 10.0, 100.0])


def _with(name: str) -> Callable[..., Tensor]:
    return lambda x, y: getattr(tb, name)(x) + y


COMPLEX: dict[str, Callable[..., Tensor]] = {
    "add": lambda x, y: x + y, "subtract": lambda x, y: x - y, "multiply": lambda x, y: x * y,
    "divide": lambda x, y: x / y, "power": lambda x, y: x**y, "conj": lambda x, y: tb.conj(x) * y,
    "matmul": lambda x, y: tb.matmul(x, y),
    "prod": lambda x, y: (x * y).prod(),
    "mean": lambda x, y: (x * y).mean(),
    "scalar": lambda x, y: x * 2j + (1 + 1j) / y,
    "real with complex": lambda x, y: x * tb.asarray([0.5, 2.0], dtype="float64"),
    **{name: _with(name) for name in (
        "exp", "expm1", "log", "log1p", "log2", "log10", "sqrt", "sin", "cos", "tan", "asin", "acos",
        "atan", "sinh", "cosh",
        "tanh", "asinh", "acosh", "atanh", "reciprocal", "square", "sum", "negative")},
}  # fmt: skip


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_gradients_point_uphill(name: str) -> None:
    """The gradient of Re(conj(w) * f) is its slope along the real axis, plus 1j times the other."""
    f, step = COMPLEX[name], 1e-6  # the third derivatives are below a hundred
    points = [np.array([0.3 + 0.4j, -0.5 + 0.2j]), np.array([0.7 - 0.6j, 0.2 + 0.9j])]
    xs = [tb.asarray(p).requires_grad_() for p in points]
    out = f(*xs)
    weight = np.resize(np.array([0.6 - 0.3j, 0.1 + 0.8j]), out.shape)
    actual = tb.grad(out, xs, tb.asarray(weight), allow_unused=True)

    def uphill(k: int, at: int, by: complex) -> float:
        ends = []
        for sign in (1, -1):
            moved = [p.copy() for p in points]
            moved[k][at] += sign * by
            value = f(*map(tb.asarray, moved)).numpy()
            ends.append(float(np.sum(np.conj(weight) * value).real))
        return (ends[0] - ends[1]) / (2 * step)

    terms = float(abs(weight * out.detach().numpy()).sum())
    bound = 2 * of_difference(terms, step, third=100.0)  # along either axis
    for k, g in enumerate(actual):
        expected = [uphill(k, at, step) + 1j * uphill(k, at, step * 1j) for at in range(2)]
        assert_within(np.zeros(2) if g is None else g.numpy(), expected, bound)


def test_gradients_gather_until_they_are_cleared() -> None:
    x = leaf([1.0, 2.0])
    for _ in range(3):
        (x * x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [6.0, 12.0]
    x.grad = None
    assert gradient_of(x * 3, x) == [3.0, 3.0]


def test_a_gradient_has_the_dtype_of_its_tensor() -> None:
    x = leaf([1.0, 2.0], "float16")
    (x.to("float64") * tb.asarray([1.0, 2.0], dtype="float32")).sum().backward()
    assert x.grad is not None
    assert (x.grad.dtype, x.grad.tolist()) == (tb.float16, [1.0, 2.0])


def test_history_is_used_once_unless_retained() -> None:
    x = leaf([3.0])
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(tb.AutogradError, match="retain_graph=True"):
        y.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [12.0]


def test_create_graph_keeps_the_history() -> None:
    x = leaf([3.0])
    y = (x**3).sum()
    results = []
    for _ in range(3):
        (y,) = tb.grad(y.sum(), x, create_graph=True)
        results.append(y.tolist())
    assert results == [[27.0], [18.0], [6.0]]
    assert x.grad is None


def test_grad_of_inner_results_and_of_several_outputs() -> None:
    x = leaf([2.0])
    y = x * x
    assert tb.grad([y * 3, y * y], y, [tb.ones_like(y), tb.ones_like(y)])[0].tolist() == [11.0]
    assert tb.grad(y, y)[0].tolist() == [1.0]


def test_unused_inputs() -> None:
    x, unused = leaf([1.0]), leaf([1.0])
    with pytest.raises(tb.AutogradError, match="do not depend on input 1"):
        tb.grad((x * x).sum(), [x, unused])
    grads = tb.grad((x * x).sum(), [x, unused], allow_unused=True)
    assert grads[1] is None


def test_recording_is_switched_by_block_and_by_decorator() -> None:
    x = leaf([1.0])

    @tb.no_grad()
    def quiet() -> Tensor:
        return x * 2

    with tb.no_grad():
        assert not (x * 2).requires_grad
        with tb.enable_grad():
            assert (x * 2).requires_grad
        assert not tb.is_grad_enabled()
    assert not quiet().requires_grad
    assert tb.is_grad_enabled()


def test_recording_is_switched_for_one_thread_only() -> None:
    x, seen = leaf([1.0]), []
    with tb.no_grad():
        thread = threading.Thread(target=lambda: seen.append((x * 2).requires_grad))
        thread.start()
        thread.join()
    assert seen == [True]


def test_an_error_inside_leaves_recording_as_it_was() -> None:
    with pytest.raises(tb.ShapeError), tb.no_grad():
        tb.zeros((2,)) + tb.zeros((3,))
    assert tb.is_grad_enabled()


def test_integers_and_comparisons_carry_no_history() -> None:
    x = leaf([1.5, 2.5])
    for value in (x > 1, x.to("int32"), tb.argmax(x), tb.isnan(x), x.detach()):
        assert not value.requires_grad


def test_history_is_freed_by_backward() -> None:
    x = leaf([1.0, 2.0])
    y = tb.exp(x)
    reference = weakref.ref(y.numpy().base)
    loss = (y * y).sum()
    del y
    gc.collect()
    assert reference() is not None
    loss.backward()
    assert reference() is None


def test_long_histories_do_not_recurse() -> None:
    x = leaf([1.0])
    y = x
    for _ in range(50_000):
        y = y + 1.0
    y.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1.0]
    for _ in range(50_000):
        y = y + 1.0
    del y


def test_a_gradient_stays_while_its_tensor_asks_for_none() -> None:
    x, seen = tb.ones(2).requires_grad_(), []
    x.register_hook(lambda g: seen.append(g.tolist()))
    (x * 3).sum().backward()
    x.requires_grad_(False)
    assert x.grad.tolist() == [3.0, 3.0]
    assert not x.requires_grad
    x.requires_grad_(True)
    (x * 2).sum().backward()
    assert x.grad.tolist() == [5.0, 5.0]
    assert seen == [[3.0, 3.0], [2.0, 2.0]]
    x.requires_grad_(False)
    x.grad = None
    assert x.requires_grad_(True).grad is None


def test_frozen_parameters_forget_their_gradients_too() -> None:
    for forget in ("module", "optimizer"):
        model = tb.nn.Linear(2, 1)
        optimizer = tb.optim.SGD(model.parameters(), lr=0.1)
        model(tb.ones(2)).sum().backward()
        model.requires_grad_(False)
        (model if forget == "module" else optimizer).zero_grad()
        assert [p.grad for p in model.requires_grad_(True).parameters()] == [None, None]
