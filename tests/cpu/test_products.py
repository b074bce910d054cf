"""Products of 16-bit floats and bytes: by MKL where it is installed, by BLAS without it; and of integers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorbus as tb
from tensorbus.backend_api import Call, dtypes
from tensorbus_cpu.gemm import kernels_matmul as products
from tensorbus_cpu.gemm import mkl_gemm as mkl
from tensorbus_cpu.gemm import packed_gemm as panels

from error_bounds import assert_within, of_product, stored

_ALL = frozenset().union(*(worth for _, worth, _ in mkl.PRODUCTS.values()))
_SHAPES = (
    ((70, 90), (90, 600)),
    ((3, 64, 65), (3, 65, 66)),
    ((64, 65), (5, 65, 66)),
    ((1030, 33), (33, 530)),
    ((3, 2, 40, 65), (65, 66)),
    ((12, 40, 65), (12, 65, 66)),
)


@pytest.fixture(params=["own", "mkl"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Let MKL compute, whatever the processor is worth, or let it not."""
    if request.param == "mkl" and mkl.library() is None:
        pytest.skip("the mkl package is not installed: pip install tensorbus-cpu[mkl]")
    monkeypatch.setattr(panels, "gemm", lambda call: None)
    monkeypatch.setattr(mkl, "instructions", lambda: _ALL if request.param == "mkl" else frozenset())
    with tb.device("cpu"):
        yield request.param


def _product(x: Any, y: Any, way: str) -> Any:
    """Multiply, and see that MKL has, or has not, been asked."""
    kind = dtypes.dtype(x.dtype.name)
    out = (*np.broadcast_shapes(x.shape[:-2], y.shape[:-2]), x.shape[-2], y.shape[-1])
    call = Call(
        op="matmul", dtypes=(kind, kind), shapes=(x.shape, y.shape), attrs={}, out_dtype=kind, out_shape=out,
        index=0,
    )  # fmt: skip
    assert (mkl.gemm(call) is not None) == (way == "mkl")
    return products.matmul(call, np.matmul)(x, y)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("shapes", _SHAPES)
def test_products_of_bytes_are_exact_and_wrap(way: str, dtype: str, shapes: Any) -> None:
    info, rng = np.iinfo(dtype), np.random.default_rng(0)
    x, y = (rng.integers(info.min, info.max + 1, shape).astype(dtype) for shape in shapes)
    right = np.matmul(x.astype(np.int64), y.astype(np.int64)).astype(dtype)
    np.testing.assert_array_equal(_product(x, y, way), right)


@pytest.mark.parametrize("extreme", [(-128, -128), (-128, 127), (127, 127)])
def test_products_of_extreme_bytes_do_not_saturate(way: str, extreme: tuple[int, int]) -> None:
    x, y = np.full((64, 4097), extreme[0], np.int8), np.full((4097, 64), extreme[1], np.int8)
    x[:, ::3], y[::5] = 1, -1
    right = np.matmul(x.astype(np.int64), y.astype(np.int64)).astype(np.int8)
    np.testing.assert_array_equal(_product(x, y, way), right)


@pytest.mark.parametrize("shapes", _SHAPES)
def test_products_of_bfloat16_round_once(way: str, shapes: Any) -> None:
    rng = np.random.default_rng(1)
    x, y = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in shapes)
    wide = [v.astype(np.float64) for v in (x, y)]
    right, size = np.matmul(*wide), np.matmul(*(np.abs(v) for v in wide))
    actual = _product(x, y, way)
    assert actual.dtype == ml_dtypes.bfloat16
    assert (np.abs(actual.astype(np.float64) - right) <= np.abs(right) * 2.0**-8 + size * 2.0**-20).all()


@pytest.mark.parametrize(
    "turn",
    [
        lambda v: np.ascontiguousarray(v.T).T,
        lambda v: np.repeat(np.repeat(v, 2, 0), 3, 1)[::2, ::3],
        lambda v: np.concatenate([v, v], 1)[:, : v.shape[1]],
    ],
    ids=["transposed", "with gaps", "a part"],
)
def test_operands_may_lie_in_any_order(way: str, turn: Callable[[Any], Any]) -> None:
    rng = np.random.default_rng(2)
    x, y = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((80, 70), (70, 90)))
    right = np.matmul(x.astype(np.int64), y.astype(np.int64)).astype(np.int8)
    np.testing.assert_array_equal(_product(turn(x), turn(y), way), right)


def test_a_tensor_product_of_bytes_is_that_of_the_reference(way: str) -> None:
    rng, n = np.random.default_rng(3), 97 if way == "own" else 98  # a plan is kept for each shape
    x, y = (rng.integers(-128, 128, (n, n)).astype(np.int8) for _ in range(2))
    right = np.matmul(x.astype(np.int64), y.astype(np.int64)).astype(np.int8)
    np.testing.assert_array_equal((tb.asarray(x) @ tb.asarray(y)).numpy(), right)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
@pytest.mark.parametrize(
    "shapes", [*_SHAPES, ((3, 4), (4, 5)), ((1, 1000), (1000, 70)), ((0, 70), (70, 300))]
)
def test_products_of_integers_wrap(dtype: str, shapes: Any) -> None:
    info, rng = np.iinfo(dtype), np.random.default_rng(2)
    x, y = (rng.integers(info.min, info.max, shape, dtype, endpoint=True) for shape in shapes)
    for a, b in ((x, y), (x[..., ::-1], y[..., ::-1, :]), (x, np.ascontiguousarray(y.mT).mT)):
        result = tb.asarray(a, device="cpu", copy=False) @ tb.asarray(b, device="cpu", copy=False)
        np.testing.assert_array_equal(result.numpy(), np.matmul(a, b))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_of_many_matrices_are_those_of_one(dtype: str) -> None:
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((4, 3, 5, 40)).astype(dtype), rng.standard_normal((40, 30)).astype(dtype)
    for a in (x, x.transpose(1, 0, 2, 3), x[:, :, ::2], x[..., ::-1], x[:0]):
        result = tb.asarray(a, device="cpu", copy=False) @ tb.asarray(y, device="cpu")
        assert result.shape == (*a.shape[:-1], 30)
        wide = np.matmul(a.astype("f8"), y.astype("f8")) if dtype == "float32" else np.matmul(a, y)
        assert_within(result.numpy(), wide, 2 * of_product(a, y, dtype))  # one of NumPy's in float64


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize(
    "shapes", [((40, 50), (50, 60)), ((3, 40, 50), (3, 50, 60)), ((3, 40, 50), (50, 60))]
)
def test_products_of_floats_of_8_bits_are_of_floats(dtype: str, shapes: Any) -> None:
    rng = np.random.default_rng(4)
    x, y = (tb.asarray(rng.standard_normal(s).astype("f4"), device="cpu").to(dtype) for s in shapes)
    a, b = (v.numpy().astype("f8") for v in (x, y))
    actual = (x @ y).numpy()
    assert actual.dtype == x.numpy().dtype
    assert_within(actual.astype("f8"), a @ b, stored(a @ b, dtype) + of_product(a, b, "float32"))
