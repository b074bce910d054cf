"""A capture asks what an op makes, and leaves the kernels that would run it alone: these may be compiled."""

from __future__ import annotations

from typing import Any

import pytest
import tensorbus as tb
from tensorbus.compiler.capture import op_signatures
from tensorbus.dispatch import plan as planning
from tensorbus.ops.definition import table

from error_bounds import assert_alike


def test_captured_ops_prepare_no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(op_signatures, "_signatures", {})
    x = tb.ones((3, 7), device="cpu")
    prepared: list[str] = []
    before = planning._prepared

    def noting(signature: Any, taken: Any) -> Any:
        prepared.append(taken.name)
        return before(signature, taken)

    monkeypatch.setattr(planning, "_prepared", noting)
    result = tb.compile(lambda x: tb.sum(tb.exp(x * 0.25) + tb.cumulative_sum(x, axis=1)))(x)
    assert prepared == []
    plain = tb.sum(tb.exp(x * 0.25) + tb.cumulative_sum(x, axis=1))
    assert_alike(result, plain, roundings=3 * 7 + 7 + 4)


def test_a_plan_of_a_captured_op_runs_all_the_same() -> None:
    x = tb.asarray([1.0, 2.0], device="cpu")
    op = table["negative"]
    plan = planning.plan(op, (x._vtype,), None, {}, captured=True)
    assert plan.run is not None
    assert list(plan.run(x._value)) == [-1.0, -2.0]


def test_a_captured_op_that_its_device_lacks_is_refused_while_it_is_captured() -> None:
    x = tb.asarray([1, 2], device="cpu")
    with pytest.raises(tb.TensorbusError):
        tb.compile(lambda x: tb.logical_and(x, "no"))(x)
