"""Backward passes that start outside of a compiled function, from its results."""

from __future__ import annotations

from functools import partial

import pytest
import tensorbus as tb

from error_bounds import assert_alike

ROUNDINGS = 16  # a few ops of two elements, and theirs back


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
def test_unused_inputs_get_no_gradient(create) -> None:
    """Not zeros either: an optimizer leaves a parameter alone that has none."""

    def fn(x, y, z):
        return x * 2, tb.sin(x) * y, z[:0]

    def gradients(f, k):
        operands = [tb.asarray([1.0, 2.0]).requires_grad_() for _ in range(3)]
        f(*operands)[k].sum().backward(create_graph=create)
        return [None if x.grad is None else x.grad.tolist() for x in operands]

    compiled = tb.compile(fn)
    for _ in range(3):
        for k in range(3):
            right, actual = gradients(fn, k), gradients(compiled, k)
            assert_alike(actual, right, ROUNDINGS)
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
        actual, other = tb.ones(2) * k, tb.ones(2) * k
        want, got = penalty(actual), compiled(other)
        assert [t.tolist() for t in want] == [t.tolist() for t in got]
        assert other.requires_grad
        assert other.is_leaf
    assert len(compiled.replays) == 1


SCALE = 1.0


def test_the_vjp_of_a_user_kernel_is_guarded_by_what_it_reads(monkeypatch) -> None:
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
        want = inside(x, k)
        assert_alike(step(x, k), want, ROUNDINGS)
        weight.grad = None
        outer(x, k).backward()
        assert_alike(weight.grad, want, ROUNDINGS)


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
def test_second_derivatives_skip_inputs_without_history(fn) -> None:
    def derivatives(fn):
        x = tb.asarray([1.0, 0.5]).requires_grad_()
        (first,) = tb.grad(fn(x), x, create_graph=True)
        second = tb.grad((first * first).sum(), x)[0] if first.requires_grad else first * 0
        return first.tolist(), second.tolist()

    compiled, wanted = tb.compile(fn), derivatives(fn)
    for _ in range(3):
        for actual, right in zip(derivatives(compiled), wanted, strict=True):
            assert_alike(actual, right, ROUNDINGS)


def copies(x):
    return tb.asarray(x), x.clone()


def copies_beside_others(x):
    return x.to(x.device), x * 2, +x


def copies_of_what_is_made(x):
    y = tb.sin(x)
    return y, y.clone(), x.to(x.dtype)


def copies_of_copies_beside_what_is_made(x):
    return x.clone().clone(), x * 2, x, x.clone()


@pytest.mark.parametrize(
    "fn",
    [copies, copies_beside_others, copies_of_what_is_made, copies_of_copies_beside_what_is_made],
)
@pytest.mark.parametrize("before", [lambda x: x, lambda x: x * 3])
def test_a_copy_of_an_argument_has_its_history(fn, before) -> None:
    def derivative(fn):
        x = tb.asarray([1.0, 2.0]).requires_grad_()
        results = fn(before(x))
        sum((k + 1) * (y * y).sum() for k, y in enumerate(results)).backward()
        return [(y.requires_grad, y.is_leaf) for y in results], x.grad.tolist()

    compiled = tb.compile(fn)
    for _ in range(3):
        flags, result = derivative(compiled)
        assert flags == derivative(fn)[0]
        assert_alike(result, derivative(fn)[1], ROUNDINGS)
    assert len(compiled.replays) == 1, compiled.recompiles


def test_leaves_that_share_a_gradient_do_so_in_each_call() -> None:
    def fn(x):
        result = tb.zeros(2).requires_grad_()
        return result, tb.asarray(result), x + 1

    compiled = tb.compile(fn)
    for _ in range(3):
        result, other, _ = compiled(tb.ones(2))
        (result * other).sum().backward()
        (other * 3).sum().backward()
        assert result.grad.tolist() == other.grad.tolist() == [3.0, 3.0]


def apart(x):
    return tb.sin(x), tb.cos(x), tb.tanh(x)


def behind_one(x):
    y = tb.exp(x)
    return tb.sin(y), tb.cos(y), tb.tanh(x)


@pytest.mark.parametrize("fn", [apart, behind_one])
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0), (0, 0), (0, 2, 2), (2, 0)])
def test_backward_of_each_result_by_itself(fn, order) -> None:
    def outcome(fn):
        x = tb.asarray([1.0, 2.0], dtype=tb.float64).requires_grad_()
        results, met = fn(x), []
        for k in order:
            try:
                results[k].sum().backward()
                met.append(x.grad.tolist())
            except tb.AutogradError:
                met.append([])
        return met

    compiled, wanted = tb.compile(fn), outcome(fn)
    for _ in range(3):
        for actual, right in zip(outcome(compiled), wanted, strict=True):
            assert_alike(actual, right, ROUNDINGS)
    assert compiled.replays


def test_saved_values_are_freed_with_the_last_result() -> None:
    compiled = tb.compile(lambda x: (tb.sin(x), tb.cos(x)))
    x = tb.ones(3).requires_grad_()
    compiled(x)
    one, other = compiled(x)
    del other
    one.sum().backward()
    assert one._node.parents[0].values == tb.autograd.engine.FREED


BEFORE = [lambda x: x * 2, tb.exp, lambda x: x * 3, lambda x: (x * x).clone(), lambda x: tb.stack([x, x])[0]]


def walk_back(y):
    (y * y).sum().backward()
    return y + 1


def walk_back_twice(y):
    (y * 2).backward(tb.ones(2), retain_graph=True)
    (y**2).sum().backward()
    return y + 1


@pytest.mark.parametrize("fn", [walk_back, walk_back_twice])
def test_backward_goes_on_behind_an_argument(fn) -> None:
    def gradients(fn):
        x, results = tb.asarray([1.0, 2.0]).requires_grad_(), []
        for before in (*BEFORE, *BEFORE):
            y = before(x)
            fn(y)
            results += x.grad.tolist()
            x.grad = None
            with pytest.raises(tb.AutogradError):  # the history was let go
                fn(y)
            x.grad = None
        return results

    compiled = tb.compile(fn)
    assert_alike(gradients(compiled), gradients(fn), ROUNDINGS)
    assert compiled.reasons == ["Python reads the history of a tensor that was there before"]


def test_gradients_by_an_argument_need_no_python() -> None:
    def fn(y):
        return tb.autograd.grad((y * y).sum(), y)[0]

    compiled = tb.compile(fn)
    x = tb.asarray([1.0, 2.0]).requires_grad_()
    for before in BEFORE:
        assert compiled(before(x)).tolist() == fn(before(x)).tolist()
    assert len(compiled.replays) == 1, compiled.reasons


@pytest.mark.parametrize("shape", [(0, 3, 3), (2, 0, 0), (0, 0)], ids=str)
def test_of_several_results_those_are_saved_that_are_empty_too(shape: tuple[int, ...]) -> None:
    several = [tb.linalg.eigh, tb.linalg.qr, tb.linalg.svd, tb.linalg.slogdet]
    for fn in [partial(_result, op, k) for op in several for k in range(len(op(tb.zeros(shape))))]:
        x, again = (tb.zeros(shape).requires_grad_() for _ in range(2))
        expected, y = fn(x), tb.compile(fn)(again)
        assert y.shape == expected.shape
        assert y.requires_grad == expected.requires_grad
        if y.requires_grad:
            y.sum().backward()
            assert again.grad is not None
            assert again.grad.shape == shape


def _result(op, place, x):
    return op(x)[place]


def test_a_write_concerns_the_results_whose_derivatives_read_what_it_wrote_over() -> None:
    """A critic judges and takes its step; the generator's gradient does not pass what it judged before."""

    def fn(x, w):
        y = tb.sin(x)
        return y, (y * w).sum(), w.exp()

    def outcomes(f, k):
        x, w = (tb.asarray([1.0, 2.0]).requires_grad_() for _ in range(2))
        results = f(x, w)
        with tb.no_grad():
            w.mul_(3.0)
        try:
            results[k].sum().backward()
        except tb.AutogradError as error:
            return str(error).replace("compiled function", "mul_")
        return [None if t.grad is None else t.grad.tolist() for t in (x, w)]

    compiled = tb.compile(fn)
    for k in (0, 1, 2, 0):
        right = outcomes(fn, k)
        assert [isinstance(outcomes(f, k), str) for f in (fn, compiled)] == [k == 1] * 2
        assert_alike(outcomes(compiled, k), right, ROUNDINGS)
    assert compiled.replays, compiled.reasons
