"""A composite's decomposition and whatever kernel a device has for it are both as good as the reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorbus.dtypes import FLOATING
from tensorbus.ops.op import Spec, table

from agreement import check, wide
from cases import CASES
from installed import dtypes as dtypes_of
from samples import place

COMPOSITES = [op.name for op in table if op.decompose is not None and op.operands]


@pytest.mark.parametrize("name", COMPOSITES)
@given(data=st.data())
def test_decomposition(device: str, name: str, data: st.DataObject) -> None:
    case, op = CASES[name], table[name]
    usable = [d for d in case.dtypes or op.dtypes if {d, case.result(d)} <= dtypes_of(device)]
    if name == "log10":  # a library's complex log of 0, an infinity, times a number has a NaN
        usable = [d for d in usable if not d.is_complex]
    dtype = data.draw(st.sampled_from([d for d in usable if d not in FLOATING[:2]] or usable), label="dtype")
    sample = case.samples(data.draw, dtype)
    tensors = [place(a, device) for a in sample.operands]
    positional = () if name != "random_bits" else tuple(sample.attrs.values())
    operands, attrs = op.arguments(*tensors, *positional, **({} if positional else sample.attrs))
    assert op.decompose is not None
    if op.normalize is not None:
        attrs = op.normalize(tuple(Spec(x.shape, x.dtype) for x in operands), **attrs)
    out = op.decompose(*operands, **attrs)
    assert out.dtype is case.result(dtype)
    with np.errstate(all="ignore"):
        given_arrays = tuple(map(wide, sample.operands))
        scale = 0.0 if case.scale is None else case.scale(*given_arrays, **sample.attrs)
        check(out.numpy(), case.reference(*given_arrays, **sample.attrs), case.ulps, scale)
