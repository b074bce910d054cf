"""``cond``, ``while_loop`` and ``scan``: what the loops of Python give, eagerly and as nodes of a program.

Numbers are sums of few powers of two, so that results are exact in any order of evaluation.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import Tensor
from tensorbus.control_flow import with_size
from tensorbus.errors import ArgumentError, DtypeError, ShapeError

from error_bounds import assert_alike

X = [[1.0, -0.5, 2.0], [0.5, 1.0, -1.0], [2.0, 0.5, 1.0]]
OTHER = [[-1.0, 0.5, -2.0], [0.5, -1.0, -1.0], [-2.0, 0.5, 0.25]]
W = [0.5, 2.0, -1.0]


def branches(x: Tensor, w: Tensor) -> Any:
    return tb.cond(x.sum() > 0, lambda x: x * x * w, lambda x: x * 2 + w, (x,))


def plain_branches(x: Tensor, w: Tensor) -> Any:
    return x * x * w if x.sum() > 0 else x * 2 + w


def doubled(x: Tensor, w: Tensor) -> Any:
    def goes_on(state: Any, n: Any) -> Any:
        return (state["h"] * state["h"]).sum() < 200

    def step(state: Any, n: Any) -> Any:
        return {"h": state["h"] * 2 + state["c"] * w, "c": state["c"]}, n + 1

    state, n = tb.while_loop(goes_on, step, ({"h": x, "c": x * 0.5}, 0))
    return state["h"] + n


def plain_doubled(x: Tensor, w: Tensor) -> Any:
    h, c, n = x, x * 0.5, 0
    while (h * h).sum() < 200:
        h, n = h * 2 + c * w, n + 1
    return h + n


def running(x: Tensor, w: Tensor) -> Any:
    def step(carry: Any, row: Any) -> Any:
        h, n = carry
        h = h * 0.5 + row["x"] * w
        return (h, n + 1), [h * row["x"], n]

    (h, n), (ys, ns) = tb.scan(step, (x[0], 0), {"x": x}, reverse=True)
    return ys * 2 + h + (ns * 2).reshape((-1, 1)) + n


def plain_running(x: Tensor, w: Tensor) -> Any:
    h, ys = x[0], []
    for k in (2, 1, 0):
        h = h * 0.5 + x[k] * w
        ys.insert(0, h * x[k])
    return tb.stack(ys) * 2 + h + tb.asarray([[4.0], [2.0], [0.0]], device=x.device) + 3


def nested(x: Tensor, w: Tensor) -> Any:
    def step(h: Any, column: Any) -> Any:
        h = tb.cond(column.sum() > 0, lambda h, c: h + c * w, lambda h, c: h * c, (h, column))
        _, h = tb.while_loop(lambda n, h: n < 2, lambda n, h: (n + 1, h * 0.5 + w), (0, h))
        return h, tb.vmap(lambda a, b: a * b)(h, column) + tb.func.grad(lambda q: (q * q).sum())(h)

    h, ys = tb.scan(step, w, x, axis=1)
    return ys + h.reshape((-1, 1))


def plain_nested(x: Tensor, w: Tensor) -> Any:
    h, ys = w, []
    for k in range(3):
        column = x[:, k]
        h = h + column * w if column.sum() > 0 else h * column
        for _ in range(2):
            h = h * 0.5 + w
        ys.append(h * column + 2 * h)
    return tb.stack(ys, 1) + h.reshape((-1, 1))


Function = Callable[[Tensor, Tensor], Any]
CASES: dict[str, tuple[Function, Function, bool]] = {
    "cond": (branches, plain_branches, True),
    "while_loop": (doubled, plain_doubled, False),
    "scan": (running, plain_running, True),
    "nested": (nested, plain_nested, False),
}
"""With control flow, in Python, and whether a program has the gradient too."""


def gradient(f: Function) -> Function:
    return lambda x, w: sum(tb.func.grad(lambda x, w: (f(x, w) * x).sum(), argnums=(0, 1))(x, w))


def tangent(f: Function) -> Function:
    return lambda x, w: tb.func.jvp(f, (x, w), (x, w * 2))[1]


TRANSFORMS: dict[str, tuple[Callable[[Function], Function], bool]] = {
    "value": (lambda f: f, False),
    "gradient": (gradient, True),
    "tangent": (tangent, False),
    "second gradient": (lambda f: gradient(gradient(f)), True),
    "tangent of the gradient": (lambda f: tangent(gradient(f)), True),
}
"""And whether they need a gradient."""


@pytest.mark.parametrize(
    "name", ["cond", "scan", *[pytest.param(x, marks=pytest.mark.full) for x in ("while_loop", "nested")]]
)
@pytest.mark.parametrize("compiled", [False, True])
def test_transforms_agree_with_python(device: str, name: str, compiled: bool) -> None:
    function, plain, differentiable = CASES[name]
    w = tb.asarray(W, device=device)
    xs = tb.asarray([X, OTHER], device=device)
    for transform, is_gradient in TRANSFORMS.values():
        run, wanted = transform(function), transform(plain)
        if compiled:
            run = tb.compile(run, fullgraph=differentiable or not is_gradient)
        for x in (xs[0], xs[1], xs[0]):
            assert run(x, w).tolist() == wanted(x, w).tolist(), transform
        if is_gradient and not differentiable:
            continue
        mapped = tb.vmap(transform(function), in_dims=(0, None))
        mapped = tb.compile(mapped, fullgraph=True) if compiled else mapped
        for _ in range(2):
            assert mapped(xs, w).tolist() == [wanted(x, w).tolist() for x in xs], transform


def test_a_function_is_called_once_and_read_in_a_program(device: str) -> None:
    calls: list[int] = []
    cell = tb.nn.Linear(3, 3).to(device)

    def loss(xs: Tensor) -> Tensor:
        def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            calls.append(1)
            h = tb.tanh(cell(h) + x)
            return h, h.sum()

        h, ys = tb.scan(step, tb.zeros(3, device=device), xs)
        return h.sum() + ys.mean()

    run, gradients = tb.compile(loss, fullgraph=True), []
    xs = tb.asarray([W] * 40, device=device)
    for k in range(4):
        cell.zero_grad()
        calls.clear()
        (run if k else loss)(xs).backward()
        assert len(calls) <= (1 if k else 40)
        gradients.append([p.grad for p in cell.parameters()])
    for ours in gradients[1:]:
        assert_alike(ours, gradients[0], 40 * 8)  # forty steps, each of sums of three


def test_no_steps_and_one_element(device: str) -> None:
    x = tb.zeros((0, 2), device=device)
    for wrap in (lambda f: f, tb.compile):
        run = wrap(lambda x: tb.scan(lambda s, r: (s + r.sum(), (r, s > 0)), tb.ones((), device=device), x))
        for _ in range(2):
            h, (rows, flags) = run(x)
            assert (h.item(), rows.shape, flags.shape) == (1.0, (0, 2), (0,))
            assert flags.dtype is tb.bool
        loop = wrap(lambda x: tb.while_loop(lambda x: x.sum() > 1, lambda x: x - 1, (x,)))
        assert [y.tolist() for y in loop(tb.ones((1, 1), device=device) * 3)] == [[[1.0]]]
        assert [y.tolist() for y in loop(tb.ones((1, 1), device=device))] == [[[1.0]]]


def _carries(step: Callable[..., Any], init: Any) -> Callable[[], Any]:
    return lambda: tb.scan(step, init, tb.ones(3))


ONE = tb.ones(2)
WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "shape": (_carries(lambda h, x: ([h[0].sum()], x), [ONE]), ShapeError, r"carry\[0\] has shape \(2,\)"),
    "dtype": (
        _carries(lambda h, x: ({"h": h["h"].to(tb.float64)}, x), {"h": ONE}), DtypeError, r"carry\['h'\] is",
    ),
    "missing": (_carries(lambda h, x: ({}, x), {"h": ONE}), ArgumentError, r"no carry\['h'\]"),
    "no pair": (_carries(lambda h, x: h + x, tb.zeros(())), ArgumentError, "a pair"),
    "lengths": (
        lambda: tb.scan(lambda h, x: (h, x), 0, (tb.ones(2), tb.ones(3))), ShapeError, r"xs\[1\] has 3 steps",
    ),
    "no length": (lambda: tb.scan(lambda h, x: (h, x), 0), ArgumentError, "length must say"),
    "more": (
        lambda: tb.while_loop(lambda a: a.sum() < 5, lambda a: (a, a), (ONE,)), ArgumentError,
        r"returned carried\[1\]",
    ),
    "condition": (
        lambda: tb.while_loop(lambda a: a > 0, lambda a: (a,), (ONE,)), ArgumentError, "one boolean",
    ),
    "carried": (lambda: tb.while_loop(lambda a: a, lambda a: a, ONE), ArgumentError, "must be a tuple"),
    "predicate": (lambda: tb.cond(ONE, lambda: 1, lambda: 2), ArgumentError, "one boolean"),
    "no function": (lambda: tb.cond(True, 1, lambda: 2), ArgumentError, "true_fn must be a function"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named(name: str) -> None:
    call, error, text = WRONG[name]
    for run in (call, tb.compile(call)):
        with pytest.raises(error, match=text):
            run()


def test_branches_that_do_not_agree() -> None:
    def wrong(x: Tensor) -> Any:
        return tb.cond(x.sum() > 0, lambda x: {"y": x}, lambda x: {"y": x.sum()}, (x,))

    with pytest.raises(ShapeError, match=r"result\['y'\] has shape \(2,\)"):
        tb.compile(wrong)(ONE)
    with pytest.raises(ShapeError, match=r"result\['y'\]"):
        tb.vmap(wrong)(tb.stack([ONE, -ONE]))


def test_functions_that_read_or_write_run_in_python(device: str) -> None:
    total = tb.zeros(2, device=device)

    def reading(xs: Tensor) -> Any:
        return tb.scan(lambda h, x: (h + (1 if x.sum().item() > 0 else 2), x), 0, xs)[0]

    def writing(xs: Tensor) -> Any:
        def step(h: Tensor, x: Tensor) -> Any:
            total.add_(x)
            return h + 1, x

        return tb.scan(step, 0, xs)[0]

    xs = tb.asarray([[1.0, 1.0], [-1.0, -2.0], [1.0, 0.0]], device=device)
    for function, value in ((reading, 4), (writing, 3)):
        run = tb.compile(function)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert [run(xs).item() for _ in range(3)] == [value] * 3
        assert any("cannot be captured" in str(w.message) for w in caught)
    assert total.tolist() == [3.0, -3.0]


def test_autocast_reaches_what_functions_compute(device: str) -> None:
    """In a program too, where their values stand for others."""
    if device == "refdev":
        pytest.skip("refdev has no bfloat16")
    x, w = tb.asarray(X, device=device), tb.asarray(OTHER, device=device)
    calls: list[Callable[..., Any]] = [
        lambda x: tb.cond(x.sum() > 0, lambda x: x @ w, lambda x: w @ x, (x,)),
        lambda x: tb.while_loop(lambda n, y: n < 2, lambda n, y: (n + 1, (x @ w).to(y.dtype)), (0, x))[1],
        lambda x: tb.scan(lambda c, row: (c, w @ row), tb.sum(x), x)[1],
        lambda x: with_size(lambda n, x: (x[:n].mT @ w[:n],), tb.asarray(2, device=device), (x,), 3)[0],
    ]
    for call in calls:
        with tb.autocast(device, dtype=tb.bfloat16):
            right, ours = call(x), tb.compile(call, fullgraph=True)(x)
        assert ours.dtype is right.dtype
        assert_alike([ours.to(tb.float32)], [right.to(tb.float32)], 3, tb.bfloat16)
