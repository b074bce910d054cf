"""Symbolic numbers, of which tensors are made: one program serves all values."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import tensorbus as tb

from error_bounds import assert_alike

TABLE = tb.arange(40.0)

MAKERS = {
    "full": lambda x, i: x + tb.full((2,), i),
    "full of a quotient": lambda x, i: x + tb.full((1, 2), i / 3),
    "full of a narrow dtype": lambda x, i: tb.full((2,), i, dtype=tb.int16),
    "full of half precision": lambda x, i: tb.full((2,), i * 0.1, dtype=tb.float16),
    "full of double precision": lambda x, i: tb.full((2,), i / 7, dtype=tb.float64),
    "full of zeros with a sign": lambda x, i: 1 / tb.full((2,), -0.0 * i),
    "full_like": lambda x, i: tb.full_like(x, i),
    "fill_": lambda x, i: tb.zeros((2,)).fill_(i),
    "number": lambda x, i: x * tb.asarray(i),
    "tensor": lambda x, i: x * tb.tensor(i * 0.5),
    "list": lambda x, i: TABLE[tb.asarray([i, 1])],
    "nested lists": lambda x, i: x + tb.asarray([[i, 2], [0.5, i + 1]]),
    "list of a dtype": lambda x, i: x + tb.asarray([i], dtype=tb.float32),
    "range": lambda x, i: x * tb.arange(i, i + 2),
    "range in steps": lambda x, i: tb.arange(i, i + 7, 3),
    "range of floats": lambda x, i: tb.arange(i, i + 2, dtype=tb.float32) * x,
    "range downwards": lambda x, i: tb.arange(i, i - 4, -2),
    "timesteps": lambda x, i: (x, x * TABLE[tb.full((2,), i, dtype=tb.int64)])[i > 3],
}


@pytest.mark.parametrize("name", MAKERS)
def test_one_program_serves_all_numbers(name) -> None:
    fn = MAKERS[name]
    compiled, x = tb.compile(fn, fullgraph=True), tb.asarray([1.0, -2.0])
    for i in (0, 1, 5, 30, 31, 7, 8, 12, 13, 2):
        want, got = fn(x, i), compiled(x, i)
        assert (got.dtype, got.shape, got.tolist()) == (want.dtype, want.shape, want.tolist())
    assert len(compiled.recompiles) <= 2
    assert not compiled.reasons


def test_numbers_that_do_not_fit() -> None:
    def fn(i):
        return tb.full((2,), i, dtype=tb.int8)

    compiled = tb.compile(fn)
    for i in (1, 2, 300, 3, -200, -128):
        if -128 <= i < 128:
            assert compiled(i).tolist() == [i, i]
        else:
            with pytest.raises(tb.DtypeError, match="does not fit in int8"):
                compiled(i)


def test_a_width_that_differs_is_no_program_of_another() -> None:
    compiled = tb.compile(lambda i, n: tb.arange(i, i + n).sum())
    for i, n in [(0, 2), (1, 2), (5, 2), (5, 3), (6, 3), (7, 2), (7, 0)]:
        assert compiled(i, n).item() == sum(range(i, i + n))


ROUNDINGS = 16  # of a power, whose logarithm is as far off as it is large, and a few ops
DERIVED = {
    "exponent": lambda x, w: x**w,
    "base": lambda x, w: w**x,
    "norm": lambda x, w: (x**w).sum() ** (1 / w),
    "quotient": lambda x, w: w / x + x / w,
    "bounds": lambda x, w: tb.clip(x, -w, w),
}


@pytest.mark.parametrize("name", DERIVED)
def test_derivatives_with_varying_numbers(name) -> None:
    """Inside a program and outside it: what a derivative makes of a number is computed anew at each call."""
    fn = DERIVED[name]

    def step(call, w):
        x = tb.asarray([0.5, 2.0]).requires_grad_()
        call(x, w).sum().backward()
        return x.grad

    outside, inside = tb.compile(fn), tb.compile(lambda w: step(fn, w))
    for w in (0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 0.25, 4.5, 5.0, 6.0):
        want = step(fn, w)
        assert_alike(step(outside, w), want, ROUNDINGS)
        assert_alike(inside(w), want, ROUNDINGS)
    for compiled in (outside, inside):
        assert len(compiled.recompiles) <= 2
        assert not compiled.reasons


X = tb.arange(24.0)


class Walk(NamedTuple):
    """A state that a call takes, and returns another one of."""

    place: tb.Tensor
    time: float


def _replaced(walks):
    walks[0] = (walks[0][0] + 1, walks[0][1] + 1)
    return walks[0][1]


@pytest.mark.parametrize(
    ("fn", "arguments", "captures"),
    [
        (lambda s: Walk(s.place * s.time, s.time + 0.5), lambda n: (Walk(X, n + 2.0),), 2),
        (lambda s: (s, s.place + s.time), lambda n: (Walk(X, n),), 2),
        (lambda s: s._replace(time=s.time * 2), lambda n: (Walk(X, n + 0.5),), 2),
        (lambda s: ((s[1][0] + 1, s[0]), s), lambda n: ((X, (n + 0.5, "a")),), 2),
        (lambda s, t: s[0] * t[1], lambda n: [(n + 2.0, X)] * 2, 2),
        (lambda states: (states.append(states[0]), states[0][0] * states[0][1]), lambda n: ([(X, n)],), 2),
        (_replaced, lambda n: ([(X, n + 1.5)],), 2),
        (lambda x, size: tb.zeros(size) + x.sum(), lambda n: (X, (n + 2, 3)), 2),
        (lambda x, size: x[: size[0] * 2].reshape(size) * 2, lambda n: (X, (n % 4 + 2, 2)), 2),
        (lambda s: X * 2 if s == (4, 1) else X, lambda n: ((n, 1),), 3),
        (lambda s: X * s[0] if s[0] > 6 else X - s[0], lambda n: ((n + 2.0, 3),), 3),
    ],
)
def test_numbers_in_tuples_are_inputs(fn, arguments, captures) -> None:
    def plain(x):
        if isinstance(x, tb.Tensor):
            return x.tolist()
        return (type(x), [*map(plain, x)]) if isinstance(x, (tuple, list)) else x

    compiled = tb.compile(fn, compare_eager=False)
    for n in range(12):
        passed, same = arguments(n), arguments(n)
        out = compiled(*passed)
        assert plain((out, [*passed])) == plain((fn(*same), [*same]))
        if isinstance(out, tuple) and type(out[-1]) is type(passed[0]) is tuple:
            assert out[-1] is passed[0]
    assert compiled._captures == captures, compiled.recompiles


def test_a_tuple_whose_number_is_a_key_is_captured_by_value() -> None:
    compiled = tb.compile(lambda s, table: X * table.get(s, 3), compare_eager=False)
    for n in (3, 4, 5, 3, 5):
        assert compiled((n, 2), {(3, 2): 7, (5, 2): 8})[1].item() == {3: 7, 5: 8}.get(n, 3)
