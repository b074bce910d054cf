"""Products of narrow numbers with factors, and floats of 8 bits, on every device that has them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorbus as tb
from tensorbus.errors import DtypeError, ShapeError

from error_bounds import assert_within, gamma

NARROW: dict[str, Any] = {
    "int8": np.int8, "float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip


def drawn(device: str, dtype: str, shape: tuple[int, ...], rng: np.random.Generator) -> tuple[Any, Any]:
    x = rng.integers(-8, 9, shape).astype(NARROW[dtype])
    return tb.asarray(x, device=device), x.astype("f8")


SCALES = [((), ()), ((1,), (1, 1)), ((6, 1), (5,)), ((3, 6, 1), (3, 1, 5))]
every_dtype = pytest.mark.parametrize("dtype", NARROW)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize(
    "scales", [((), ()), ((1,), (1, 1)), ((6, 1), (5,)), ((3, 6, 1), (3, 1, 5))], ids=str
)
@every_dtype
def test_factors_belong_to_the_whole_or_to_rows_and_columns(
    device: str, dtype: str, scales: tuple[tuple[int, ...], ...], compiled: bool
) -> None:
    rng = np.random.default_rng(0)
    (x, a), (y, b) = drawn(device, dtype, (3, 6, 40), rng), drawn(device, dtype, (40, 5), rng)
    factors = [rng.uniform(0.5, 2, shape).astype("f4") for shape in scales]
    row = rng.standard_normal(5).astype("f4")
    call: Any = tb.compile(tb.scaled_matmul) if compiled else tb.scaled_matmul
    result = call(x, y, *[tb.asarray(f, device=device) for f in factors], tb.asarray(row, device=device))
    assert result.dtype == tb.float32
    scaled = a @ b * factors[0] * factors[1]  # sums of whole numbers
    assert_within(result.numpy(), scaled + row, gamma(4, "float32") * (abs(scaled) + abs(row)))


@every_dtype
def test_the_result_rounds_once(device: str, dtype: str) -> None:
    rng = np.random.default_rng(1)
    (x, a), (y, b) = drawn(device, dtype, (16, 48), rng), drawn(device, dtype, (48, 32), rng)
    result = tb.scaled_matmul(x, y, 0.25, 2.0, dtype="float16")
    np.testing.assert_array_equal(result.numpy(), (a @ b * 0.5).astype("f2"))


@every_dtype
def test_gradients_flow_to_the_factors_and_the_bias(device: str, dtype: str) -> None:
    rng = np.random.default_rng(2)
    (x, a), (y, b) = drawn(device, dtype, (4, 8), rng), drawn(device, dtype, (8, 3), rng)
    scale = tb.asarray([[1.0], [2.0], [0.5], [1.5]], device=device).requires_grad_()
    bias = tb.zeros((3,), device=device).requires_grad_()
    tb.scaled_matmul(x, y, scale, 0.5, bias).sum().backward()
    np.testing.assert_array_equal(scale.grad.numpy()[:, 0], (a @ b).sum(1) * 0.5)
    assert bias.grad.tolist() == [4.0] * 3


@every_dtype
def test_it_maps_over_examples(device: str, dtype: str) -> None:
    rng = np.random.default_rng(3)
    (x, a), (y, b) = drawn(device, dtype, (2, 4, 8), rng), drawn(device, dtype, (8, 3), rng)
    result = tb.vmap(lambda one: tb.scaled_matmul(one, y, 2.0, 1.0))(x)
    np.testing.assert_array_equal(result.numpy(), a @ b * 2)


def test_what_does_not_fit_is_refused(device: str) -> None:
    x, one = tb.zeros((2, 3), dtype="int8", device=device), tb.ones((), device=device)
    y = tb.zeros((3, 4), dtype="int8", device=device)
    with pytest.raises(ShapeError, match=r"shapes \(2, 3\) and \(2, 3\) do not fit"):
        tb.scaled_matmul(x, x, one, one)
    with pytest.raises(ShapeError, match=r"scale_y of shape \(3,\) does not broadcast to \(1, 4\)"):
        tb.scaled_matmul(x, y, one, tb.ones((3,), device=device))
    with pytest.raises(ShapeError, match=r"bias of shape \(2,\)"):
        tb.scaled_matmul(x, y, one, one, tb.ones((2,), device=device))
    with pytest.raises(DtypeError, match="y has dtype float32; it takes int8"):
        tb.scaled_matmul(x, y.to("float32"), one, one)
    with pytest.raises(DtypeError, match="no result in int32; dtype must be one of float32"):
        tb.scaled_matmul(x, y, one, one, dtype="int32")


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_floats_of_8_bits_round_as_ml_dtypes_does(device: str, name: str) -> None:
    every = np.arange(256, dtype="u1").view(NARROW[name])
    with np.errstate(invalid="ignore"):
        plain = every.astype("f4")
        between = ((plain[:, None] + plain[None, :]) / 2).ravel()
        near = np.concatenate([between, np.nextafter(between, np.inf), np.nextafter(between, -np.inf)])
    actual = np.concatenate([near, [1e30, -1e30, 1e-30, -1e-30, 464, 465, 61439, 61440, np.inf]]).astype("f4")
    with np.errstate(all="ignore"):
        expected = actual.astype(NARROW[name]).astype("f4")
    got = tb.asarray(actual, device=device).to(name).to("float32").numpy()
    np.testing.assert_array_equal(got, expected)
    finite = expected == expected
    np.testing.assert_array_equal(np.signbit(got[finite]), np.signbit(expected[finite]))
    np.testing.assert_array_equal(tb.asarray(every, device=device).to("float32").numpy(), plain)
