"""The sets of ops agree with what is written for them."""

from __future__ import annotations

from tensorbus.lowering.codegen.c_expressions import EXPRESSIONS
from tensorbus.lowering.ir.inline import _RULES
from tensorbus.lowering.op_sets import ELEMENTWISE, INLINED

INDICES = {"quotient", "modulo", "fma", "bits"}
"""What indices and helpers are computed with: no op of a graph."""


def test_an_expression_stands_for_each_elementwise_op() -> None:
    assert set(EXPRESSIONS) - INDICES == ELEMENTWISE - {"where", "cast"}


def test_a_rule_stands_for_each_other_inlined_op() -> None:
    assert set(_RULES) == INLINED - ELEMENTWISE - {"constant"}
