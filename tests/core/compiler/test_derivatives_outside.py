"""The derivative of a compiled function's results, which others ask for: by its arguments, and no further."""

from __future__ import annotations

import pytest
import tensorbus as tb


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, y: x * y,
        lambda x, y: y * 3 + x,
        lambda x, y: y * y,
        lambda x, y: x.sum() * y,
        lambda x, y: x,
    ],
)
def test_an_argument_made_of_another_counts_once(fn) -> None:
    def gradient(f):
        x = tb.asarray([1.0, 2.0]).requires_grad_()
        y = tb.tanh(x * 2)
        f(x, y).sum().backward()
        return x.grad.tolist()

    compiled = tb.compile(fn)
    assert [gradient(compiled) for _ in range(3)] == [gradient(fn)] * 3
    assert compiled.replays, compiled.reasons


@pytest.mark.parametrize("create", [False, True])
def test_what_the_asked_results_were_not_made_from_gets_no_gradient(create) -> None:
    """Not zeros either: an optimizer leaves a parameter alone that has none."""

    def fn(x, y, z):
        return x * 2, tb.sin(x) * y, z[:0]

    def gradients(f, k):
        given = [tb.asarray([1.0, 2.0]).requires_grad_() for _ in range(3)]
        f(*given)[k].sum().backward(create_graph=create)
        return [None if x.grad is None else x.grad.tolist() for x in given]

    compiled = tb.compile(fn)
    for _ in range(3):
        for k in range(3):
            right, found = gradients(fn, k), gradients(compiled, k)
            assert [x is None for x in found] == [x is None for x in right]
            assert [pytest.approx(x) for x in right if x] == [x for x in found if x]
    assert compiled.replays, compiled.reasons


def test_a_parameter_behind_an_argument_counts_once() -> None:
    def build():
        tb.manual_seed(0)
        embedding, head = tb.nn.Embedding(5, 3), tb.nn.Linear(3, 5, bias=False)
        head.weight = embedding.weight
        return embedding, head

    (embedding, head), (other, tied) = build(), build()
    compiled = tb.compile(tied)
    tokens = tb.asarray([0, 3, 3])
    for _ in range(3):
        head(embedding(tokens)).exp().sum().backward()
        compiled(other(tokens)).exp().sum().backward()
    assert (abs(embedding.weight.grad - other.weight.grad) < 1e-5 * abs(embedding.weight.grad)).all()
    assert compiled.replays


def test_an_argument_may_begin_to_ask_for_a_gradient() -> None:
    weight = tb.asarray([1.0, 2.0]).requires_grad_()

    def penalty(x):
        x.requires_grad_()
        (g,) = tb.grad((weight * x * x).sum(), [x], create_graph=True)
        weight.grad = None
        (g * g).sum().backward()
        return g.detach(), x.grad, weight.grad

    compiled = tb.compile(penalty)
    for k in range(3):
        given, other = tb.ones(2) * k, tb.ones(2) * k
        want, got = penalty(given), compiled(other)
        assert [t.tolist() for t in want] == [t.tolist() for t in got]
        assert other.requires_grad
        assert other.is_leaf
    assert len(compiled.replays) == 1


SCALE = 1.0


def test_the_derivative_of_a_kernel_is_guarded_by_what_it_reads(monkeypatch) -> None:
    cube = tb.kernel(
        {}, name="cube", tensors={"x": tb.float32}, out=lambda x: x,
        vjp=lambda g, x: (g * x * x * 3 * SCALE,), default=lambda x: x * x * x,
    )  # fmt: skip
    compiled = tb.compile(lambda x: cube(x))

    def gradient():
        x = tb.asarray([1.0, 2.0]).requires_grad_()
        compiled(x).sum().backward()
        return x.grad.tolist()

    assert [gradient() for _ in range(2)] == [[3.0, 12.0]] * 2
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    assert gradient() == [6.0, 24.0]
    assert len(compiled.replays) == 2


@pytest.mark.parametrize("dynamic", [None, True])
def test_numbers_that_differ_are_in_the_derivative_too(dynamic) -> None:
    weight = tb.asarray([1.0, 2.0]).requires_grad_()

    def loss(x, k):
        return (weight * x).sum() / x.shape[0] * k + (weight / k).sum() + tb.clip(weight, -k, k).sum()

    def inside(x, k):
        weight.grad = None
        loss(x, k).backward()
        return weight.grad

    step, outer = tb.compile(inside, dynamic=dynamic), tb.compile(loss, dynamic=dynamic)
    for n, k in ((3, 1.5), (3, 2.5), (3, 0.5), (4, 0.5), (5, 0.5), (6, 1.25)):
        x = tb.ones((n, 2)) * n
        want = inside(x, k).tolist()
        assert step(x, k).tolist() == pytest.approx(want)
        weight.grad = None
        outer(x, k).backward()
        assert weight.grad.tolist() == pytest.approx(want)


def detached(x):
    return (x * x.detach()).sum()


def detached_and_not(x):
    return (x * x).sum() * (x * x.detach()).sum() + (x * x.detach()).sum()


def scaled_by_its_norm(x):
    with tb.no_grad():
        norm = tb.sqrt((x * x).sum())
    return ((x / norm) ** 3).sum()


def functions_of_both(x):
    return (tb.exp(x) * tb.exp(x).detach() + tb.exp(x.detach()) * x).sum()


@pytest.mark.parametrize("fn", [detached, detached_and_not, scaled_by_its_norm, functions_of_both])
def test_second_derivatives_leave_out_what_has_no_history(fn) -> None:
    def derivatives(fn):
        x = tb.asarray([1.0, 0.5]).requires_grad_()
        (first,) = tb.grad(fn(x), x, create_graph=True)
        second = tb.grad((first * first).sum(), x)[0] if first.requires_grad else first * 0
        return first.tolist(), second.tolist()

    compiled, wanted = tb.compile(fn), derivatives(fn)
    for _ in range(3):
        for found, right in zip(derivatives(compiled), wanted, strict=True):
            assert found == pytest.approx(right)
