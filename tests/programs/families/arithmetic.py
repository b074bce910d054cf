"""Arithmetic and numerics: dtypes, promotion, infinities, NaN, integers, bools, complex numbers."""

from __future__ import annotations

import math

import tensorbus as tb

from program import Family

program = Family(__name__)


@program
def polynomial_by_horner():
    coefficients = (2.0, -3.0, 0.5, 1.25)

    def fn(x):
        y = tb.zeros_like(x)
        for c in coefficients:
            y = y * x + c
        return y

    return fn, [(tb.linspace(-2, 2, 5),), (tb.asarray([[0.5, -0.5]]),), (tb.asarray(3.0),)]


@program
def infinities_and_nans():
    def fn(x, y):
        return {
            "sum": x + y, "product": x * y, "quotient": x / y, "largest": tb.maximum(x, y),
            "is nan": tb.isnan(x - y), "finite": tb.isfinite(x), "sign": tb.signbit(y),
            "cleaned": tb.nan_to_num(x),
        }  # fmt: skip

    inf, nan = float("inf"), float("nan")
    x = tb.asarray([inf, -inf, nan, 0.0, 1.0, inf])
    y = tb.asarray([1.0, inf, 2.0, -0.0, nan, inf])
    return fn, [(x, y), (y, x), (x, x)]


@program
def integers_divide_and_wrap():
    def fn(a, b):
        return a // b, a % b, a * b, -a, abs(a - b), a**2

    a, b = tb.asarray([7, -7, 9, 100], dtype="int32"), tb.asarray([2, 2, -4, 7], dtype="int32")
    narrow = tb.asarray([100, -128, 127, 3], dtype="int8")
    return fn, [(a, b), (b, a), (narrow, narrow), (narrow, tb.cast(b, "int8"))]


@program
def bits():
    def fn(a, b):
        masked = (a & 0b1010) | (b ^ 0xFF)
        return masked, ~a, a << 2, b >> 1, tb.bitwise_count(masked)

    a, b = tb.arange(8), tb.arange(8, 16)
    return fn, [(a, b), (b, a), (tb.cast(a, "uint8"), tb.cast(b, "uint8"))]


@program
def bools():
    def fn(p, q):
        return p & q, p | ~q, tb.logical_xor(p, q), p.sum(), tb.any(p), tb.all(q), tb.where(p, 1.5, -1.5)

    p, q = tb.asarray([True, False, True, False]), tb.asarray([True, True, False, False])
    return fn, [(p, q), (q, p), (p, p)]


@program
def promotion():
    def fn(a, b):
        c = a + b
        return c, c.dtype, a * 2, a + 0.5 if a.dtype.is_floating else a + 1, tb.result_type(a, b)

    one = [tb.ones(3, dtype=d) for d in ("int32", "int64", "float32", "uint8")]
    return fn, [(one[0], one[1]), (one[3], one[0]), (one[2], one[2]), (one[0], one[0])]


@program
def integers_beside_floats():
    def fn(a, b):
        return (a + b) / 2, a * b

    ints, floats = tb.arange(3), tb.arange(3.0)
    return fn, [(floats, floats), (ints, floats), (floats, ints), (ints, ints)]


@program(dtypes=("complex64",))
def complex_rotation():
    def fn(z, angle):
        turn = complex(math.cos(angle), math.sin(angle))
        w = z * turn
        return w, tb.abs(w), tb.conj(w).imag, (w * tb.conj(w)).real

    z = tb.asarray([1 + 0j, 2j, -3 + 4j])
    return fn, [(z, 0.5), (z, 1.0), (z[:2], 0.5)]


@program(dtypes=("float16", "float64"))
def casts_up_and_down():
    def fn(x):
        half, wide = tb.cast(x, "float16"), tb.astype(x, tb.float64)
        return half + 1, wide / 3, tb.cast(x * 10, "int32"), tb.cast(x, "bool"), half.dtype, x.to(tb.float64)

    return fn, [(tb.asarray([0.25, -1.5, 0.0]),), (tb.asarray([1e6, -1e6, 2.0]),), (tb.arange(3),)]


@program
def rounding():
    def fn(x):
        return tb.floor(x), tb.ceil(x), tb.round(x), tb.trunc(x), x % 1.0, x // 0.5, tb.sign(x)

    x = tb.asarray([-2.5, -0.5, 0.5, 1.5, 2.75])
    return fn, [(x,), (x + 0.125,), (-x,)]


@program
def stable_log_sum_exp():
    def fn(x, axis=-1):
        top = x.max(axis=axis, keepdims=True)
        return tb.squeeze(top, axis) + tb.log(tb.exp(x - top).sum(axis=axis))

    x = tb.asarray([[1.0, 2.0, 3.0], [1000.0, 1000.0, -1000.0]])
    return fn, [(x,), (x, 0), (x * 0.5,), (tb.asarray([0.0, -float("inf")]),)]


@program
def numbers_of_python_are_weak():
    def fn(x, scale, shift):
        y = x * scale + shift
        return y, y.dtype

    x = tb.arange(4.0)
    return fn, [(x, 2, 1), (x, 2.5, True), (x, -1, 0.0), (tb.arange(4), 3, 1)]
