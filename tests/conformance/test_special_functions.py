"""``tensorbus.special``: values beside SciPy's and mpmath's, limits, dtypes, derivatives, compiled code."""

from __future__ import annotations

import math
from typing import Any, Final

import mpmath
import numpy as np
import pytest
import scipy.special
import tensorbus as tb
from tensorbus import special

from error_bounds import assert_alike, assert_within, gamma, of_difference
from installed import lacks

INF, NAN = math.inf, math.nan
QUADRATURE: Final = {"betainc": 1e-12, "stdtr": 1e-12}
"""What integrals by a rule of 32 points are precise to, as the docstring of ``betainc`` says."""
UNDERFLOW: Final = {"float64": 1e-290, "float32": 1e-30}
"""What is smaller may be zero: parts of it have left the range of the dtype."""
_RNG: Final = np.random.default_rng(7)
_LINE = np.concatenate([_RNG.normal(size=60) * 6, [0.0, -1.0, 1.0, 7.9, 8.1, 40.0, -30.0]])
_A = np.exp(_RNG.uniform(-4, 7, 150))
_X = _A * np.exp(_RNG.normal(size=150) * np.where(_RNG.random(150) < 0.5, 1, 2 / np.sqrt(_A)))
_B = np.exp(_RNG.uniform(-3, 6, 150))
_SHARE = np.clip(_A / (_A + _B) + 0.2 * _RNG.normal(size=150), 1e-6, 1 - 1e-6)
ARGUMENTS: dict[str, tuple[np.ndarray[Any, Any], ...]] = {
    **dict.fromkeys(("i0", "i0e", "i1", "i1e", "ndtr", "log_ndtr"), (_LINE,)),
    "ndtri": (np.concatenate([_RNG.random(60), 10.0 ** -_RNG.uniform(0, 30, 40), [0.0, 0.5, 1.0, -1.0]]),),
    "xlogy": (np.array([0.0, 0.0, 2.0, -1.5]), np.array([0.0, -1.0, 0.5, 3.0])),
    "xlog1py": (np.array([0.0, 0.0, 2.0, -1.5]), np.array([-1.0, -2.0, 1e-9, 3.0])),
    **dict.fromkeys(
        ("rel_entr", "kl_div"),
        (np.array([0, 0, 1, 2, -1, INF, NAN, 1, 3, 5]), np.array([0, 2, 0, 3, 1, 1, 1, -1, 3.5, 0.01])),
    ),
    "zeta": (1 + _RNG.exponential(5, 60), _RNG.exponential(10, 60)),
    "polygamma": (_RNG.integers(0, 6, 60).astype(float), np.abs(_RNG.normal(size=60)) * 5 + 0.1),
    "gammainc": (_A, _X),
    "gammaincc": (_A, _X),
    "betainc": (_A, _B, _SHARE),
    "chdtr": (_A, _X),
    "chdtrc": (np.append(_A, [2.0, -1.0]), np.append(_X, [-1.0, 1.0])),
    "stdtr": (
        np.append(_A, [5.0, INF, -1.0, 7.0]),
        np.append(_RNG.normal(size=150) * 3, [INF, 1.5, 1.0, 1e-8]),
    ),
}
STEP: Final = 1e-6
SAME: Final = ("cbrt", "entr", "erf", "erfc", "erfinv", "exp2", "expit", "gammaln", "logit", "psi", "sinc")


SERIES: Final = 64
"""Roundings in a row where a function is a series, a continued fraction, or a product of such."""


def assert_accurate(actual: tb.Tensor, expected: Any, approximated: float = 0.0) -> None:
    """Check values of functions that are exponentials: what is rounded counts by the size of the exponent."""
    exact, name = np.asarray(expected, np.float64), actual.dtype.name
    size = np.abs(np.where(np.isfinite(exact), exact, 0.0))
    exponents = np.abs(np.log(np.where(size == 0, 1.0, size)))
    relative = gamma(SERIES, name) * (1 + exponents) + approximated
    assert_within(actual.numpy(), exact, relative * size + UNDERFLOW[name])


def floats(device: str) -> str:
    return "float32" if lacks(device, tb.float64) else "float64"


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_same_values_as_scipy(name: str, dtype: str, device: str) -> None:
    if lacks(device, getattr(tb, dtype)):
        return
    operands = [x.astype(dtype) for x in ARGUMENTS[name]]
    actual = getattr(special, name)(*(tb.asarray(x, device=device) for x in operands))
    expected = getattr(scipy.special, name)(*(x.astype("float64") for x in operands))
    assert actual.dtype is getattr(tb, dtype)
    with np.errstate(over="ignore"):
        assert_accurate(actual, expected.astype(dtype), QUADRATURE.get(name, 0.0))


@pytest.mark.parametrize("name", SAME)
def test_functions_of_other_names_are_the_ones_that_scipy_means(name: str, device: str) -> None:
    array = np.array([0.25, 0.5, 0.75])
    result = getattr(special, name)(tb.asarray(array, dtype=floats(device), device=device))
    assert_accurate(result, getattr(scipy.special, name)(array))


def test_small_tails_keep_their_digits(device: str) -> None:
    if lacks(device, tb.float64):
        return
    cases = [(0.5, 300.0), (50.0, 3.0), (300.0, 290.0), (1e4, 9e3)]
    a, x = (tb.asarray(list(v), dtype="float64", device=device) for v in zip(*cases, strict=True))
    with mpmath.workdps(40):
        low = [float(mpmath.gammainc(p, 0, q, regularized=True)) for p, q in cases if q < p]
    upper = math.erfc(math.sqrt(300.0))
    assert_accurate(special.gammaincc(a, x)[:1], [upper])
    assert_accurate(special.gammainc(a, x)[1:], low)


def test_limits(device: str) -> None:
    def at(name: str, *numbers: float) -> float:
        first = tb.asarray(numbers[0], dtype=floats(device), device=device)
        actual: float = getattr(special, name)(first, *numbers[1:]).item()
        return actual

    assert [at("gammainc", *v) for v in [(2, 0), (2, INF), (0, 1), (INF, 2)]] == [0, 1, 1, 0]
    assert [at("gammaincc", *v) for v in [(2, 0), (2, INF), (0, 1), (INF, 2)]] == [1, 0, 0, 1]
    assert [at("betainc", *v) for v in [(1, 2, 0), (1, 2, 1), (0, 2, 0.5), (2, 0, 0.5)]] == [0, 1, 1, 0]
    assert [at(name, INF) for name in ("i0", "i1", "i0e", "i1e", "ndtr")] == [INF, INF, 0, 0, 1]
    assert [at(name, -INF) for name in ("i0", "i1", "ndtr", "log_ndtr")] == [INF, -INF, 0, -INF]
    assert [at("zeta", *v) for v in [(1, 2), (2, 0), (3, -2), (2, INF)]] == [INF, INF, INF, 0]
    unknown: list[Any] = [
        ("gammainc", -1, 1),
        ("gammaincc", 1, -1),
        ("gammainc", 0, 0),
        ("betainc", 1, 1, 1.5),
    ]
    unknown += [("betainc", -1, 1, 0.5), ("ndtri", 2), ("ndtri", NAN), ("zeta", 0.5, 2), ("zeta", 2.5, -0.5)]
    assert all(math.isnan(at(name, *numbers)) for name, *numbers in unknown)


def test_riemann_and_below_zero(device: str) -> None:
    if lacks(device, tb.float64):
        return
    places = [-20.0, -7.5, -3.0, -1.0, -0.5, 0.0, 0.5, 2.0, 30.0]
    with mpmath.workdps(30):
        expected = [float(mpmath.zeta(s)) for s in places]
        hurwitz = float(mpmath.zeta(4, -2.3))
        trigamma = [float(mpmath.psi(n, x)) for n, x in [(1, -2.3), (2, -0.75), (3, -10.5)]]
    assert_accurate(special.zeta(tb.asarray(places, dtype="float64", device=device)), expected)
    four = tb.asarray(4.0, dtype="float64", device=device)
    assert_accurate(special.zeta(four, -2.3), hurwitz)
    n, x = (
        tb.asarray([1, 2, 3], device=device),
        tb.asarray([-2.3, -0.75, -10.5], dtype="float64", device=device),
    )
    assert_accurate(special.polygamma(n, x), trigamma)


def test_whole_and_narrow_numbers(device: str) -> None:
    whole = tb.asarray([1, 2, 3], device=device)
    assert special.ndtr(whole).dtype is tb.get_default_dtype()
    assert special.gammaincc(whole, 0.5).dtype is tb.get_default_dtype()
    if not lacks(device, tb.float16):
        half = special.i0(tb.asarray([1.0], dtype="float16", device=device))
        assert half.dtype is tb.float16
        assert half.item() == np.float16(scipy.special.i0(1.0))


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_wide_default_widens_nothing(name: str, device: str) -> None:
    if lacks(device, tb.float64):
        return
    operands = [tb.asarray(x, dtype="float32", device=device) for x in ARGUMENTS[name]]
    tb.set_default_dtype("float64")
    try:
        assert getattr(special, name)(*operands).dtype is tb.float32
    finally:
        tb.set_default_dtype("float32")


def test_shapes_broadcast(device: str) -> None:
    a, x = tb.ones((4, 1), device=device), tb.ones((3,), device=device)
    assert special.gammainc(a, x).shape == (4, 3)
    assert special.betainc(a, x, 0.5).shape == (4, 3)
    assert special.ndtr(tb.zeros((0, 2), device=device)).shape == (0, 2)


def test_refusals(device: str) -> None:
    with pytest.raises(tb.DtypeError, match=r"ndtr: at least one operand must be a tensor, got float"):
        special.ndtr(0.5)
    ones = tb.ones((2,), device=device)
    assert special.xlogy(np.float64(1.0), ones).tolist() == [0.0, 0.0]
    for wrong in (np.ones(2), [1.0, 2.0], 1j, "1"):
        with pytest.raises(tb.DtypeError, match=r"xlogy: an operand is a real tensor or a number, got"):
            special.xlogy(wrong, ones)
    if not lacks(device, tb.complex64):
        with pytest.raises(tb.DtypeError, match=r"gammainc: not defined for complex64"):
            special.gammainc(1.0, tb.asarray([1j], device=device))


@pytest.mark.parametrize(
    "name",
    [name for name in ARGUMENTS if name not in ("xlogy", "xlog1py", "polygamma", "rel_entr", "kl_div")],
)
def test_derivatives_are_those_of_differences(name: str, device: str) -> None:
    if lacks(device, tb.float64):
        return
    points = {"ndtri": [[0.2, 0.5, 0.7]], "zeta": [[1.5, 3.0, 6.0], [0.5, 2.0, 9.0]]}
    tails = [[0.8, 1.5, 4.0, 12.0], [0.5, 3.0, 4.5, 7.0], [0.1, 0.4, 0.5, 0.9]]
    count = len(ARGUMENTS[name])
    array = np.array(points.get(name, [[-9.0, -0.5, 3.0]] if count == 1 else tails[:count]))
    xs = [tb.asarray(x, device=device).requires_grad_() for x in array]
    gradients = tb.grad(getattr(special, name)(*xs).sum(), xs)
    for k, gradient in enumerate(gradients):
        assert gradient is not None
        step = np.zeros((count, 1))
        step[k] = STEP
        high, low = (getattr(scipy.special, name)(*(array + s)) for s in (step, -step))
        # Third derivatives are like values here, some a hundred times as large.
        bound = of_difference(high, STEP, 1e2 * (1 + abs(high)), operations=SERIES)
        assert_within(gradient.numpy(), (high - low) / (2 * STEP), bound)


@pytest.mark.full
def test_compiled_as_one_program(device: str) -> None:
    def chance(a: tb.Tensor, x: tb.Tensor) -> tb.Tensor:
        return tb.special.gammaincc(a, x) + tb.special.ndtr(x)

    a, x = (tb.asarray(v, dtype=floats(device), device=device) for v in ([0.5, 3.0, 20.0], [2.0, 1.0, 25.0]))
    result = tb.compile(chance, fullgraph=True)(a, x)
    assert_alike(result, chance(a, x), SERIES)
