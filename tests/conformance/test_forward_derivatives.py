"""Every op has a forward derivative, checked on every device, and a batching rule, or there is a reason."""

from __future__ import annotations

import pytest
from tensorbus.ops.definition import Op, table
from tensorbus_conformance.examination import Options, all_ops, cases, examine

all_ops()
OPS = [op for op in table if op.family != "user"]
CREATED = {"full", "iota"}
"""Ops without operands: the value mode itself creates what they return."""
MOVED = {"transfer"}
"""Copies between devices, which no mode sees."""


def _kind(op: Op[...]) -> str:
    if op.jvp is not None or op.vjp is not None:
        return "rule"
    return "decomposition" if op.decompose is not None else "none"


def test_which_ops_have_no_forward_derivative() -> None:
    """All that have none give integers or bools, or numbers for which there is none."""
    without = {op.name for op in OPS if _kind(op) == "none"}
    assert without == CREATED | {
        "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "isnan", "isinf", "isfinite",
        "signbit", "logical_and", "logical_or", "logical_xor", "logical_not", "bitwise_and", "bitwise_or",
        "bitwise_xor", "bitwise_invert", "bitwise_left_shift", "bitwise_right_shift", "gcd", "any", "all",
        "argmax", "argmin", "argsort",
    }  # fmt: skip


def test_every_op_has_a_batching_rule_or_decomposes() -> None:
    without = {op.name for op in OPS if op.batch is None and op.decompose is None}
    assert without == CREATED | MOVED
    looping = {op.name for op in OPS if op.batch is not None and "looped" in op.batch.__qualname__}
    assert looping == set()


@pytest.mark.full
@pytest.mark.parametrize("name", [op.name for op in OPS if _kind(op) != "none" and op.name not in MOVED])
def test_forward_derivatives(device: str, name: str) -> None:
    for case in cases([device], [name], ["float32", "float64", "complex64"]):
        findings = examine(case, Options(checks=("jvp",))).findings
        assert [f for f in findings if f.check == "jvp"] == []
