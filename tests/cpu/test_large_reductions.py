"""How large reductions are shared out: every layout and odd lengths, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus_cpu.eager.kernels_reduction import shares

from error_bounds import assert_within, gamma, of_sum

LAYOUTS = {
    "one row": (((1 << 18) + 77,), None), "few rows": ((3, 100_003), 1), "rows of 256": ((1030, 256), 1),
    "rows of 257": ((1030, 257), 1), "rows of 319": ((900, 319), -1), "two axes": ((40, 90, 80), (1, 2)),
    "between": ((5, 4000, 17), 1), "first": ((9001, 33), 0), "first, wide": ((67, 5001), 0),
    "of length 1": ((1, 600, 1, 500, 1), (1, 2)), "all but one": ((1, 600, 500), (0, 2)),
}  # fmt: skip


def numbers(shape: tuple[int, ...], dtype: str) -> Any:
    rng = np.random.default_rng(len(shape))
    whole = rng.integers(-99 if dtype != "uint8" else 0, 100, shape)
    return rng.standard_normal(shape).astype(dtype) if dtype.startswith("float") else whole.astype(dtype)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint8", "int64"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout(layout: str, dtype: str, turned: bool) -> None:
    shape, axis = LAYOUTS[layout]
    a = numbers(shape, dtype)
    if turned:
        a = np.asfortranarray(a)
    a.flags.writeable = False
    x = tb.asarray(a, device="cpu", copy=False)
    for name in ("max", "min"):
        got = getattr(tb, name)(x, axis=axis, keepdims=True)
        np.testing.assert_array_equal(got.numpy(), getattr(np, name)(a, axis, keepdims=True))
    got, wide = tb.sum(x, axis=axis).numpy(), a.astype("f8" if a.dtype.kind == "f" else "i8")
    if a.dtype.kind == "f":
        assert_within(got, wide.sum(axis), 2 * of_sum(a, axis, dtype))  # float64 is its own reference
    else:
        np.testing.assert_array_equal(got, wide.sum(axis))
    if not isinstance(axis, tuple):
        for name in ("argmax", "argmin"):
            np.testing.assert_array_equal(getattr(tb, name)(x, axis=axis).numpy(), getattr(a, name)(axis))


@pytest.mark.parametrize("n", [256, 319, 1024, 1087, 4096])
def test_the_first_nan_of_a_row_wins(n: int) -> None:
    """Wherever it stands: in a lane, in what is left of the last lanes, in any block."""
    a = np.zeros((n, n), np.float32)
    a[np.arange(n), np.arange(n)] = np.nan
    a[:, -1] = np.nan
    a[:, 0] = np.inf
    a[0, 0] = np.nan
    for operand, axis in ((a, 1), (a.T, 0), (a.T.copy(), 0)):
        x = tb.asarray(operand, device="cpu", copy=False)
        np.testing.assert_array_equal(tb.argmax(x, axis=axis).numpy(), np.arange(n))
        np.testing.assert_array_equal(tb.argmin(x, axis=axis).numpy(), np.arange(n))
        assert np.isnan(tb.max(x, axis=axis).numpy()).all()


def test_a_place_is_found_wherever_it_stands() -> None:
    n = 1087
    a = np.full((n, n), -1.5, np.float32)
    a[np.arange(n), np.arange(n)] = 2.0
    for operand, axis in ((a, 1), (a, 0)):
        got = tb.argmax(tb.asarray(operand, device="cpu"), axis=axis)
        np.testing.assert_array_equal(got.numpy(), np.arange(n))


IN_PARTS = gamma(64, "float32")
"""The error of a sum that is added up in parts, and those by twos: not that of its 16 million terms."""


def test_long_sums_stay_accurate() -> None:
    a = np.full(1 << 24, 0.1, np.float32)
    wanted = a.astype(np.float64).sum()
    for shape in ((-1,), (4, -1), (1 << 12, -1), (-1, 64)):
        x = tb.asarray(a.reshape(shape), device="cpu", copy=False)
        assert_within(float(tb.sum(x)), wanted, IN_PARTS * wanted)
        exact = a.astype(np.float64).reshape(shape).sum(0)
        assert_within(tb.sum(x, axis=0).numpy(), exact, IN_PARTS * exact)


def test_what_is_not_packed_is_left_to_others() -> None:
    a = numbers((600, 600), "float32")
    for operand in (a[:, ::2], a[::-1], np.broadcast_to(a[0], (600, 600)), a[:, 1:]):
        x = tb.asarray(operand, device="cpu", copy=False)
        for axis in (0, 1, None):
            assert shares(operand.shape, operand.strides, 4, (0, 1) if axis is None else (axis,)) is None
            np.testing.assert_array_equal(tb.max(x, axis=axis).numpy(), operand.max(axis))
