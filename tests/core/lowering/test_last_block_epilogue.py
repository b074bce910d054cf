"""Losses as one kernel: the last task or workgroup to finish adds up what the rows come to."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fused import CPU, THIN, program_of, record
from fused_programs import EPILOGUES, LOSSES, lowered, steps_of_case, with_loss
from tensorbus.dtypes import definition as dt
from tensorbus.errors import TensorbusError
from tensorbus.lowering.codegen.render import render
from tensorbus.lowering.ir.loop_ir import LastTaskEpilogue
from tensorbus.lowering.ir.verify import verify
from tensorbus.lowering.program.program import steps_of
from tensorbus.ops.definition import Spec
from tensorbus_cpu.dialect import dialect as cpu
from tensorbus_cuda.dialect import dialect as cuda
from tensorbus_metal.dialect import dialect as metal


@pytest.mark.parametrize("name", EPILOGUES)
def test_it_is_one_kernel(name: str) -> None:
    assert len(steps_of_case(EPILOGUES[name])) == 1


def test_the_loss_and_its_gradient_are_one_kernel_beside_the_count() -> None:
    assert steps_of_case(LOSSES["the loss and its gradient"]) == ["tb_sum", "tb_rows_subtract_sum_1"]


def test_the_gradient_has_no_walk_of_its_own_for_the_class_and_is_in_vectors() -> None:
    specs = (Spec((512, 1000), dt.float32), Spec((512,), dt.int64))
    graph, program = program_of(record(with_loss, *specs), cpu(half=True, lanes=8).target)
    assert [n.op for n in graph].count("sum") == 3, "of the powers, the losses and the targets that count"
    text = str(list(program.kernels())[-1])
    assert "ramp()" in text, text


def test_logits_are_kept_once() -> None:
    _, program = lowered(LOSSES["logits"])
    assert [size for size, _ in program.sizes.values() if size >= 256 * 1001] == [256 * 1001], str(program)


def test_devices_whose_items_do_not_see_each_other_take_two_kernels() -> None:
    case = EPILOGUES["cross entropy"]
    for target in (THIN, replace(CPU, last_task_epilogue=False)):
        assert len(steps_of_case(replace(case, target=target))) > 1
    _, program = lowered(case)
    (kernel,) = program.kernels()
    assert isinstance(verify(kernel).body[-1], LastTaskEpilogue)
    assert "last of n0:" in str(kernel)
    for own in (cuda(100), metal()):
        with pytest.raises(TensorbusError, match="last"):
            render(kernel, own)


def test_what_is_read_meanwhile_is_no_end() -> None:
    """A sum that something between needs stays a step of its own."""
    _, rows = lowered(LOSSES["read meanwhile"])
    assert all(len(steps_of(item)) == 1 for item in rows.steps)
