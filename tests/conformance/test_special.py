"""Special functions far out, and the plain functions built on elementwise ops."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
import tensorbus as tb
from tensorbus import Tensor

from error_bounds import assert_within, gamma, unit
from installed import lacks

INF, NAN = math.inf, math.nan


def doubles(device: str, *numbers: float) -> Tensor:
    return tb.asarray(list(numbers), dtype="float64", device=device)


def near(actual: Tensor, expected: Any, ulps: float = 16) -> None:
    least = np.finfo(np.float64).tiny  # below which there are fewer digits
    assert_within(actual.numpy(), expected, ulps * 2 * unit("float64") * np.abs(expected) + least)


def test_erfc_keeps_its_digits_in_the_tail(device: str) -> None:
    if lacks(device, tb.float64):
        return
    places = [-6.0, -0.4, 0.3, 0.5, 0.51, 2.0, 5.5, 12.3, 20.7, 26.1]
    near(tb.erfc(doubles(device, *places)), [math.erfc(x) for x in places])
    assert tb.erfc(doubles(device, INF, -INF)).tolist() == [0.0, 2.0]


def test_erfinv_undoes_erf_next_to_one(device: str) -> None:
    if lacks(device, tb.float64):
        return
    places = [1e-300, 0.3, -0.97, 0.999, 1 - 2.0**-30, -(1 - 2.0**-53)]
    with mpmath.workdps(60):
        expected = [float(mpmath.erfinv(mpmath.mpf(x))) for x in places]
    near(tb.erfinv(doubles(device, *places)), expected)
    assert tb.erfinv(doubles(device, 1, -1)).tolist() == [INF, -INF]
    assert np.isnan(tb.erfinv(doubles(device, 1.5, -2, INF, NAN)).numpy()).all()


def test_lgamma_keeps_its_digits_next_to_its_zeros(device: str) -> None:
    if lacks(device, tb.float64):
        return
    places = [1e-300, 1e-5, 0.7, 1 - 1e-9, 1 + 1e-9, 1.5, 2 - 1e-9, 2 + 1e-9, 3.3, 7.99, 8.01, 171.5]
    places += [1e10, 1e300]
    with mpmath.workdps(60):
        expected = [float(mpmath.loggamma(mpmath.mpf(x))) for x in places]
    near(tb.lgamma(doubles(device, *places)), expected)
    assert tb.lgamma(doubles(device, 1, 2, 0, -0.0, -1, -7, INF, -INF)).tolist() == [0, 0, *(INF,) * 6]


def test_poles_of_digamma(device: str) -> None:
    actual = tb.digamma(tb.asarray([0.0, -0.0, -1.0, -8.0, INF, -INF, NAN], device=device)).numpy()
    np.testing.assert_array_equal(actual, np.array([-INF, INF, NAN, NAN, INF, NAN, NAN], np.float32))


def test_next_number(device: str) -> None:
    if lacks(device, tb.float64):
        return
    x, y = np.array([1.0, 0.0, -0.0, 1.0, INF, 1.0, NAN]), np.array([2.0, -1.0, 1.0, 1.0, 0.0, -INF, 1.0])
    result = tb.nextafter(tb.asarray(x, device=device), tb.asarray(y, device=device))
    np.testing.assert_array_equal(result.numpy(), np.nextafter(x, y))


def test_without_elements_or_axes(device: str) -> None:
    for name in ("erfc", "erfinv", "lgamma", "digamma", "sinc", "logit", "mish", "cbrt"):
        function = getattr(tb, name)
        assert function(tb.zeros((0, 3), device=device)).shape == (0, 3)
        assert function(tb.asarray(0.5, device=device)).shape == ()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_nan_to_num(device: str, dtype: str) -> None:
    if lacks(device, getattr(tb, dtype)):
        return
    x = tb.asarray([NAN, INF, -INF, 1.5], dtype=dtype, device=device)
    top = tb.finfo(dtype).max
    assert tb.nan_to_num(x).tolist() == [0.0, top, -top, 1.5]
    assert tb.nan_to_num(x, 1.0, 2.0, 3.0).tolist() == [1.0, 2.0, 3.0, 1.5]
    assert tb.nan_to_num(x).dtype is x.dtype


def test_nan_to_num_of_other_kinds(device: str) -> None:
    whole = tb.asarray([1, -2], device=device)
    assert tb.nan_to_num(whole).tolist() == [1, -2]
    if lacks(device, tb.complex64):
        return
    z = tb.asarray([complex(NAN, INF), 1 + 2j], device=device)
    assert tb.nan_to_num(z, posinf=5.0).tolist() == [5j, 1 + 2j]


def test_multiply_and_add(device: str) -> None:
    x, y, z = (tb.asarray(v, device=device) for v in ([1.0, 2.0], [3.0, 4.0], [2.0, 8.0]))
    assert tb.addcmul(x, y, z, value=2).tolist() == [13.0, 66.0]
    assert tb.addcdiv(x, y, z, value=2).tolist() == [4.0, 3.0]
    assert tb.addcmul(x, y, z).tolist() == [7.0, 34.0]
    assert tb.lerp(x, y, 0.25).tolist() == [1.5, 2.5]
    assert tb.lerp(x, y, tb.asarray([0.0, 1.0], device=device)).tolist() == [1.0, 4.0]


def test_logit_keeps_away_from_the_ends(device: str) -> None:
    actual = tb.logit(tb.asarray([0.0, 0.5, 1.0], device=device), 0.25).numpy()
    assert_within(actual, [-math.log(3), 0, math.log(3)], gamma(2, "float32"))


def test_the_gradient_at_a_limit_belongs_to_the_operand(device: str) -> None:
    x = tb.asarray([-1.0, 0.0, 2.0, 3.0, NAN], device=device).requires_grad_()
    low = tb.asarray(0.0, device=device).requires_grad_()
    dx, dlow = tb.grad(tb.clip(x, low, 2.0).sum(), (x, low))
    assert dx is not None
    assert dlow is not None
    assert dx.tolist() == [0.0, 1.0, 1.0, 0.0, 0.0]
    assert dlow.item() == 1.0


def test_the_gradient_of_equal_and_of_missing_numbers(device: str) -> None:
    x = tb.asarray([1.0, 1.0, NAN, 3.0], device=device).requires_grad_()
    y = tb.asarray([1.0, 2.0, 1.0, NAN], device=device).requires_grad_()
    dx, dy = tb.grad(tb.maximum(x, y).sum(), (x, y))
    assert dx is not None
    assert dy is not None
    assert dx.tolist() == [0.5, 0.0, 1.0, 1.0]
    assert dy.tolist() == [0.5, 1.0, 1.0, 1.0]


def test_bits_and_divisors(device: str) -> None:
    x = tb.asarray([0, 1, -1, 255, -(2**63), 2**63 - 1], device=device)
    assert tb.bitwise_count(x).tolist() == [0, 1, 1, 8, 1, 63]
    assert tb.bitwise_count(x).dtype is tb.uint8
    a, b = tb.asarray([0, 0, 12, -12], device=device), tb.asarray([0, 5, 18, 18], device=device)
    assert tb.gcd(a, b).tolist() == [0, 5, 6, 6]
    assert tb.lcm(a, b).tolist() == [0, 0, 36, 36]
    x, y = tb.asarray([-7, 7, -7, 7], device=device), tb.asarray([3, -3, -3, 0], device=device)
    assert tb.fmod(x, y).tolist() == [-1, 1, -1, 0]
