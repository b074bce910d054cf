"""Concatenation of more tensors than one kernel reads."""

from __future__ import annotations

import numpy as np
import pytest
import tensorbus as tb


@pytest.mark.parametrize("count", [16, 17, 33, 600])
def test_concat_of_many(count: int, device: str) -> None:
    given = [np.arange(10.0 * k, 10.0 * k + k % 4, dtype=np.float32) for k in range(count)]
    made = tb.concat([tb.asarray(x, device=device) for x in given])
    assert made.tolist() == np.concatenate(given).tolist()


def test_concat_of_many_along_a_later_axis(device: str) -> None:
    given = [np.full((2, 1 + k % 3, 2), k, dtype=np.int32) for k in range(40)]
    made = tb.concat([tb.asarray(x, device=device) for x in given], axis=1)
    assert np.array_equal(made.numpy(), np.concatenate(given, axis=1))


def test_concat_of_many_promotes_all(device: str) -> None:
    given = [tb.asarray([k], dtype=tb.int8, device=device) for k in range(30)]
    made = tb.concat([*given, tb.asarray([0.5], dtype=tb.float32, device=device)])
    assert (made.dtype, made.tolist()) == (tb.float32, [*map(float, range(30)), 0.5])


def test_stack_of_many(device: str) -> None:
    made = tb.stack([tb.asarray(float(k), device=device) for k in range(300)])
    assert made.tolist() == [float(k) for k in range(300)]


def test_gradients_of_many(device: str) -> None:
    given = [tb.asarray([float(k)], device=device).requires_grad_() for k in range(40)]
    (tb.concat(given) * tb.arange(40, device=device)).sum().backward()
    assert [x.grad.item() for x in given if x.grad is not None] == [float(k) for k in range(40)]
