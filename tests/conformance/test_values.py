"""Every op on every device against NumPy, on what hypothesis draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorbus import Tensor
from tensorbus.ops.op import table

from agreement import check, same, wide
from cases import CASES
from installed import dtypes as dtypes_of
from installed import lacks
from samples import LAYOUTS, native, place


def test_every_op_has_a_case() -> None:
    own = {op.name for op in table if table.owner(op.name) == "tensorbus"}
    assert own - set(CASES) == set()
    assert set(CASES) - own == set()


@pytest.mark.parametrize("name", CASES)
@given(data=st.data())
def test_op(device: str, name: str, data: st.DataObject) -> None:
    case, op = CASES[name], table[name]
    usable = [d for d in case.dtypes or op.dtypes if {d, case.result(d)} <= dtypes_of(device)]
    if not usable:
        assert all(lacks(device, d) for d in case.dtypes or op.dtypes)
        return
    dtype = data.draw(st.sampled_from(usable), label="dtype")
    sample = case.samples(data.draw, dtype)
    tensors: list[Any] = [
        place(a, device, data.draw(st.sampled_from(LAYOUTS), label="layout")) for a in sample.operands
    ]
    if op.family == "elementwise" and len(tensors) > 1 and data.draw(st.booleans(), label="with scalars"):
        places = st.lists(st.sampled_from(range(len(tensors))), unique=True, max_size=len(tensors) - 1)
        places = places.filter(
            lambda found: not {1, 2} <= set(found)
        )  # where needs one of them for its dtype
        _make_scalars(tensors, data.draw(places, label="at"))
    call = case.call or table.function(name)
    attrs = dict(sample.attrs) | ({"device": device} if not tensors else {})
    out = call(*tensors, **attrs)
    assert isinstance(out, Tensor)
    assert out.dtype is case.result(dtype)
    assert str(out.device) == f"{device}:0"
    got = out.numpy()
    assert got.dtype == native(out.dtype)
    with np.errstate(all="ignore"):
        expected = case.reference(*map(wide, sample.operands), **sample.attrs)
        if case.exact:
            assert same(got, np.asarray(expected).astype(got.dtype)), f"{got!r} is not {expected!r}"
        else:
            scale = 0.0 if case.scale is None else case.scale(*map(wide, sample.operands), **sample.attrs)
            check(got, expected, case.ulps, scale)
        for tensor, operand in zip(tensors, sample.operands, strict=True):
            assert not isinstance(tensor, Tensor) or same(tensor.numpy(), operand), "an operand was changed"


def _make_scalars(tensors: list[Any], places: list[int]) -> None:
    """Hand 0-dimensional operands over as Python numbers."""
    for at in places:
        if not tensors[at].shape:
            tensors[at] = tensors[at].item()
