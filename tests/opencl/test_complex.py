"""Complex kernels: the special cases of the array API standard, casts, reductions, products, movement."""

from __future__ import annotations

import numpy as np
import pytest
import tensorbus as tb

from error_bounds import assert_within, gamma, of_product, of_sum

inf, nan = float("inf"), float("nan")
pi = np.pi
DTYPES = ("complex64", "complex128")
# (operand, result); the sign of parts that the standard leaves open is not looked at.
SPECIAL: dict[str, list[tuple[complex, complex]]] = {
    "exp": [
        (0j, 1 + 0j), (complex(1, inf), complex(nan, nan)), (complex(inf, 0), complex(inf, 0)),
        (complex(-inf, 1), 0j), (complex(-inf, inf), 0j), (complex(inf, nan), complex(inf, nan)),
        (complex(nan, 0), complex(nan, 0)), (complex(nan, 1), complex(nan, nan)),
    ],
    "expm1": [
        (complex(-inf, 1), complex(-1, 0)), (complex(-inf, nan), complex(-1, 0)),
        (complex(inf, 0), complex(inf, 0)), (complex(nan, 0), complex(nan, 0)),
        (complex(1e-6, 1e-6), complex(1e-6 - 1e-18 / 3, 1e-6 + 1e-12 + 1e-18 / 3)),
    ],
    "log": [
        (complex(-0.0, 0), complex(-inf, pi)), (0j, complex(-inf, 0)),
        (complex(1, inf), complex(inf, pi / 2)), (complex(-inf, 1), complex(inf, pi)),
        (complex(-inf, inf), complex(inf, 3 * pi / 4)),
        (complex(inf, nan), complex(inf, nan)), (complex(nan, inf), complex(inf, nan)),
    ],
    "log1p": [(complex(-1, 0), complex(-inf, 0)), (complex(inf, inf), complex(inf, pi / 4))],
    "sqrt": [
        (complex(-0.0, 0), 0j), (complex(nan, inf), complex(inf, inf)), (complex(-inf, 1), complex(0, inf)),
        (complex(inf, 1), complex(inf, 0)), (complex(inf, nan), complex(inf, nan)),
        (complex(-4, 0), 2j), (complex(-4, -0.0), -2j),
    ],
    "sinh": [(complex(inf, 0), complex(inf, 0)), (complex(nan, 0), complex(nan, 0)), (0j, 0j)],
    "cosh": [(complex(inf, 0), complex(inf, 0)), (complex(inf, inf), complex(inf, nan)), (0j, 1 + 0j)],
    "tanh": [
        (complex(inf, 1), complex(1, 0)), (complex(inf, nan), complex(1, 0)),
        (complex(0, inf), complex(0, nan)), (complex(nan, 0), complex(nan, 0)),
        (complex(1, inf), complex(nan, nan)),
    ],
    "asinh": [
        (complex(1, inf), complex(inf, pi / 2)), (complex(inf, 1), complex(inf, 0)),
        (complex(inf, inf), complex(inf, pi / 4)), (complex(nan, 0), complex(nan, 0)), (0j, 0j),
    ],
    "acosh": [
        (0j, complex(0, pi / 2)), (complex(-inf, 1), complex(inf, pi)),
        (complex(inf, inf), complex(inf, pi / 4)), (complex(inf, nan), complex(inf, nan)),
    ],
    "atanh": [
        (complex(0, nan), complex(0, nan)), (complex(1, 0), complex(inf, 0)),
        (complex(1, inf), complex(0, pi / 2)), (complex(inf, nan), complex(0, nan)),
    ],
    "acos": [
        (complex(0, nan), complex(pi / 2, nan)), (complex(1, inf), complex(pi / 2, -inf)),
        (complex(-inf, 1), complex(pi, -inf)), (complex(inf, 1), complex(0, -inf)),
        (complex(-inf, inf), complex(3 * pi / 4, -inf)),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("op", SPECIAL)
def test_special_cases(op: str, name: str) -> None:
    operands, wanted = (np.array(part) for part in zip(*SPECIAL[op], strict=True))
    got = getattr(tb, op)(tb.asarray(operands, dtype=name, device="opencl")).numpy()
    for actual, exact in ((got.real, np.abs(wanted.real)), (got.imag, np.abs(wanted.imag))):
        size = np.where(np.isfinite(exact), exact, 0)
        assert_within(np.abs(actual), exact, gamma(2, name) * size, f"{operands}")
    decided = np.isfinite(operands) & ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(got.imag)[decided], np.signbit(wanted.imag)[decided])
    # The functions commute with conjugation, which fixes the sides of their cuts.
    mirrored = getattr(tb, op)(tb.asarray(operands.conj()[decided], dtype=name, device="opencl")).numpy()
    np.testing.assert_array_equal(mirrored, got.conj()[decided])


@pytest.mark.parametrize("name", DTYPES)
def test_large_and_small_numbers_neither_overflow_nor_vanish(name: str) -> None:
    top = np.finfo(name).max
    tiny = np.finfo(name).smallest_normal
    x = tb.asarray(np.array([complex(top, top), complex(tiny, tiny), complex(-top, tiny)]), dtype=name,
                   device="opencl")  # fmt: skip
    roots = tb.sqrt(x).numpy().astype("c16")
    exact = np.sqrt(np.array([complex(top, top), complex(tiny, tiny), complex(-top, tiny)]) / 4) * 2
    assert_within(np.abs(roots), np.abs(exact), gamma(8, name) * np.abs(exact))
    assert np.isfinite(tb.log(x).numpy()).all()
    assert np.isfinite(tb.asinh(x).numpy()).all()
    assert_within((x / x).numpy()[2], 1, gamma(4, name))


@pytest.mark.parametrize("name", DTYPES)
def test_what_moves_adds_and_chooses(name: str) -> None:
    rng = np.random.default_rng(0)
    a, b = ((rng.normal(size=(70, 50)) + 1j * rng.normal(size=(70, 50))).astype(name) for _ in range(2))
    x, y = tb.asarray(a, device="opencl"), tb.asarray(b, device="opencl")
    np.testing.assert_array_equal(tb.concat([x[::2].T, y[::-2].T], axis=1).numpy(),
                                  np.concatenate([a[::2].T, b[::-2].T], 1))  # fmt: skip
    wide, other = a.astype("c16"), b.astype("c16")  # NumPy is as far off in complex128
    for axis in (None, 0, 1):
        bound = 2 * of_sum(a, axis, name)
        assert_within(tb.sum(x, axis=axis).numpy(), wide.sum(axis), bound)
        count = a.size // np.size(bound)
        assert_within(tb.mean(x, axis=axis).numpy(), wide.mean(axis), bound / count)
    product = wide[:5].prod(0)
    assert_within(tb.prod(x[:5], axis=0).numpy(), product, 2 * gamma(4 * 4, name) * abs(product))
    sums = 2 * gamma(50, name) * abs(a).cumsum(1)
    assert_within(tb.cumulative_sum(x, axis=1).numpy(), wide.cumsum(1), sums)
    assert_within((x @ y.T).numpy(), wide @ other.T, 2 * of_product(a, b.T, name))
    assert_within((x * 2.5 + 1j).numpy(), wide * 2.5 + 1j, 2 * gamma(2, name) * (abs(a) * 2.5 + 1))
    np.testing.assert_array_equal(tb.where(tb.real(x) > 0, x, y).numpy(), np.where(a.real > 0, a, b))
    np.testing.assert_array_equal((x == y).numpy(), a == b)
    np.testing.assert_array_equal(tb.astype(tb.real(x), x.dtype).numpy(), a.real.astype(name))
    np.testing.assert_array_equal(tb.astype(x[:1] * 0, tb.bool).numpy(), np.zeros((1, 50), bool))
    full = tb.full((3,), 1 - 2j, dtype=name, device="opencl").numpy()
    np.testing.assert_array_equal(full, np.full(3, 1 - 2j, name))


@pytest.mark.parametrize("name", DTYPES)
def test_products_by_constants_with_a_part_of_zero(name: str) -> None:
    values = (1.0, -2.0, 0.0, -0.0, inf, nan)
    array = np.array([complex(a, b) for a in values for b in values], name)
    x = tb.asarray(array, device="opencl")
    factors = [complex(inf, 0), complex(2, 0), complex(0, -inf), 0j, complex(-0.0, -0.0), 1j]
    for operand in (tb.real(x), x):
        for got, factor in zip(tb.compile(lambda x: [x * c for c in factors])(operand), factors, strict=True):
            for part in (tb.real, tb.imag):
                a, b = (part(z).numpy() for z in (got, operand * factor))
                np.testing.assert_array_equal(a, b)
                number = ~np.isnan(b)
                np.testing.assert_array_equal(np.signbit(a)[number], np.signbit(b)[number])
