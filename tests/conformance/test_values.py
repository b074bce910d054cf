"""Every op on every device against the kit's references, on what hypothesis draws, in any layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import tensorbus as tb
from hypothesis import given
from hypothesis import strategies as st
from tensorbus import Tensor
from tensorbus.dtypes.definition import FLOATING
from tensorbus.ops.definition import table
from tensorbus.ops.elementwise.where_cast import cast
from tensorbus_conformance.checks.expected import expected
from tensorbus_conformance.trial import Trial, array

from agreement import same
from case import trial
from cases import CASES
from installed import dtypes as dtypes_of
from installed import lacks
from samples import LAYOUTS, place


def test_every_op_has_a_case() -> None:
    own = {op.name for op in table if table.owner(op.name) == "tensorbus"}
    attention = {"flex_attention", "flex_attention_gradients", "flex_attention_captured_gradients"}
    # Transfers move values between devices: see test_interchange. For the attention of programs there are
    # test_flex_attention and the kit's samples.
    assert own - set(CASES) == {"transfer", *attention}
    assert set(CASES) - own == set()


@pytest.mark.parametrize("name", CASES)
@given(data=st.data())
def test_op(device: str, name: str, data: st.DataObject) -> None:
    case, op = CASES[name], table[name]
    usable = [d for d in case.dtypes or op.dtypes if d in dtypes_of(device)]
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
        # where needs one of its last two for its dtype
        places = places.filter(lambda actual: not {1, 2} <= set(actual))
        if name == "power" and dtype.is_integer:  # which have no power of a negative number
            places = places.filter(lambda actual: 1 not in actual)
        _make_scalars(tensors, data.draw(places, label="at"))
    call = trial(name, device, dtype, sample)
    wanted = expected(call)
    if not set(wanted.dtypes) <= dtypes_of(device):
        with pytest.raises(tb.UnsupportedDtypeError):
            call.run(tensors)
        return
    outs = call.run(tensors)
    assert [str(x.device) for x in outs] == [f"{device}:0"] * len(outs)
    problem = wanted.problem([array(x) for x in outs])
    assert problem is None, problem
    if op.decompose is not None and op.operands and dtype not in FLOATING[:2]:
        problem = wanted.problem([array(x) for x in _decomposed(call)])
        assert problem is None, f"its decomposition: {problem}"
    for tensor, operand in zip(tensors, sample.operands, strict=True):
        assert not isinstance(tensor, tb.Tensor) or same(tensor.numpy(), operand), "an operand was changed"


def _decomposed(call: Trial) -> Sequence[Tensor]:
    """Return what a composite's decomposition gives, whatever kernel the device has for it."""
    bound = call.bind(call.tensors())
    operands = [
        cast(x, c) if isinstance(x, Tensor) and c is not None else x
        for x, c in zip(bound.operands, bound.plan.casts, strict=True)
    ]
    assert call.op.decompose is not None
    out = call.op.decompose(*operands, **bound.attrs)
    return out if call.op.results else (out,)


def _make_scalars(tensors: list[Any], places: list[int]) -> None:
    for k in places:
        if tensors[k].ndim == 0:
            tensors[k] = tensors[k].item()
