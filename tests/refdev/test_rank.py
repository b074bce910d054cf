"""The number of axes is tensorbus's affair, not that of the library that computes."""

from __future__ import annotations

import pytest
import tensorbus as tb


@pytest.mark.parametrize("rank", [33, 40, 64])
def test_elementwise_ops_take_many_axes(rank):
    row = tb.asarray([1.0, 2.0, 3.0], device="refdev").reshape((1,) * (rank - 1) + (3,))
    column = tb.asarray([10.0, 20.0], device="refdev").reshape((2,) + (1,) * (rank - 1))
    total = tb.add(row, column)
    assert total.shape == (2, *(1,) * (rank - 2), 3)
    assert total.flatten().tolist() == [11.0, 12.0, 13.0, 21.0, 22.0, 23.0]
    assert (row * 2).flatten().tolist() == [2.0, 4.0, 6.0]
    assert tb.where(row > 1, row, -row).flatten().tolist() == [-1.0, 2.0, 3.0]
