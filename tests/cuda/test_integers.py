"""Products of integers on a GPU: exact, and modulo what the dtype holds, whichever kernel computes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus_cuda import device as cuda
from tensorbus_cuda import integers

on_card = pytest.mark.skipif(cuda.why_unavailable() is not None, reason=f"cuda: {cuda.why_unavailable()}")


def test_the_library_is_asked_for_large_products_that_cannot_overflow() -> None:
    assert integers.sizes([(4, 32, 256), (256, 512)]) == integers.Sizes(1, 128, 256, 512)
    assert integers.sizes([(4, 64, 256), (4, 256, 512)]) == integers.Sizes(4, 64, 256, 512)
    assert integers.sizes([(1, 64, 256), (4, 256, 512)]) is None
    assert integers.sizes([(64, 256), (4, 256, 512)]) is None
    assert integers.sizes([(64, 64), (64, 64)]) is None
    assert integers.sizes([(64, 1 << 16), (1 << 16, 64)]) is not None
    assert integers.sizes([(64, (1 << 16) + 1), ((1 << 16) + 1, 64)]) is None


SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "even": ((256, 512), (512, 384)),
    "odd": ((131, 257), (257, 129)),
    "row": ((1, 4096), (4096, 1000)),
    "column": ((3000, 1001), (1001, 1)),
    "stack": ((3, 100, 200), (3, 200, 99)),
    "one right": ((2, 5, 70, 130), (130, 77)),
    "deep": ((64, 1 << 16), (1 << 16, 48)),
    "too deep": ((64, (1 << 16) + 7), ((1 << 16) + 7, 48)),
    "small": ((7, 9), (9, 5)),
    "broadcast": ((1, 128, 256), (3, 256, 64)),
}


@pytest.mark.cuda
@on_card
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
@pytest.mark.parametrize("name", SHAPES)
def test_products_are_exact(name: str, dtype: str, compiled: bool) -> None:
    rng = np.random.default_rng(0)
    info = np.iinfo(dtype)
    a, b = (rng.integers(info.min, info.max, shape, dtype, endpoint=True) for shape in SHAPES[name])
    expected = np.matmul(a.astype("i8"), b.astype("i8")).astype(dtype)
    run: Callable[..., Any] = tb.compile(lambda x, y: x @ y) if compiled else lambda x, y: x @ y
    for _ in range(2 if compiled else 1):
        found = run(tb.asarray(a, device="cuda"), tb.asarray(b, device="cuda"))
        assert found.dtype == getattr(tb, dtype)
        np.testing.assert_array_equal(found.numpy(), expected)


@pytest.mark.cuda
@on_card
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_bytes_are_taken_in_any_layout(dtype: str) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 127, (301, 600)).astype(dtype), rng.integers(0, 127, (600, 400)).astype(dtype)
    x, y = tb.asarray(a, device="cuda"), tb.asarray(b, device="cuda")
    pairs = [
        (x[:, 1:].T, x[:, :512], a[:, 1:].T, a[:, :512]),
        (x[3:, 16:528], y[7:519, ::2], a[3:, 16:528], b[7:519, ::2]),
        (tb.flip(x, axis=1), y, a[:, ::-1], b),
        (y.T, x.T, b.T, a.T),
        (x[:, 5:517], y[5:517].T.T, a[:, 5:517], b[5:517]),
    ]
    for left, right, c, d in pairs:
        expected = (c.astype("i8") @ d.astype("i8")).astype(dtype)
        np.testing.assert_array_equal((left @ right).numpy(), expected)


@pytest.mark.cuda
@on_card
def test_the_largest_sums_do_not_saturate() -> None:
    x = tb.full((64, 1 << 16), -128, dtype=tb.int8, device="cuda")
    y = tb.full((1 << 16, 64), 127, dtype=tb.int8, device="cuda")
    expected = np.int64(-128 * 127 * (1 << 16)).astype("i1")
    assert (x @ y).numpy().tolist() == [[int(expected)] * 64] * 64
    odd = tb.concat([y[:-1], tb.full((1, 64), 126, dtype=tb.int8, device="cuda")], axis=0)
    last = int(np.int64(-128 * 127 * (1 << 16) + 128).astype("i1"))
    assert (x @ odd).numpy().tolist() == [[last] * 64] * 64
