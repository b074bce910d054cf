"""Symbolic numbers, of which tensors are made: one program serves all values."""

from __future__ import annotations

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
