"""The numbers of generated MSL: every sample call of the op table, run on the host, beside the references."""

from __future__ import annotations

import numpy as np
import pytest
from tensorbus.dtypes import definition as dt
from tensorbus.lowering.codegen.render import render
from tensorbus.lowering.ir.loop_ir import (
    INDEX,
    Apply,
    Array,
    Barrier,
    Buffer,
    Const,
    For,
    Let,
    Load,
    LoopKernel,
    Report,
    Store,
    Var,
)
from tensorbus_conformance.checks.expected import expected
from tensorbus_conformance.sources import planned
from tensorbus_metal.host_shim import packed, shim

from metal_host import needs_compiler
from metal_programs import MSL, compile_all, run

pytestmark = [needs_compiler, pytest.mark.full]
KINDS = ("bool", "uint8", "int32", "uint32", "int64", "float16", "bfloat16", "float32", "complex64")
"""One dtype of each way to be stored and computed; the others differ in their width alone."""


@pytest.mark.parametrize("kind", KINDS)
def test_every_sample_call_gives_what_the_reference_gives(kind: str) -> None:
    plans = list(planned(MSL, dtypes=[dt.dtype(kind)]))
    assert len({plan.trial.op.name for plan in plans}) > 30
    compile_all(plans)
    wrong = []
    for plan in plans:
        results, errors = run(plan)
        wanted = expected(plan.trial)
        got = [r.view(np.bool_) if d is dt.bool_ else r for r, d in zip(results, wanted.dtypes, strict=True)]
        problem = wanted.problem(got) or ("reported an index" if errors[0] else None)
        if problem is not None:
            wrong.append(f"{plan.trial.title}: {problem}")
    assert not wrong, "\n".join(wrong)


def test_metal_has_no_float64() -> None:
    assert dt.float64 not in MSL.types
    assert dt.complex128 not in MSL.types
    assert not list(planned(MSL, ["add"], [dt.float64]))


def test_items_of_a_group_wait_for_each_other() -> None:
    """Each item reads what its neighbour stored, which is there only behind a barrier."""
    count = 64
    i = Var("i0", INDEX)
    other = Apply("modulo", (Apply("add", (i, Const(1, INDEX)), INDEX), Const(count, INDEX)), INDEX)
    body = (
        Array("near", dt.int32, count, "shared"),
        Store("near", i, Load("x0", i, dt.int32)),
        Barrier(),
        Let(Var("t_1", dt.int32), Load("near", other, dt.int32)),
        Store("out", i, Var("t_1", dt.int32)),
    )
    loop = For(i, Const(0, INDEX), Var("n0", INDEX), body, 1, "parallel", 0)
    buffers = (Buffer("x0", dt.int32), Buffer("out", dt.int32, True))
    kernel = LoopKernel("tb_turn", buffers, (Var("n0", INDEX),), (loop,))
    x, out = np.arange(count, dtype=np.int32), np.zeros(count, np.int32)
    entry = shim().entry(render(kernel, MSL), kernel, MSL)
    entry([x.ctypes.data, out.ctypes.data], packed([INDEX], [count]), (count,), (count,))
    np.testing.assert_array_equal(out, np.roll(x, -1))


def test_the_first_report_stays() -> None:
    i = Var("i0", INDEX)
    report = Report("errors", Const(7, INDEX), Load("x0", i, INDEX), Const(10, INDEX))
    loop = For(i, Const(0, INDEX), Var("n0", INDEX), (report,), 1, "parallel", 0)
    kernel = LoopKernel(
        "tb_look", (Buffer("x0", INDEX), Buffer("errors", INDEX, True)), (Var("n0", INDEX),), (loop,)
    )
    x, errors = np.array([3, -2, 12], np.int64), np.zeros(3, np.int64)
    entry = shim().entry(render(kernel, MSL), kernel, MSL)
    entry([x.ctypes.data, errors.ctypes.data], packed([INDEX], [3]), (3,), (1,))
    assert errors.tolist() == [7, -2, 10]
