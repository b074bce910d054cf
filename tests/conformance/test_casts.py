"""Casting: every dtype to every other. Floats become integers by truncation, saturating; NaN gives 0."""

from __future__ import annotations

import numpy as np
import pytest
import tensorbus as tb
from hypothesis import given
from hypothesis import strategies as st
from tensorbus import dtypes as dt

from agreement import check, wide
from elementwise_cases import CASTS
from installed import dtypes as dtypes_of
from installed import lacks
from samples import LAYOUTS, native, place


@pytest.mark.parametrize("target", CASTS)
@given(data=st.data())
def test_cast(device: str, target: str, data: st.DataObject) -> None:
    case = CASTS[target]
    if lacks(device, dt.BY_NAME[target]):
        return
    dtype = data.draw(
        st.sampled_from([d for d in case.dtypes or () if d in dtypes_of(device)]), label="source"
    )
    (x,) = case.samples(data.draw, dtype).operands
    got = place(x, device, data.draw(st.sampled_from(LAYOUTS))).to(target).numpy()
    assert got.dtype == native(dt.BY_NAME[target])
    with np.errstate(all="ignore"):
        check(got, case.reference(wide(x)), case.ulps)


@pytest.mark.parametrize("target", [d.name for d in dt.INTEGER])
@pytest.mark.parametrize("source", [d.name for d in dt.FLOATING])
def test_saturation(device: str, source: str, target: str) -> None:
    if lacks(device, dt.BY_NAME[source]) or lacks(device, dt.BY_NAME[target]):
        return
    low, high = dt.integer_range(dt.BY_NAME[target])
    x = tb.asarray([float("nan"), -0.0, -0.5, 0.75, 1.5, -1.5, 448.0, -448.0], dtype=source, device=device)
    assert x.to(target).tolist() == [0, 0, 0, 0, 1, max(low, -1), min(high, 448), max(low, -448)]
    if source != "float8_e4m3fn":  # has no infinities
        infinite = tb.asarray([float("inf"), float("-inf")], dtype=source, device=device)
        assert infinite.to(target).tolist() == [high, low]


def test_complex_does_not_become_real(device: str) -> None:
    if lacks(device, dt.complex64):
        return
    x = tb.asarray([1 + 2j], device=device)
    with pytest.raises(tb.DtypeError, match="complex64 does not fit in float32"):
        x.to("float32")
    assert x.to("bool").tolist() == [True]
