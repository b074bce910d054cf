"""Elementwise composites: many in generated kernels, few and without a compiler in NumPy, all alike."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorbus as tb
from tensorbus.dtypes import definition as dt
from tensorbus.ops import lazy_families
from tensorbus.ops.definition import table
from tensorbus_cpu.compiler import NATIVE
from tensorbus_cpu.eager import kernels_composite as composites
from tensorbus_cpu.eager import kernels_native as large
from tensorbus_cpu.eager.kernels_native import SLOW_IN_NUMPY_SIZE
from tensorbus_cpu.kernels import TABLE

from error_bounds import assert_within, gamma

FLOATS = ("float32", "float64", "float16", "bfloat16")


def operands(name: str, dtype: str) -> list[Any]:
    rng = np.random.default_rng(3)
    native = np.dtype(getattr(ml_dtypes, dtype, dtype) if dtype == "bfloat16" else dtype)
    results = []
    for _ in table[name].operands:
        x = rng.standard_normal(SLOW_IN_NUMPY_SIZE) * 3
        x[:600] = np.resize([np.inf, -np.inf, np.nan, 0.0, 1.0, -1.0, 40.0], 600)[rng.permutation(600)]
        results.append(
            x.astype(native) if native.kind not in "iu" else rng.integers(-20, 20, SLOW_IN_NUMPY_SIZE, native)
        )
    return results


def is_float(name: str) -> bool:
    return dt.float32 in table[name].dtypes


def test_all_composites_have_a_kernel() -> None:
    lazy_families.load_all()
    own = {op.name for op in table if op.family == "elementwise" and op.decompose is not None}
    assert own - {"log10"} == set(composites.NAMES)


@pytest.mark.parametrize("name", composites.NAMES)
def test_many_elements_give_what_few_give(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lazy_families.load_all()
    for dtype in FLOATS if is_float(name) else ("int32", "int64"):
        arrays = operands(name, dtype)
        op, step = table[name], SLOW_IN_NUMPY_SIZE // 4
        with np.errstate(all="ignore"):
            many = op(*[tb.asarray(a, device="cpu") for a in arrays]).numpy()
            few = [
                op(*[tb.asarray(a[k : k + step], device="cpu") for a in arrays]).numpy()
                for k in range(0, SLOW_IN_NUMPY_SIZE, step)
            ]
        wanted = np.concatenate(few)
        assert many.dtype == wanted.dtype
        if dtype in FLOATS:  # what cancels, as digamma and lgamma do beside their zeros, is about 1
            assert_within(many, wanted, gamma(2, dtype) * (1 + np.abs(wanted.astype("f8"))))
        else:
            np.testing.assert_array_equal(many, wanted)


def test_numbers_among_the_operands() -> None:
    for size in (5, SLOW_IN_NUMPY_SIZE):
        a = np.linspace(-3, 3, size).astype(np.float32)
        x = tb.asarray(a, device="cpu")
        assert np.array_equal(tb.clip(x, -1, 0.5).numpy(), np.clip(a, np.float32(-1), np.float32(0.5)))
        assert np.array_equal(tb.heaviside(x, float("nan")).numpy()[[0, -1]], [0, 1])
        leaky = tb.nn.functional.leaky_relu(x, 0.5).numpy()
        assert np.array_equal(leaky, np.where(a > 0, a, a * np.float32(0.5)))
        assert tb.fmod(7, tb.asarray(np.full(size, 4), device="cpu")).tolist() == [3] * size


@pytest.mark.parametrize("shape", [(), (0,), (3, 1, 2)])
def test_shapes(shape: tuple[int, ...]) -> None:
    x = tb.full(shape, 2.0, device="cpu")
    for got in (tb.relu(x), tb.silu(x), tb.lerp(x, x, 0.5), tb.hypot(x, tb.ones((4, *shape), device="cpu"))):
        assert got.shape in (shape, (4, *shape))
        assert got.dtype == tb.float32


def test_a_misplaced_array_and_a_broadcast_one() -> None:
    raw = np.zeros(4 * SLOW_IN_NUMPY_SIZE + 1, np.uint8)
    a = raw[1:].view(np.float32)
    a[:] = np.arange(SLOW_IN_NUMPY_SIZE) - 5
    x = tb.asarray(a, device="cpu", copy=False)
    assert np.array_equal(tb.relu(x).numpy(), np.maximum(a, 0))
    wide = tb.broadcast_to(tb.asarray([-1.0, 2.0], device="cpu"), (SLOW_IN_NUMPY_SIZE, 2))
    assert np.array_equal(tb.relu(wide).numpy(), np.tile(np.float32([0, 2]), (SLOW_IN_NUMPY_SIZE, 1)))


def test_without_a_compiler_numpy_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "_generated", dict)
    (kernel,) = TABLE["silu"]
    a = np.linspace(-4, 4, 2 * SLOW_IN_NUMPY_SIZE).astype(np.float32)
    call = large.Call(
        op="silu", dtypes=(dt.float32,), shapes=None, attrs={}, out_dtype=dt.float32, out_shape=None, index=0,
        weak=(False,),
    )  # fmt: skip
    assert kernel.prepare is not None
    np.testing.assert_allclose(kernel.prepare(call)(a), a / (1 + np.exp(-a)), gamma(8, "float32"))


def test_gradients_are_those_of_the_decomposition() -> None:
    for size in (7, SLOW_IN_NUMPY_SIZE):
        a = np.linspace(-2.0, 2.0, size)
        x = tb.asarray(a, device="cpu").requires_grad_()
        tb.nn.functional.elu(x).sum().backward()
        assert x.grad is not None
        np.testing.assert_allclose(x.grad.numpy(), np.where(a > 0, 1, np.exp(a)), gamma(4, "float64"))


@pytest.mark.skipif(NATIVE.compiler() is None, reason="NumPy computes every power by itself")
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int32", "uint8"])
def test_squares_are_products(dtype: str) -> None:
    numbers = np.arange(250.0) if dtype[0] == "u" else np.linspace(-9, 9, 300)
    x = tb.asarray(numbers, device="cpu").to(dtype)
    for y in (x, tb.tile(x, (600,))):
        assert (y**2).dtype == x.dtype
        assert bool(tb.all(y**2 == y * y))
        assert bool(tb.all(y**2.0 == y * y)) or dtype in ("int32", "uint8")
