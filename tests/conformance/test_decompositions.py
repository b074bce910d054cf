"""A composite's decomposition is as good as the reference, also where a device has a kernel for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorbus import Tensor
from tensorbus.dtypes.definition import FLOATING
from tensorbus.ops.definition import table
from tensorbus.ops.elementwise.where_cast import cast
from tensorbus_conformance.checks.expected import expected
from tensorbus_conformance.trial import array

from case import trial
from cases import CASES
from installed import dtypes as dtypes_of

COMPOSITES = [op.name for op in table if op.decompose is not None and op.operands]


@pytest.mark.parametrize("name", COMPOSITES)
@given(data=st.data())
def test_decomposition(device: str, name: str, data: st.DataObject) -> None:
    case, op = CASES[name], table[name]
    usable = [d for d in case.dtypes or op.dtypes if d in dtypes_of(device)]
    dtype = data.draw(st.sampled_from([d for d in usable if d not in FLOATING[:2]] or usable), label="dtype")
    call = trial(name, device, dtype, case.samples(data.draw, dtype))
    wanted = expected(call)
    if not set(wanted.dtypes) <= dtypes_of(device):
        return
    bound = call.bind(call.tensors())
    operands = [
        cast(x, c) if isinstance(x, Tensor) and c is not None else x
        for x, c in zip(bound.operands, bound.plan.casts, strict=True)
    ]
    assert op.decompose is not None
    out = op.decompose(*operands, **bound.attrs)
    problem = wanted.problem([array(x) for x in (out if op.results else (out,))])
    assert problem is None, problem
