"""A checkpointed block has the results and the gradients of the plain one, and keeps nothing in between."""

from __future__ import annotations

import gc
import weakref

import pytest
import tensorbus as tb
from tensorbus.autograd.engine import Node

from error_bounds import assert_alike

ROUNDINGS = 32
"""Of sums of a few elements through a few layers, forward and back; eager ops give the same bits again."""


def block(model):
    return lambda x: model(x).tanh() * 2


@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_are_those_of_the_plain_block(compiled: bool) -> None:
    tb.manual_seed(0)
    model = tb.nn.Sequential(tb.nn.Linear(3, 4), tb.nn.Dropout(0.5), tb.nn.Linear(4, 2))
    x = tb.uniform((5, 3)).requires_grad_()

    def loss(x, save):
        y = x * 3
        out = tb.checkpoint(block(model), y) if save else block(model)(y)
        (out**2).sum().backward()
        return out.detach()

    fn = tb.compile(loss) if compiled else loss
    results = []
    for save in (False, True, True, False):
        model.zero_grad()
        x.grad = None
        tb.manual_seed(3)
        out = fn(x, save)
        results.append([t.reshape(-1).tolist() for t in (out, x.grad, *[p.grad for p in model.parameters()])])
    for other in results[1:]:
        if compiled:
            assert_alike(other, results[0], ROUNDINGS)
        else:
            assert other == results[0]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("nested", [False, True])
def test_a_block_may_call_compiled_functions_that_draw(nested: bool, dynamic: bool | None) -> None:
    """Also one that holds a block itself: all draw in backward what they drew before."""

    def inner(x):
        return tb.nn.functional.dropout(x * x, 0.5) * tb.rand(x.shape)

    def both(x):
        return tb.checkpoint(inner, x) + inner(x * 3)

    def gradient(function, save, length):
        x = tb.arange(1.0, length + 1).requires_grad_()
        tb.manual_seed(3)
        block = lambda v: function(v) + function(v * 2) + tb.rand(v.shape) * v  # noqa: E731
        out = tb.checkpoint(block, x) if save else block(x)
        out.sum().backward()
        return [*out.tolist(), *x.grad.tolist(), *tb.rand(2).tolist()]

    fn = both if nested else inner
    compiled = tb.compile(fn, dynamic=dynamic)
    for length in (8, 8, 9, 9, 11, 8):
        plain = gradient(fn, False, length)
        assert gradient(fn, True, length) == plain
        assert_alike(gradient(compiled, True, length), plain, ROUNDINGS)
    assert compiled.replays, compiled.reasons


def test_several_results_and_second_derivatives() -> None:
    x = tb.asarray([1.0, 2.0]).requires_grad_()

    def pair(x):
        return {"a": x * x, "b": [x.exp(), 3]}

    out = tb.checkpoint(pair, x)
    (g,) = tb.grad((out["a"] * out["b"][0]).sum(), x, create_graph=True)
    (second,) = tb.grad(g.sum(), x)
    plain = pair(x)
    (h,) = tb.grad((plain["a"] * plain["b"][0]).sum(), x, create_graph=True)
    (wanted,) = tb.grad(h.sum(), x)
    assert g.tolist() == h.tolist()
    assert_alike(second, wanted, ROUNDINGS)


def test_nothing_inside_is_kept() -> None:
    x = tb.ones(4).requires_grad_()
    inner: list[weakref.ref[Node]] = []

    def fn(x):
        y = x.exp()
        inner.append(weakref.ref(y._node))
        return y.sin()

    out = tb.checkpoint(fn, x)
    gc.collect()
    assert inner[0]() is None
    out.sum().backward()
    assert_alike(x.grad, x.exp().cos() * x.exp(), ROUNDINGS)
    with pytest.raises(RuntimeError, match="retain_graph"):
        out.sum().backward()


def test_without_gradients_it_is_a_call() -> None:
    with tb.no_grad():
        assert not tb.checkpoint(lambda x: x * 2, tb.ones(2).requires_grad_()).requires_grad
    assert not tb.checkpoint(lambda x: x * 2, tb.ones(2)).requires_grad


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("save", [False, True])
def test_hooks_at_the_edge_of_a_block_are_called_once(save: bool, compiled: bool) -> None:
    w, x = tb.ones((3, 3)).requires_grad_(), tb.ones((2, 3)).requires_grad_()
    inner: list[int] = []

    def step() -> None:
        h = x * 1
        h.register_hook(lambda g: g * 3)

        def product(y):
            z = y @ w
            z.register_hook(lambda g: (inner.append(1), g * 5)[1])
            return z * 1

        (tb.checkpoint(product, h) if save else product(h)).sum().backward()

    handle = w.register_hook(lambda g: g * 2)
    (tb.compile(step) if compiled else step)()
    handle.remove()
    assert w.grad.tolist() == [[2 * 5 * 2.0] * 3] * 3
    assert x.grad.tolist() == [[3 * 5 * 3.0] * 3] * 2
    assert len(inner) == 1


@pytest.mark.parametrize("compiled", [False, True])
def test_a_weight_may_be_used_before_a_block_and_in_several(compiled: bool) -> None:
    def gradient(save):
        w, x = (tb.arange(9.0).reshape((3, 3)) / 10).requires_grad_(), tb.ones((2, 3))

        def layer(y):
            return tb.tanh(y @ w)

        def step():
            h = x @ w
            for _ in range(3):
                h = tb.checkpoint(layer, h) if save else layer(h)
            h.sum().backward()

        (tb.compile(step) if compiled else step)()
        return w.grad.reshape((-1,)).tolist()

    if compiled:
        assert_alike(gradient(True), gradient(False), ROUNDINGS)
    else:
        assert gradient(True) == gradient(False)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_block_may_return_what_it_was_given_and_what_it_read(compiled: bool) -> None:
    weight = tb.nn.Parameter(tb.ones(3))

    def block(x):
        return (x * weight).sin(), x, weight

    def slopes(x, save):
        weight.grad = None
        y = x * 2
        for _ in range(2):
            a, retained, read = tb.checkpoint(block, y) if save else block(y)
            y = a + retained + read
        y.sum().backward()
        return weight.grad

    fn = tb.compile(slopes) if compiled else slopes
    x = tb.ones(3).requires_grad_()
    results = []
    for save in (False, True, True):
        x.grad = None
        results.append([*fn(x, save).tolist(), *x.grad.tolist()])
        assert weight.is_leaf
    assert results[1] == results[2]
    assert_alike(results[1], results[0], ROUNDINGS)
    same = tb.checkpoint(lambda x: x, x * 3)
    (slope,) = tb.grad(same.sum(), x)
    assert slope.tolist() == [3.0] * 3
