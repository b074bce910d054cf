"""Concatenation of more tensors than one kernel reads."""

from __future__ import annotations

import numpy as np
import pytest
import tensorbus as tb


@pytest.mark.parametrize("count", [16, 17, 33, 600])
def test_concat_of_many(count: int, device: str) -> None:
    operands = [np.arange(10.0 * k, 10.0 * k + k % 4, dtype=np.float32) for k in range(count)]
    joined = tb.concat([tb.asarray(x, device=device) for x in operands])
    assert joined.tolist() == np.concatenate(operands).tolist()


def test_concat_of_many_along_a_later_axis(device: str) -> None:
    operands = [np.full((2, 1 + k % 3, 2), k, dtype=np.int32) for k in range(40)]
    joined = tb.concat([tb.asarray(x, device=device) for x in operands], axis=1)
    assert np.array_equal(joined.numpy(), np.concatenate(operands, axis=1))


def test_concat_of_many_promotes_all(device: str) -> None:
    operands = [tb.asarray([k], dtype=tb.int8, device=device) for k in range(30)]
    joined = tb.concat([*operands, tb.asarray([0.5], dtype=tb.float32, device=device)])
    assert (joined.dtype, joined.tolist()) == (tb.float32, [*map(float, range(30)), 0.5])


def test_stack_of_many(device: str) -> None:
    stacked = tb.stack([tb.asarray(float(k), device=device) for k in range(300)])
    assert stacked.tolist() == [float(k) for k in range(300)]


def test_gradients_of_many(device: str) -> None:
    operands = [tb.asarray([float(k)], device=device).requires_grad_() for k in range(40)]
    (tb.concat(operands) * tb.arange(40, device=device)).sum().backward()
    assert [x.grad.item() for x in operands if x.grad is not None] == [float(k) for k in range(40)]
