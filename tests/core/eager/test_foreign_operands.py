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

from error_bounds import assert_alike


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
    message, seen = named(x, Quantity())
    assert message == short
    assert seen is x
    changed = getattr(operator, f"i{short}")(x, Quantity())
    assert changed[0] == short
    assert x.tolist() == [1, 2]


@pytest.mark.parametrize(
    "other", [Silent(), Fraction(1, 2), "a", [1, 2], None], ids=lambda o: type(o).__name__
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


ARRAY = np.array([[1.0, 2.0], [3.0, 5.0]])
MIXED: dict[str, Callable[[Any, Any], Any]] = {
    "x + a": lambda x, a: x + a, "a - x": lambda x, a: a - x, "a ** x": lambda x, a: a**x,
    "x @ a": lambda x, a: x @ a,
    "a @ x": lambda x, a: a @ x, "a[0] @ x": lambda x, a: a[0] @ x, "a > x": lambda x, a: a > x,
    "x == a": lambda x, a: x == a, "np.maximum": lambda x, a: np.maximum(x, a),
    "np.sin": lambda x, a: np.sin(x),
    "np.arctan2": lambda x, a: np.arctan2(x, a), "np.add of a number": lambda x, a: np.add(x, 2.0),
    "np.float64": lambda x, a: np.float64(2) * x, "np.invert": lambda x, a: np.invert(x > 2),
}  # fmt: skip


@pytest.mark.parametrize("name", MIXED)
def test_arrays_and_tensors_in_host_memory(name: str) -> None:
    x = tb.asarray(ARRAY + 0.5, device="cpu")
    actual, expected = MIXED[name](x, ARRAY), MIXED[name](ARRAY + 0.5, ARRAY)
    assert isinstance(actual, tb.Tensor)
    assert actual.dtype.name == expected.dtype.name
    assert_alike(actual.numpy(), expected, roundings=4)  # products of two


def test_arrays_are_not_copied_to_other_devices() -> None:
    x = tb.asarray(ARRAY, device="refdev")
    for call in (lambda: x + ARRAY, lambda: ARRAY + x, lambda: x @ ARRAY, lambda: np.add(ARRAY, x)):
        with pytest.raises(tb.DtypeError, match=r"asarray\(array, device='refdev:0'\)"):
            call()


def test_what_is_no_plain_call_of_numpy() -> None:
    x, into = tb.asarray(ARRAY, device="cpu"), ARRAY.copy()
    for call in (lambda: np.add.reduce(x), lambda: np.add(ARRAY, x, out=into), lambda: np.modf(x)):
        with pytest.raises(tb.DtypeError, match=r"give NumPy x\.numpy\(\)"):
            call()
    assert (into == ARRAY).all()


class Series:
    """What gives its elements as an array, and no more."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return ARRAY


def test_what_has_an_array_is_taken() -> None:
    assert tb.asarray(Series(), device="cpu").tolist() == ARRAY.tolist()
    assert tb.asarray(Series(), dtype="int64", device="refdev").tolist() == [[1, 2], [3, 5]]
