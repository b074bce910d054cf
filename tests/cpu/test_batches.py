"""Sums, products, means and spreads of a batch are those of its parts, bit for bit, whoever computes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorbus as tb
from tensorbus_cpu.eager import row_stable_sum as sums
from tensorbus_cpu.eager.row_stable_sum import SEQUENTIAL_PRODUCT_LENGTH, reduction_layout

DTYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32, "float64": np.float64}
LENGTHS = (2, 7, 8, 12, 100, 129, 1000, SEQUENTIAL_PRODUCT_LENGTH + 1, 30_000)
OPS: dict[str, Callable[..., Any]] = {
    "sum": tb.sum,
    "mean": tb.mean,
    "var": tb.var,
    "std": tb.std,
    "prod": tb.prod,
}
needs_compiler = pytest.mark.skipif(
    tb.device("cpu").properties.extra.get("compiler") is None, reason="there is no C compiler"
)


def numbers(shape: tuple[int, ...], dtype: str, op: str = "sum") -> Any:
    """Return what no order but the same adds up to the same; products of it stay finite."""
    drawn = np.random.default_rng(len(shape)).standard_normal(shape)
    return (drawn if op != "prod" else 1 + 0.01 * drawn).astype(DTYPES[dtype])


def tensor(a: Any) -> Any:
    return tb.asarray(a, device="cpu", copy=False)


def bits(x: Any) -> Any:
    a = np.ascontiguousarray(x.numpy())
    return a.view(f"u{a.dtype.itemsize}")


def parts(count: int) -> Iterator[slice]:
    """Yield parts of a batch: single rows, a few, many."""
    ends = sorted({0, 1, 2, min(5, count), count // 3, count - 1, count})
    yield from map(slice, ends, ends[1:])


def pairwise(rows: Any) -> Any:
    """Return the sums of rows in the documented order."""
    n = rows.shape[-1]
    if n > 128:
        half = n // 2 - n // 2 % 8
        return pairwise(rows[..., :half]) + pairwise(rows[..., half:])
    if n < 8:
        total, rest = rows[..., 0], rows[..., 1:]
    else:
        ways = rows[..., :8].copy()
        for k in range(8, n - n % 8, 8):
            ways += rows[..., k : k + 8]
        while ways.shape[-1] > 1:
            ways = ways[..., ::2] + ways[..., 1::2]
        total, rest = ways[..., 0], rows[..., n - n % 8 :]
    for k in range(rest.shape[-1]):
        total = total + rest[..., k]
    return total


@needs_compiler
@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", OPS)
def test_a_batch_is_its_parts(op: str, dtype: str, n: int) -> None:
    count = max(150_000 // n, 7)
    for axis in (0, 1):
        a = numbers((n, count) if axis == 0 else (count, n), dtype, op)
        whole = bits(OPS[op](tensor(a), axis=axis))
        for part in parts(count):
            view = a[:, part] if axis == 0 else a[part]
            for operand in (view, np.ascontiguousarray(view), np.asfortranarray(view)):
                np.testing.assert_array_equal(bits(OPS[op](tensor(operand), axis=axis)), whole[part])


@needs_compiler
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((40, 90, 80), 1), ((300, 11, 50), 1), ((20_000, 3, 4), 1), ((40, 90, 80), (0, 2)),
        ((9, 7, 60, 50), (0, 2, 3)), ((6, 40, 9, 80), (1, 3)), ((2, 3, 4, 5, 6, 7, 60), (1, 3, 5)),
        ((2, 3, 4, 5, 6, 7, 60), (0, 2, 4, 6)),
    ],
)  # fmt: skip
@pytest.mark.full
def test_batches_of_several_axes(shape: tuple[int, ...], axis: Any, dtype: str) -> None:
    axes = (axis,) if isinstance(axis, int) else axis
    for op in ("sum", "prod"):
        a = numbers(shape, dtype, op)
        for k in set(range(len(shape))) - set(axes):
            if shape[k] > 40:
                continue
            alone = [OPS[op](tensor(a.take([i], k)), axis=axis, keepdims=True) for i in range(shape[k])]
            whole = OPS[op](tensor(a), axis=axis, keepdims=True)
            np.testing.assert_array_equal(bits(whole), bits(tb.concat(alone, axis=k)))


@needs_compiler
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [*LENGTHS, 300_001])
def test_rows_are_added_pairwise(n: int, dtype: str) -> None:
    """Whichever way they lie: side by side, across, with steps, backwards."""
    a = numbers((3, 2 * n), dtype)
    wide = np.promote_types(np.float32, a.dtype) if dtype != "bfloat16" else np.dtype(np.float32)
    every, some = a[:, :n], a[:, ::2]
    for rows, layouts in (
        (every, (every, every.T.copy().T)),
        (some, (some,)),
        (a[:, n - 1 :: -1], (a[:, n - 1 :: -1],)),
    ):
        want = pairwise(rows.astype(wide)).astype(a.dtype)
        for actual in layouts:
            np.testing.assert_array_equal(
                bits(tb.sum(tensor(actual), axis=1)), want.view(f"u{want.dtype.itemsize}")
            )


@pytest.mark.full
@needs_compiler
def test_threads_change_nothing() -> None:
    cases = [((1 << 22) + 5, 1), (3, 1_000_003), (700_001, 6), (5000, 900)]
    before = tb.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3):
            tb.set_num_threads(threads)
            results.append([
                bits(OPS[op](tensor(numbers(shape, "float32", op)), axis=axis))
                for shape in cases for axis in (0, 1) for op in ("sum", "prod")
            ])  # fmt: skip
    finally:
        tb.set_num_threads(before)
    for one, *others in zip(*results, strict=True):
        for other in others:
            np.testing.assert_array_equal(one, other)


def test_layouts_are_walked_in_the_order_of_memory() -> None:
    a = np.zeros((4, 5, 6, 7), np.float32)
    result = reduction_layout(a.shape, a.strides, 4, (0, 2))
    assert result is not None
    assert (result.added, result.outer, result.columns, result.left) == (
        ((4, 210), (6, 7)),
        ((5, 42),),
        7,
        (1, 3),
    )
    turned = reduction_layout(a.T.shape, a.T.strides, 4, (0, 1))
    assert turned is not None
    assert (turned.added, turned.outer, turned.columns, turned.left) == (((42, 1),), ((20, 42),), 0, (3, 2))
    deep = np.zeros((2,) * 8, np.float32)
    assert reduction_layout(deep.shape, deep.strides, 4, (0, 2, 4, 6)) is None


@needs_compiler
@pytest.mark.parametrize("n", [7, 12, 129, 5000])
def test_complex_numbers_are_added_part_by_part(n: int) -> None:
    for dtype, real in (("complex64", "float32"), ("complex128", "float64")):
        parts = numbers((30, n, 3, 2), real)
        a = parts.view(dtype)[..., 0]
        for actual in (a, a[::-1], a.T.copy().T, np.broadcast_to(a[:, :, :1], a.shape)):
            for axis in (0, 1, 2, (0, 1)):
                want = [
                    tb.sum(tensor(part.copy(order="K")), axis=axis).numpy()
                    for part in (actual.real, actual.imag)
                ]
                for keepdims in (False, True):
                    got = tb.sum(tensor(actual), axis=axis, keepdims=keepdims).numpy()
                    np.testing.assert_array_equal(got.reshape(want[0].shape), want[0] + 1j * want[1])
        assert tb.sum(tensor(a)).shape == ()


def test_sums_of_nothing_and_of_one() -> None:
    for dtype in ("float32", "float64", "bfloat16"):
        x = tb.zeros((3, 0, 1), dtype=dtype, device="cpu")
        assert tb.sum(x, axis=1).tolist() == [[0.0]] * 3
        assert tb.prod(x, axis=1).tolist() == [[1.0]] * 3
        assert tb.sum(x, axis=2).shape == (3, 0)
        assert tb.sum(tb.full((), 2.5, dtype=dtype, device="cpu")).item() == 2.5


@pytest.mark.full
@needs_compiler
@pytest.mark.parametrize("op", ["sum", "prod"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_who_adds_light_arrays_changes_nothing(op: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy serves the first calls of a kind, C those after them."""
    monkeypatch.setattr(sums, "NUMPY_FIRST_CALLS", 2)
    for shape, axis in (((1021, 37), 0), ((3, 1500, 8), 1), ((40, 5, 150), (0, 2))):
        x = tensor(numbers(shape, dtype, op))
        results = [bits(OPS[op](x, axis=axis)) for _ in range(4)]
        for other in results[1:]:
            np.testing.assert_array_equal(other, results[0])
