"""The error of sums: that of blocks on a few levels, however long a sum is, and whatever shape it has.

Adding ``n`` elements one after the other loses up to ``n * u`` (Higham, *Accuracy and Stability of Numerical
Algorithms*, 4.2); ``almost_ones`` come near that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tensorbus as tb

U = 2.0**-24
"""What one rounding to float32 loses at most."""
BLOCK = 32
"""How many elements of a block are added in order; NumPy's pairwise sums have 16 in each of 8 lanes."""
JOINED = 64
"""How many lanes, tasks or work-items are added up beside the blocks."""


def bound(count: int) -> float:
    """Return the error of a sum of ``count`` positive elements, of its size."""
    levels = max(math.ceil(math.log(count, BLOCK)), 1)
    return (levels * BLOCK + JOINED + math.log2(count)) * U


def almost_ones(shape: tuple[int, ...], bits: int) -> np.ndarray:
    """Return elements of which each addition loses as much as it can, once about ``2**bits`` were added."""
    return np.full(shape, 1 + 0.45 * 2.0 ** (bits - 23), np.float32)


@dataclass(frozen=True)
class Case:
    """A function, what it comes to in float64, and how many times the bound its error may be.

    ``columns``: it adds rows to each other, in order where sums are NumPy's, as the reference device's are.
    """

    function: Callable[[Any], Any]
    right: Callable[[np.ndarray], Any]
    times: float = 1
    columns: bool = False

    def limit(self, device: str, shape: tuple[int, int]) -> float:
        """Return the largest error that is right."""
        return self.times * (shape[0] * U if self.columns and device == "refdev" else bound(math.prod(shape)))


def squares(x: Any) -> Any:
    return tb.mean(x * x, axis=0) + tb.mean(x, axis=0)


CASES = {
    "full": Case(tb.sum, np.sum),
    "rows": Case(lambda x: tb.sum(x, axis=1), lambda x: x.sum(1)),
    "columns": Case(lambda x: tb.sum(x, axis=0), lambda x: x.sum(0), columns=True),
    "strided": Case(lambda x: tb.sum(x[::3, ::2]), lambda x: x[::3, ::2].sum()),
    "strided columns": Case(lambda x: tb.sum(x[:, ::2], axis=0), lambda x: x[:, ::2].sum(0), columns=True),
    "transposed": Case(lambda x: tb.sum(x.T, axis=0), lambda x: x.sum(1)),
    "fused": Case(lambda x: tb.sum(tb.sqrt(x) * 2), lambda x: (2 * np.sqrt(x)).sum(), 2),
    "together": Case(squares, lambda x: (x * x).mean(0) + x.mean(0), 2, columns=True),
    "centred": Case(
        lambda x: tb.sum(x / tb.mean(x, axis=1, keepdims=True), axis=1), lambda x: x.sum(1) / x.mean(1), 3
    ),
    "centred columns": Case(
        lambda x: tb.sum(x / tb.mean(x, axis=0, keepdims=True), axis=0), lambda x: x.sum(0) / x.mean(0),
        3, columns=True,
    ),
    "norm": Case(tb.linalg.vector_norm, lambda x: np.sqrt((x * x).sum())),
    "variance": Case(
        lambda x: tb.var(x * (1 - 2.0 * (tb.arange(x.size, device=x.device).reshape(x.shape) % 2))),
        lambda x: (x * (1 - 2.0 * (np.arange(x.size).reshape(x.shape) % 2))).var(), 3,
    ),
    "logsumexp": Case(lambda x: tb.logsumexp(x, axis=(0, 1)), lambda x: np.log(np.exp(x).sum())),
}  # fmt: skip
FAST_SHAPES, FULL_SHAPES = (
    [(5, 26_001), (26_001, 5), (361, 364)],
    [(10_000, 10_000), (1, 100_000_000), (100_000_000, 1)],
)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    "shape",
    [*FAST_SHAPES[:2], pytest.param(FAST_SHAPES[2], marks=pytest.mark.full),
     *[pytest.param(shape, marks=pytest.mark.full) for shape in FULL_SHAPES]], ids=str,
)  # fmt: skip
def test_sums_lose_what_blocks_lose(device: str, shape: tuple[int, int], name: str) -> None:
    if math.prod(shape) > 1 << 20 and device not in ("cpu", "opencl", "cuda"):
        pytest.skip(f"{device}: minutes for so many elements in pure Python")
    case = CASES[name]
    for bits in (9, 12) if math.prod(shape) < 1 << 20 else (13,):
        actual = almost_ones(shape, bits)
        right = np.asarray(case.right(actual.astype(np.float64)))
        x = tb.asarray(actual, device=device)
        for kind, function in (("eager", case.function), ("compiled", tb.compile(case.function))):
            got = np.asarray(function(x).numpy(), np.float64)
            error = np.abs(got - right).max() / np.abs(right).min()
            assert error <= case.limit(device, shape), (kind, bits, error / U)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("op", ["cumulative_sum", "logcumsumexp"])
def test_scans_lose_what_blocks_lose(device: str, op: str, axis: int) -> None:
    """Compiled ones do: an array library's own add one element after the other."""
    shape = (3, 20_000) if axis else (20_000, 3)
    actual = almost_ones(shape, 12)
    wide = actual.astype(np.float64)
    right = np.cumsum(wide, axis) if op == "cumulative_sum" else np.log(np.cumsum(np.exp(wide), axis))
    x = tb.asarray(actual, device=device)
    got = np.asarray(tb.compile(lambda x: getattr(tb, op)(x, axis=axis))(x).numpy(), np.float64)
    serial = 4 * shape[axis] * U
    times = 1 if op == "cumulative_sum" else 8
    limit = serial if device == "cpu" and op == "logcumsumexp" else times * bound(shape[axis])
    limit = serial if device not in ("cpu", "opencl", "cuda") else limit
    assert (np.abs(got - right) / np.abs(right)).max() <= limit


def test_eager_scans_of_many_columns_lose_no_more(device: str) -> None:
    shape = (2_000, 256)
    actual = almost_ones(shape, 12)
    right = np.cumsum(actual.astype(np.float64), 0)
    got = np.asarray(tb.cumulative_sum(tb.asarray(actual, device=device), axis=0).numpy(), np.float64)
    limit = bound(shape[0]) if device in ("cpu", "opencl", "cuda") else 4 * shape[0] * U
    assert (np.abs(got - right) / right).max() <= limit
    actual[1::3, ::2] = np.inf  # and what is infinite stays so, beyond the block that it is in
    actual[1900:, ::4] = -np.inf
    with np.errstate(invalid="ignore"):
        right = np.cumsum(actual.astype(np.float64), 0)
    got = tb.cumulative_sum(tb.asarray(actual, device=device), axis=0).numpy()
    np.testing.assert_array_equal(np.isnan(got), np.isnan(right))
    np.testing.assert_array_equal(got == np.inf, right == np.inf)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats_add_up_in_single_precision(device: str, dtype: str) -> None:
    array = np.full((4, 30_001), 0.1, np.float32)
    x = tb.astype(tb.asarray(array, device=device), getattr(tb, dtype))
    one = float(tb.astype(x[0, 0], tb.float32).item())

    def sums(x: Any) -> Any:
        return tb.astype(tb.sum(x, axis=1), tb.float32), tb.astype(tb.sum(x.T, axis=0), tb.float32)

    u = 2.0 ** (-11 if dtype == "float16" else -8)
    for function in (sums, tb.compile(sums)):
        for value in function(x):
            assert np.abs(value.numpy() / (one * 30_001) - 1).max() <= u + bound(30_001)
