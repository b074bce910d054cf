"""Promotion of dtypes and of Python's numbers, and what dtype each kind of op answers in."""

from __future__ import annotations

import math
import pickle
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus.dtypes import definition as dt
from tensorbus.dtypes.definition import DType, check_scalar
from tensorbus.dtypes.promotion import promote, promote_scalar, scalar_dtype

STANDARD = [d for d in dt.ALL if d not in (dt.float16, dt.bfloat16, dt.float8_e4m3fn, dt.float8_e5m2)]
"""The dtypes of the array API standard, whose promotion within a kind is NumPy's."""


@pytest.mark.parametrize(("a", "b"), list(combinations_with_replacement(STANDARD, 2)))
def test_promotion_is_that_of_the_standard(a: DType, b: DType) -> None:
    mixed = a.is_integer != b.is_integer and a is not dt.bool_ and b is not dt.bool_
    if {a.kind, b.kind} == {"int", "uint"} and dt.uint64 in (a, b):
        with pytest.raises(tb.DtypeError, match="no common"):
            promote(a, b)
    elif mixed:  # an integer with a float: the float, as in PyTorch
        assert promote(a, b) is (b if a.is_integer else a)
    else:
        assert promote(a, b).name == np.promote_types(a.name, b.name).name
    if not ({a.kind, b.kind} == {"int", "uint"} and dt.uint64 in (a, b)):
        assert promote(a, b) is promote(b, a)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("float16", "bfloat16", "float32"), ("float16", "float32", "float32"),
        ("bfloat16", "float64", "float64"), ("int64", "float16", "float16"), ("bool", "bfloat16", "bfloat16"),
        ("float8_e5m2", "float16", "float16"), ("float8_e4m3fn", "bfloat16", "bfloat16"),
        ("float16", "complex64", "complex64"),
    ],
)  # fmt: skip
def test_promotion_beyond_the_standard(a: str, b: str, expected: str) -> None:
    assert (
        promote(dt.BY_NAME[a], dt.BY_NAME[b]).name == promote(dt.BY_NAME[b], dt.BY_NAME[a]).name == expected
    )


def test_two_small_floats_have_no_common_dtype() -> None:
    with pytest.raises(tb.DtypeError, match="no common"):
        promote(dt.float8_e4m3fn, dt.float8_e5m2)


@pytest.mark.parametrize("d", dt.ALL)
def test_python_numbers_are_weak(d: DType) -> None:
    assert promote_scalar(d, bool) is d
    assert promote_scalar(d, int) is (dt.int64 if d is dt.bool_ else d)
    assert promote_scalar(d, float) is (d if d.is_inexact else dt.float32)
    expected = d if d.is_complex else dt.complex128 if d is dt.float64 else dt.complex64
    assert promote_scalar(d, complex) is expected


def test_dtypes_are_single_objects() -> None:
    for d in dt.ALL:
        assert pickle.loads(pickle.dumps(d)) is d
        assert dt.dtype(d.name) is d is dt.dtype(d)
        assert (str(d), repr(d)) == (d.name, f"tensorbus.{d.name}")
    assert scalar_dtype(True) is dt.bool_
    assert [scalar_dtype(v).name for v in (1, 1.0, 1j)] == ["int64", "float32", "complex64"]


NUMPY_SCALAR: Any = np.float32(1.5)
RESULTS: list[tuple[str, Any, str]] = [
    ("int8 + uint8", lambda x: x("int8") + x("uint8"), "int16"),
    ("uint8 + 1", lambda x: x("uint8") + 1, "uint8"),
    ("1 + uint8", lambda x: 1 + x("uint8"), "uint8"),
    ("int8 + 1.0", lambda x: x("int8") + 1.0, "float32"),
    ("float64 + 1.0", lambda x: x("float64") + 1.0, "float64"),
    ("float16 * 2.5", lambda x: x("float16") * 2.5, "float16"),
    ("bfloat16 * 2.5", lambda x: x("bfloat16") * 2.5, "bfloat16"),
    ("bfloat16 where", lambda x: tb.where(x("bool"), x("bfloat16"), 0.0), "bfloat16"),
    ("bool + 1", lambda x: x("bool") + 1, "int64"),
    ("bool * 2.0", lambda x: x("bool") * 2.0, "float32"),
    ("bool & True", lambda x: x("bool") & True, "bool"),
    ("float32 + 1j", lambda x: x("float32") + 1j, "complex64"),
    ("float64 * 1j", lambda x: x("float64") * 1j, "complex128"),
    ("int32 / int32", lambda x: x("int32") / x("int32"), "float32"),
    ("int64 // int8", lambda x: x("int64") // x("int8"), "int64"),
    ("sin(int32)", lambda x: tb.sin(x("int32")), "float32"),
    ("sqrt(bool)", lambda x: tb.sqrt(x("bool")), "float32"),
    ("sum(int8)", lambda x: x("int8").sum(), "int64"),
    ("sum(uint8)", lambda x: x("uint8").sum(), "uint64"),
    ("sum(bool)", lambda x: x("bool").sum(), "int64"),
    ("sum(float16)", lambda x: x("float16").sum(), "float16"),
    ("prod(int32)", lambda x: x("int32").prod(), "int64"),
    ("mean(int32)", lambda x: x("int32").mean(), "float32"),
    ("max(uint8)", lambda x: x("uint8").max(), "uint8"),
    ("argmax(bool as int8)", lambda x: tb.argmax(x("int8")), "int64"),
    ("float32 > 0", lambda x: x("float32") > 0, "bool"),
    ("concat", lambda x: tb.concat([x("int8"), x("float16")]), "float16"),
    ("where", lambda x: tb.where(x("bool"), x("int8"), x("int32")), "int32"),
    ("where of scalars", lambda x: tb.where(x("bool"), 1, 2.0), "float32"),
    ("matmul", lambda x: x("int8") @ x("int16"), "int16"),
    ("maximum(float16, int64)", lambda x: tb.maximum(x("float16"), x("int64")), "float16"),
    ("clip", lambda x: tb.clip(x("float16"), 0.0, 1), "float16"),
    ("arange", lambda x: tb.arange(3, device="cpu"), "int64"),
    ("arange of floats", lambda x: tb.arange(0, 1, 0.5, device="cpu"), "float32"),
    ("linspace", lambda x: tb.linspace(0, 1, 3, device="cpu"), "float32"),
    ("zeros", lambda x: tb.zeros((1,), device="cpu"), "float32"),
    ("full of an int", lambda x: tb.full((1,), 1, device="cpu"), "int64"),
    ("full of a bool", lambda x: tb.full((1,), True, device="cpu"), "bool"),
    ("full of a NumPy scalar", lambda x: tb.full((1,), NUMPY_SCALAR, device="cpu"), "float32"),
]


@pytest.mark.parametrize(("make", "expected"), [r[1:] for r in RESULTS], ids=[r[0] for r in RESULTS])
def test_result(make: Any, expected: str) -> None:
    actual = make(lambda name: tb.asarray([1, 1], dtype=name, device="cpu"))
    assert actual.dtype.name == expected
    assert actual.numpy().dtype.name == expected


@pytest.mark.parametrize(
    ("value", "name", "expected"),
    [
        (1, "float32", 1.0),
        (2.0, "int8", 2),
        (True, "int8", 1),
        (3, "bool", True),
        (1.5, "complex64", 1.5 + 0j),
        (np.int8(3), "int64", 3),
    ],
)
def test_check_scalar(value: Any, name: str, expected: Any) -> None:
    actual = check_scalar("test", value, dt.BY_NAME[name])
    assert (actual, type(actual)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (1.5, "int8"),
        (128, "int8"),
        (-1, "uint8"),
        (1j, "float32"),
        (10**400, "float64"),
        ("a", "int8"),
        (None, "bool"),
    ],
)
def test_check_scalar_refuses(value: Any, name: str) -> None:
    with pytest.raises(tb.DtypeError, match="test: "):
        check_scalar("test", value, dt.BY_NAME[name])


def test_integers_wrap() -> None:
    x = tb.asarray([127, -128], dtype="int8", device="cpu")
    assert (x + 1).tolist() == [-128, -127]
    assert (x * 2).tolist() == [-2, 0]
    assert (-x).tolist() == [-127, -128]
    assert abs(x).tolist() == [127, -128]
    assert (x // -1).tolist() == [-127, -128]
    assert (-tb.asarray([1, 0], dtype="uint8", device="cpu")).tolist() == [255, 0]
    assert (x**3).tolist() == [127, 0]
    assert tb.arange(254, 258, dtype="int16", device="cpu").to("uint8").tolist() == [254, 255, 0, 1]


def test_integer_division_follows_python_and_zero_gives_zero() -> None:
    x = tb.asarray([7, -7, 7, -7, 5, 0], device="cpu")
    y = tb.asarray([2, 2, -2, -2, 0, 0], device="cpu")
    assert (x // y).tolist() == [3, -4, -4, 3, 0, 0]
    assert (x % y).tolist() == [1, 1, -1, -1, 0, 0]


def test_negative_powers_of_integers() -> None:
    x = tb.asarray([1, -1, 2, 0, -1], dtype="int32", device="cpu")
    y = tb.asarray([-3, -3, -1, -1, -2], dtype="int32", device="cpu")
    assert (x**y).tolist() == [1, -1, 0, 0, 1]
    with pytest.raises(tb.ArgumentError, match=r"int32 to the power -1 is no int32; cast with"):
        x**-1


def test_narrow_sums_do_not_lose_their_way() -> None:
    x = tb.full((5000,), 100.0, dtype="float16", device="cpu")
    assert x.mean().item() == 100.0
    assert tb.ones((5000,), dtype="float16", device="cpu").sum().item() == 5000.0
    assert tb.ones((3000,), dtype="bfloat16", device="cpu").sum().item() == 3008.0
    assert tb.softmax(tb.zeros((70000,), dtype="float16", device="cpu"))[0].tolist() > 0
    assert tb.layer_norm(tb.asarray([300.0, -300.0], dtype="float16", device="cpu"), 2).tolist() == [
        1.0,
        -1.0,
    ]


def test_pooling_pads_with_the_lowest_number_there_is() -> None:
    for name, lowest in (("float8_e4m3fn", -448.0), ("float16", -math.inf), ("int8", -128), ("uint8", 0)):
        x = tb.asarray([[[1]]], dtype=name, device="cpu")
        assert tb.max_pool2d(x, 2, 1, 1).tolist() == [[[1, 1], [1, 1]]]
        assert tb.max_pool2d(x, 2, 1, 1, dilation=2).tolist() == [[[lowest]]]
