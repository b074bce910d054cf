"""Masks of positions in vectors: a position beside a number, in each lane and beyond all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus.dtypes import definition as dtypes
from tensorbus.nn import functional

from error_bounds import assert_within, gamma, stored

RNG = np.random.default_rng(8)
ROWS, COLUMNS = 90, 1003
WIDE = 64 * 1024
"""Elements of a map from which on it is written in vectors."""
COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "less": lambda a, b: a < b, "less_equal": lambda a, b: a <= b, "greater": lambda a, b: a > b,
    "greater_equal": lambda a, b: a >= b, "equal": lambda a, b: a == b, "not_equal": lambda a, b: a != b,
}  # fmt: skip


def ends() -> Any:
    """Numbers near the beginning, in the middle, near the end and far beyond of a row's positions."""
    far = [-(1 << 63), -(1 << 40), -9, -8, -1, COLUMNS, COLUMNS + 7, COLUMNS + 8, 1 << 40, (1 << 63) - 1]
    near = [*range(20), *range(COLUMNS - 20, COLUMNS)]
    operand = np.asarray([*far, *near, *RNG.integers(0, COLUMNS, ROWS - len(far) - len(near))])
    return operand.astype("i8")


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("op", COMPARED)
def test_positions_beside_numbers(op: str, turned: bool) -> None:
    x, limits = tb.asarray(RNG.normal(size=(ROWS, COLUMNS)).astype("f4")), tb.asarray(ends())
    assert ROWS * COLUMNS >= WIDE

    def masked(x: Any, limits: Any) -> Any:
        places, operand = tb.arange(COLUMNS), limits[:, None]
        here = COMPARED[op](operand, places) if turned else COMPARED[op](places, operand)
        return tb.where(here, tb.exp(x), -1.0)

    got, wanted = tb.compile(masked)(x, limits).numpy(), masked(x, limits).numpy()
    np.testing.assert_array_equal(got == -1, wanted == -1)
    np.testing.assert_allclose(got, wanted, rtol=gamma(4, "float32"))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_causal_softmax(dtype: str) -> None:
    x = tb.asarray(RNG.normal(size=(3, 67, 67)).astype("f4")).to(dtypes.dtype(dtype))

    def causal(x: Any) -> Any:
        places = tb.arange(67)
        return tb.softmax(tb.where(places[:, None] >= places, x, float("-inf")), axis=-1)

    got, wanted = (f(x).to(tb.float32).numpy() for f in (tb.compile(causal), causal))
    # Each is a quotient of exponentials and of a sum of 67, in float32 at least, and stored.
    bound = gamma(67 + 8, "float32") * abs(wanted) + 2 * stored(wanted, dtype)
    assert_within(got, wanted, bound)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_the_gradient_of_cross_entropy_in_every_lane(dtype: str) -> None:
    count = 75
    logits = tb.asarray(RNG.normal(size=(count + 2, count)).astype("f4")).to(dtypes.dtype(dtype))
    classes = tb.asarray(np.asarray([*range(count), -100, 3]))

    def step(x: Any, t: Any) -> Any:
        x = x * 1
        x.requires_grad_()
        loss = functional.cross_entropy(x, t)
        return loss, tb.grad(loss, [x])[0]

    wide = "float64" if dtype == "float64" else "float32"
    for got, wanted in zip(tb.compile(step)(logits, classes), step(logits, classes), strict=True):
        operands = [value.detach().to(tb.float64).numpy() for value in (got, wanted)]
        rounded = gamma(2 * count + 8, wide) * abs(operands[1]).max()  # sums of a row and of all rows
        assert_within(*operands, rounded + 2 * stored(operands[1], dtype))
