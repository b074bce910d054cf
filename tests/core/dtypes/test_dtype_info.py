"""Limits, kinds and promotion of dtypes, against NumPy and ml_dtypes."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
import tensorbus as tb
from tensorbus import dtypes as dt
from tensorbus.dtypes.definition import DType
from tensorbus.dtypes.info import KINDS


@pytest.mark.parametrize("dtype", dt.FLOATING, ids=str)
def test_limits_of_floats(dtype: DType) -> None:
    ours, theirs = tb.finfo(dtype), ml_dtypes.finfo(dtype.name)
    assert ours.bits == theirs.bits
    assert ours.dtype is dtype
    for name in ("eps", "max", "min", "smallest_normal", "tiny"):
        assert getattr(ours, name) == float(getattr(theirs, name)), name
        assert type(getattr(ours, name)) is float


@pytest.mark.parametrize("dtype", dt.INTEGER, ids=str)
def test_limits_of_integers(dtype: DType) -> None:
    ours, theirs = tb.iinfo(dtype), np.iinfo(dtype.name)
    assert (ours.bits, ours.min, ours.max) == (theirs.bits, theirs.min, theirs.max)
    assert ours.dtype is dtype


def test_limits_of_tensors_and_names() -> None:
    assert tb.finfo(tb.asarray([1j], device="cpu")) == tb.finfo(tb.float32) == tb.finfo("complex64")
    assert tb.iinfo(tb.asarray([1], device="cpu")).max == 2**63 - 1


@pytest.mark.parametrize("wrong", [tb.int8, tb.bool, "int64"])
def test_integers_have_no_float_limits(wrong: DType | str) -> None:
    with pytest.raises(tb.DtypeError, match="iinfo"):
        tb.finfo(wrong)


def test_floats_have_no_integer_limits() -> None:
    with pytest.raises(tb.DtypeError, match="finfo"):
        tb.iinfo(tb.float32)
    with pytest.raises(tb.DtypeError, match="a dtype or a tensor is needed"):
        tb.iinfo(3)


def test_kinds() -> None:
    for kind, members in KINDS.items():
        assert {d for d in dt.ALL if tb.isdtype(d, kind)} == members
    assert tb.isdtype(tb.int8, tb.int8)
    assert not tb.isdtype(tb.int8, tb.int16)
    assert tb.isdtype(tb.uint8, ("bool", tb.uint8))
    assert not tb.isdtype(tb.uint8, ())


def test_unknown_kinds() -> None:
    with pytest.raises(tb.DtypeError, match=r"'intregal'.*integral"):
        tb.isdtype(tb.int8, "intregal")
    with pytest.raises(tb.DtypeError, match="a dtype is needed"):
        tb.isdtype("int8", "integral")


def test_a_cast_is_allowed_where_promotion_makes_it() -> None:
    for a, b in itertools.product(dt.ALL, dt.ALL):
        try:
            expected = dt.promote(a, b) is b
        except tb.DtypeError:
            expected = False
        assert tb.can_cast(a, b) is expected
    assert tb.can_cast(tb.asarray([1], dtype="int8", device="cpu"), "int16")
    assert not tb.can_cast(tb.uint64, tb.int64)


def test_common_dtypes() -> None:
    x = tb.asarray([1.5], dtype="float16", device="cpu")
    assert tb.result_type(x, 2.5) is tb.float16
    assert tb.result_type(tb.int8, 1.5) is tb.float32
    assert tb.result_type(tb.float64, 1j) is tb.complex128
    assert tb.result_type(tb.int8, True, tb.uint8) is tb.int16
    assert tb.result_type(tb.bool) is tb.bool


def test_scalars_alone_have_no_common_dtype() -> None:
    with pytest.raises(ValueError, match="at least one tensor or dtype"):  # SciPy asks for this class
        tb.result_type(1, 2.0)
    with pytest.raises(tb.DtypeError, match="uint64 and int8"):
        tb.result_type(tb.uint64, tb.int8)
