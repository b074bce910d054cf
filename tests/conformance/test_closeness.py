"""``isclose`` and ``allclose`` on every device, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorbus as tb

INF, NAN = float("inf"), float("nan")
X = [0.0, -0.0, 1.0, 1.0, 1.0, -2.0, INF, INF, -INF, INF, NAN, NAN, 1e-9, 3e38, 0.0]
Y = [-0.0, 1e-8, 1.00001, 1.0001, 1.0, 2.0, INF, -INF, -INF, 1.0, NAN, 1.0, 0.0, -3e38, NAN]


def t(a: Any, device: str, dtype: str | None = None) -> tb.Tensor:
    return tb.asarray(a, dtype=dtype, device=device)


@pytest.mark.parametrize("equal_nan", [False, True])
@pytest.mark.parametrize("tolerances", [(), (0.0,), (0.0, 0.0), (1e-3, 0.0), (0.0, 0.1)])
def test_floats(device: str, tolerances: tuple[float, ...], equal_nan: bool) -> None:
    x, y = (np.asarray(a, np.float32) for a in (X, Y))
    with np.errstate(all="ignore"):
        expected = np.isclose(x.astype(float), y.astype(float), *tolerances, equal_nan=equal_nan)
    actual = tb.isclose(t(x, device), t(y, device), *tolerances, equal_nan=equal_nan)
    assert (actual.tolist(), actual.dtype) == (expected.tolist(), tb.bool)
    assert tb.allclose(t(x, device), t(y, device), *tolerances, equal_nan).tolist() is bool(expected.all())


@pytest.mark.parametrize(
    ("dtype", "x", "y", "atol", "expected"),
    [
        ("int8", [127, -128, 5], [-128, 127, 7], 2.0, [False, False, True]),
        ("int8", [127, -128], [-128, 127], 255.0, [True, True]),
        ("uint8", [0, 255, 3], [255, 0, 4], 1.0, [False, False, True]),
        ("int64", [2**53, 2**62, -(2**63)], [2**53 + 1, 2**62 + 3, 2**63 - 1], 2.0, [True, False, False]),
        ("uint64", [2**64 - 1, 0], [2**64 - 4, 1], 2.0, [False, True]),
        ("bool", [True, True], [True, False], 0.5, [True, False]),
        ("float16", [1.0, 60000.0], [1.001, -60000.0], 0.0015, [True, False]),
        ("bfloat16", [1.0, 2.0], [1.0, 2.0625], 0.05, [True, False]),
        ("float8_e4m3fn", [1.0, 2.0], [1.125, 2.0], 0.125, [True, True]),
    ],
)
def test_other_dtypes(device: str, dtype: str, x: Any, y: Any, atol: float, expected: list[bool]) -> None:
    actual = tb.isclose(t(x, device, dtype), t(y, device, dtype), 0.0, atol)
    assert actual.tolist() == expected


def test_complex_numbers(device: str) -> None:
    x, y = (
        t([1 + 1j, 1 + 1j, 3.0], device, "complex64"),
        t([1 + 1.000001j, 1 + 1.1j, 3.0], device, "complex64"),
    )
    assert x.isclose(y).tolist() == [True, False, True]


def test_numbers_and_shapes(device: str) -> None:
    x = t([[1.0, 2.0], [3.0, 4.0]], device)
    assert tb.isclose(x, 2).tolist() == tb.isclose(2.0, x).tolist() == [[False, True], [False, False]]
    assert tb.isclose(x, x[0]).tolist() == [[True, True], [False, False]]
    assert tb.isclose(t([1, 2], device), 1.5, atol=0.6).tolist() == [True, True]
    assert tb.isclose(t([1, 2], device), t([1.0, 2.5], device)).tolist() == [True, False]
    assert tb.isclose(t([True, False], device), True).tolist() == [True, False]
    assert tb.isclose(x[0], np.float64(2)).tolist() == [False, True]
    assert tb.allclose(t([], device), t([], device)).tolist() is True
    if tb.allclose(x / 3 * 3, x) and not x.allclose(x + 1):
        return
    raise AssertionError("a result that Python can ask")


def test_gradients_do_not_flow(device: str) -> None:
    x = t([1.0, 2.0], device).requires_grad_()
    assert not tb.isclose(x * 2, x).requires_grad


def test_refused(device: str) -> None:
    x = t([1.0], device)
    with pytest.raises(tb.ArgumentError, match=r"tolerances must be >= 0, got rtol=-1 and atol=1e-08"):
        tb.isclose(x, x, -1)
    with pytest.raises(tb.DtypeError, match="at least one operand must be a tensor"):
        tb.allclose(1.0, 1.0)
    with pytest.raises(tb.ShapeError):
        tb.isclose(t([1.0, 2.0], device), t([1.0, 2.0, 3.0], device))
