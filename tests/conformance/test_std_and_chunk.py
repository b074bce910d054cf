"""``std`` of equal elements and of very large ones; ``chunk`` of an empty tensor; on every device."""

from __future__ import annotations

import numpy as np
import pytest
import tensorbus as tb

from error_bounds import assert_alike
from installed import dtypes


def test_the_gradient_of_std_is_0_where_all_elements_are_equal(device: str) -> None:
    x = tb.asarray([[2.0, 2.0, 2.0], [1.0, 2.0, 6.0]], device=device).requires_grad_()
    (g,) = tb.grad(tb.std(x, axis=1).sum(), x, create_graph=True)
    assert g is not None
    row = np.array([1.0, 2.0, 6.0])
    np.testing.assert_array_equal(g.detach().numpy()[0], 0)
    assert_alike(g[1], tb.asarray((row - 3) / (3 * row.std()), dtype="float32"), roundings=12)
    (second,) = tb.grad((g * g).sum(), x)
    assert second is not None
    assert np.isfinite(second.numpy()).all()


def test_std_of_what_has_no_spread_or_no_number(device: str) -> None:
    assert tb.std(tb.asarray([3.0, 3.0], device=device)).item() == 0
    assert np.isnan(tb.std(tb.asarray([float("nan"), 1.0], device=device)).item())
    assert np.isnan(tb.std(tb.asarray([1.0], device=device), correction=1).item())


def test_std_in_float16_beyond_the_root_of_its_range(device: str) -> None:
    if tb.float16 not in dtypes(device):
        pytest.skip(f"{device} has no float16")
    result = tb.std(tb.asarray([0.0, 600.0], dtype=tb.float16, device=device))
    assert result.dtype is tb.float16
    assert result.item() == 300


def test_chunks_of_nothing_are_as_many_as_asked_for(device: str) -> None:
    assert [c.shape for c in tb.chunk(tb.zeros((0, 3), device=device), 3)] == [(0, 3)] * 3
