"""The loop IR prints readably, and the verifier says what is wrong with it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tensorbus.dtypes import definition as dt
from tensorbus.lowering.ir.index_expr import ONE, ZERO
from tensorbus.lowering.ir.loop_ir import (
    INDEX,
    Apply,
    Assign,
    Buffer,
    Cast,
    Const,
    For,
    If,
    Let,
    Load,
    LoopKernel,
    Select,
    Stmt,
    Store,
    Var,
)
from tensorbus.lowering.ir.verify import IRError, verify

AT = Var("i0", INDEX)
N = Var("n0", INDEX)
X = Load("x0", AT, dt.float32)
DOUBLED = Apply("add", (X, X), dt.float32)


def kernel(*body: Stmt) -> LoopKernel:
    loop = For(AT, ZERO, N, body, 1, "parallel")
    return LoopKernel(
        "tb_double", (Buffer("x0", dt.float32), Buffer("out", dt.float32, writes=True)), (N,), (loop,)
    )


def test_a_kernel_prints_as_it_reads() -> None:
    total = Var("acc", dt.float32)
    text = str(
        kernel(
            Let(total, Const(0.0, dt.float32), mutable=True),
            For(Var("k", INDEX), ZERO, N, (Assign(total, Apply("add", (total, X), dt.float32)),), 4),
            If(Apply("less", (AT, ONE), dt.bool_), (Store("out", AT, total),)),
        )
    )
    assert text == (
        "kernel tb_double(x0: float32[], out out: float32[], n0: index):\n"
        "  for i0 in range(0, n0) parallel(0):\n"
        "    var acc: float32 = 0.0:float32\n"
        "    for k in range(0, n0, 4) serial:\n"
        "      acc = (acc + x0[i0])\n"
        "    if (i0 < 1):\n"
        "      out[i0] = acc"
    )


def test_a_good_kernel_passes() -> None:
    assert verify(kernel(Store("out", AT, DOUBLED))).name == "tb_double"


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (Store("out", AT, Var("y", dt.float32)), "'y' is used before it is defined"),
        (Store("x0", AT, DOUBLED), "'x0' is read-only"),
        (Store("nowhere", AT, DOUBLED), "no buffer 'nowhere'"),
        (Store("out", AT, Cast(X, dt.int32)), "int32 stored in float32"),
        (Store("out", X, DOUBLED), "index of out"),
        (Store("out", AT, Apply("bits", (X,), dt.float32)), "bits of float32 as float32"),
        (Store("out", AT, Apply("complex", (X, X), dt.float32)), "complex gives no float32"),
        (Let(Var("z", dt.complex128), Apply("complex", (X, X), dt.complex128)), "the parts of complex128"),
        (Store("out", AT, Select(Apply("less", (X, X), dt.bool_, 4), X, X, dt.float32)), "lanes of"),
        (Store("out", AT, Apply("add", (X, Cast(X, dt.int32)), dt.float32)), "operands of add"),
        (Store("out", AT, Apply("less", (X, X), dt.float32)), "less gives bool"),
        (Store("out", AT, Load("x0", AT, dt.float64)), "float64 stored in float32"),
        (If(X, ()), "condition"),
        (Assign(Var("y", dt.float32), X), "no mutable local"),
        (Let(AT, ZERO), "'i0' is defined twice"),
        (For(Var("k", INDEX), ZERO, N, (), 1, "unroll"), "unknown bounds"),
        (
            If(Apply("less", (AT, N), dt.bool_), (For(Var("j", INDEX), ZERO, N, (), 1, "parallel"),)),
            "not outermost",
        ),
        (Store("out", AT, Load("x0", AT, dt.float32, lanes=4), ZERO), None),
    ],
)
def test_the_verifier_names_what_is_wrong(statement: Stmt, message: str | None) -> None:
    if message is None:
        verify(kernel(statement))
        return
    with pytest.raises(IRError, match="tb_double") as caught:
        verify(kernel(statement))
    assert message in str(caught.value)


def test_a_workgroup_is_the_whole_of_axis_0() -> None:
    """Nothing asks there whether a work-item has an iteration."""
    good = kernel(Store("out", AT, DOUBLED))
    (loop,) = good.body
    assert isinstance(loop, For)
    verify(replace(good, group=32, body=(replace(loop, stop=Const(32, INDEX)),)))
    for stop in (N, Const(33, INDEX), Const(64, INDEX)):
        with pytest.raises(IRError, match="a workgroup of 32"):
            verify(replace(good, group=32, body=(replace(loop, stop=stop),)))


def test_arguments_have_names_of_their_own() -> None:
    good = kernel(Store("out", AT, DOUBLED))
    with pytest.raises(IRError, match="one name"):
        verify(replace(good, params=(N, N)))
