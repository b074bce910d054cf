"""Numbers of subclasses of Python's types, NumPy's ``float64`` among them, are weak as Python's own."""

from __future__ import annotations

import operator
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import numpy as np
import pytest
import tensorbus as tb


class Order(IntEnum):
    FIRST = 1
    THIRD = 3


ARITHMETIC = (operator.add, operator.sub, operator.mul, operator.truediv, operator.pow)
CALLS = [
    *[(operate, d) for operate in ARITHMETIC for d in (tb.float16, tb.float32, tb.complex64, tb.int32)],
    *[(operator.lt, d) for d in (tb.float16, tb.float32, tb.int32)],
]


@pytest.mark.parametrize(("operate", "dtype"), CALLS)
@pytest.mark.parametrize(("number", "plain"), [(np.float64(2.5), 2.5), (Order.THIRD, 3)])
def test_operators_take_it_as_pythons_own(
    operate: Callable[[Any, Any], Any], dtype: tb.DType, number: Any, plain: float, device: str
) -> None:
    x = tb.asarray([1, 2, 4], dtype=dtype, device=device)
    for actual, wanted in (
        (operate(x, number), operate(x, plain)),
        (operate(number, x), operate(plain, x)),
    ):
        assert (actual.dtype, actual.tolist()) == (wanted.dtype, wanted.tolist())


def test_a_complex_one_makes_the_result_complex(device: str) -> None:
    x = tb.asarray([1.0, 2.0], dtype=tb.float32, device=device)
    assert (x * np.complex128(1j)).dtype is tb.complex64


def test_functions_take_it_as_pythons_own(device: str) -> None:
    x = tb.asarray([1.0, 2.0, 4.0], dtype=tb.float16, device=device)
    two = np.float64(2.0)
    assert tb.maximum(x, two).dtype is tb.float16
    assert tb.where(x > two, x, two).tolist() == [2.0, 2.0, 4.0]
    assert tb.clip(x, two, None).dtype is tb.float16


def test_a_whole_number_must_fit_as_pythons_own_must(device: str) -> None:
    x = tb.asarray([1, 2], dtype=tb.uint8, device=device)

    class Size(int):
        pass

    with pytest.raises(tb.DtypeError, match="300"):
        x + Size(300)


def test_numpy_scalars_that_are_no_python_numbers_have_a_dtype(device: str) -> None:
    x = tb.asarray([1, 2], dtype=tb.int8, device=device)
    assert (x + np.int16(1)).dtype is tb.int16


def test_alone_it_keeps_its_dtype(device: str) -> None:
    for number, dtype in ((np.float64(1.1), tb.float64), (np.float32(1.5), tb.float32)):
        operand = tb.asarray(number, device=device)
        assert (operand.dtype, operand.shape, operand.item()) == (dtype, (), float(number))
    assert tb.asarray(np.float64(1.5), dtype=tb.float32, device=device).dtype is tb.float32


def test_sequences_take_it(device: str) -> None:
    assert tb.asarray([Order.FIRST, Order.THIRD], device=device).tolist() == [1, 3]
    assert tb.asarray(Order.THIRD, device=device).dtype is tb.int64


def test_result_type_takes_it() -> None:
    assert tb.result_type(tb.float16, np.float64(1.0)) is tb.float16
    assert tb.result_type(tb.int8, Order.FIRST) is tb.int8


@pytest.mark.parametrize("one", [True, 2, 1.5, 2j])
@pytest.mark.parametrize("other", [True, 2, 1.5, 2j])
def test_two_of_them_make_what_holds_both(one: complex, other: complex, device: str) -> None:
    condition = tb.asarray([True, False], device=device)
    kind = {bool: tb.bool, int: tb.int64, float: tb.float32, complex: tb.complex64}[type(one + other)]
    wanted = tb.bool if type(one) is type(other) is bool else kind
    for where in (tb.where, tb.compile(lambda c: tb.where(c, one, other))):
        actual = where(condition, one, other) if where is tb.where else where(condition)
        assert (actual.dtype, actual.tolist()) == (wanted, [one, other])


def test_without_a_tensor_they_are_refused_compiled_too(device: str) -> None:
    x = tb.ones(2, device=device)
    for fn in (lambda x: tb.where(True, 1.0, 2), lambda x: tb.exp(1.0)):
        with pytest.raises(tb.DtypeError, match="at least one operand must be a tensor"):
            tb.compile(fn)(x)
