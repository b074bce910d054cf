"""Operators between tensors and objects of other libraries: who knows the other one answers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus.eager.methods import BINARY


class Quantity:
    """Answers for itself on the right of any operator; asks nobody on the left."""


def answering(short: str) -> Callable[[Any, Any], Any]:
    return lambda self, other: (short, other)


for _short in (*BINARY, "matmul"):
    setattr(Quantity, f"__r{_short}__", answering(_short))


class Silent:
    def __radd__(self, other: Any) -> Any:
        return NotImplemented


@pytest.mark.parametrize("short", [*BINARY, "matmul"])
def test_the_other_operand_answers(short: str) -> None:
    x = tb.asarray([1, 2], device="cpu")
    named = getattr(operator, f"{short}_" if short in ("and", "or") else short)
    said, seen = named(x, Quantity())
    assert said == short
    assert seen is x
    changed = getattr(operator, f"i{short}")(x, Quantity())
    assert changed[0] == short
    assert x.tolist() == [1, 2]


@pytest.mark.parametrize(
    "other", [Silent(), Fraction(1, 2), "a", [1, 2], None, np.ones(2)], ids=lambda o: type(o).__name__
)
def test_without_an_answer_the_error_is_ours(other: Any) -> None:
    x = tb.asarray([1, 2], device="cpu")
    with pytest.raises(tb.DtypeError, match="add: needs tensors, got Tensor, "):
        x + other
    with pytest.raises(tb.DtypeError, match="add: needs tensors, got"):
        other + x


def test_functions_ask_nobody() -> None:
    with pytest.raises(tb.DtypeError, match="add: needs tensors, got Tensor, Quantity"):
        tb.add(tb.asarray([1, 2], device="cpu"), Quantity())


def test_errors_of_tensors_stay() -> None:
    x = tb.asarray([1, 2], device="cpu")
    with pytest.raises(tb.ShapeError, match="cannot be broadcast"):
        x + tb.ones((3,), dtype=tb.int64, device="cpu")
    with pytest.raises(tb.DtypeError):
        x & 1.5
