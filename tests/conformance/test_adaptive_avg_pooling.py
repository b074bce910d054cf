"""Adaptive means against products with matrices of shares, eager and compiled, on every device."""

from __future__ import annotations

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import nn

from error_bounds import assert_within, gamma, stored


def shares(n: int, m: int) -> np.ndarray:
    """Return how much of each of ``m`` outputs each of ``n`` elements is."""
    x = np.zeros((m, n))
    for i in range(m):
        first, end = i * n // m, -(-(i + 1) * n // m)
        x[i, first:end] = 1 / (end - first)
    return x


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("size", [1, (4, 6), (None, 1), (3, 5), (8, 12), (4, 5), (5, 4)])
@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_means_and_gradients(kind, size, compiled, device) -> None:
    """Axes that are cut evenly, unevenly, not at all, and one of each."""
    space = (8, 12)
    x = np.random.default_rng(3).integers(-8, 9, (2, 3, *space)).astype(kind)
    wanted = size if isinstance(size, tuple) else (size, size)
    rows, columns = (shares(n, n if m is None else m) for n, m in zip(space, wanted, strict=True))

    def pool(x):
        return nn.functional.adaptive_avg_pool2d(x, size)

    actual = tb.asarray(x, device=device).requires_grad_()
    result = (tb.compile(pool) if compiled else pool)(actual)
    result.sum().backward()
    assert result.dtype == actual.dtype
    # Means of rows and then of columns, each stored.
    sizes = np.einsum("nchw,ih,jw->ncij", abs(x.astype("f8")), rows, columns)
    wanted = np.einsum("nchw,ih,jw->ncij", x.astype("f8"), rows, columns)
    assert_within(result.numpy(), wanted, gamma(8 + 12, "float32") * sizes + 2 * stored(sizes, kind))
    back = np.broadcast_to(np.einsum("ih,jw->hw", rows, columns), x.shape)
    # An element is in two outputs along each axis at most.
    assert_within(actual.grad.numpy(), back, gamma(8, "float32") * back + 4 * stored(back, kind))
