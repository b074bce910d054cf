"""Reductions of a value and of its transpose in one program: compiled as eager."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import tensorbus as tb

from error_bounds import assert_alike

AXES = [(0, 1), (1, 2), (0, 2), (2, 0), 0, 2, None]


def agree(function: Callable[..., Any], *args: Any, device: str) -> None:
    operands = [tb.asarray(x, device=device) for x in args]
    wanted = function(*operands)
    for actual, right in zip(tb.compile(function)(*operands), wanted, strict=True):
        assert actual.shape == right.shape
        assert_alike(actual, right, operands[0].size + 4)  # sums of all of an operand at most


@pytest.mark.parametrize("axis", AXES, ids=str)
def test_every_order_of_three_axes(device: str, axis: Any) -> None:
    array = np.random.default_rng(0).uniform(1, 2, (2, 3, 4)).astype("f4")
    for order in permutations(range(3)):

        def behind(x: Any, order: tuple[int, ...] = order) -> Any:
            x = x + 1
            return x, (tb.permute_dims(x, order) * 2).sum(axis=axis)

        def before(x: Any, order: tuple[int, ...] = order) -> Any:
            x = tb.exp(x)
            turned = tb.permute_dims(x, order)
            return turned.sum(axis=axis), tb.max(turned, axis=axis), x * 2

        agree(behind, array, device=device)
        agree(before, array, device=device)


@pytest.mark.parametrize("shape", [(2, 3), (300, 200)], ids=str)
def test_products_means_and_norms_of_a_transpose(device: str, shape: tuple[int, int]) -> None:
    array = np.random.default_rng(1).uniform(1, 2, shape).astype("f4")

    def squares(g: Any) -> Any:
        x = g + 1
        return x, tb.sum(x.T * x.T), tb.mean(x.T), tb.std(x.T * 1.5)

    def scaled(g: Any) -> Any:
        x = g + 1
        return x, (x.T * tb.arange(shape[0], dtype=x.dtype, device=x.device)).sum()

    agree(squares, array, device=device)
    agree(scaled, array, device=device)


def test_the_loss_of_a_transpose_and_its_gradient(device: str) -> None:
    w = tb.asarray(np.random.default_rng(2).random((2, 3)).astype("f4"), device=device).requires_grad_()

    def step(g: Any) -> Any:
        y = w * g
        loss = (y.T**2).sum()
        (slope,) = tb.grad(loss, [w])
        return y.detach(), loss.detach(), slope

    agree(step, np.arange(6, dtype="f4").reshape(2, 3), device=device)
