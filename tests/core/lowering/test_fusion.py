"""Fusion: whole programs, counted by kernels. What they compute: tests/cpu/test_fused_programs.py."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import tensorbus as tb
from fused import CPU, THIN, program_of, record, spec, steps_by_name
from fused_programs import FUSION, IN_PLACE, ORDER, OVER, lowered
from tensorbus.backend_interface.graph import Graph, Node
from tensorbus.errors import UnsupportedOpError
from tensorbus.lowering.ir.builder import RuntimeArg
from tensorbus.lowering.ir.kernel_task import KernelLaunch
from tensorbus.lowering.ir.layout import packed
from tensorbus.lowering.program.lower import lower
from tensorbus.lowering.program.program import ParallelBatch, steps_of

F = tb.nn.functional

STEPS = {
    "chain": ["tb_subtract"],
    "several outputs": ["tb_tanh_3"],
    "gather": ["tb_multiply"],
    "softmax": ["tb_rows_divide"],
    "short rows": ["tb_rows_divide"],
    "log_softmax": ["tb_rows_subtract"],
    "softmax, backward": ["tb_rows_multiply"],
    "layer norm": ["tb_rows_add"],
    "layer norm, backward": ["tb_rows_multiply", "tb_sum_2_panels", "tb_sum_2_rest"],
    "an element of another row": ["tb_rows_add"],
    "rms norm": ["tb_rows_multiply"],
    "cross entropy": ["tb_rows_pick_sum_1"],
    "cross entropy, backward": ["tb_sum", "tb_rows_subtract_sum_1"],
    "linear and gelu": ["call matmul", "tb_multiply"],
    "linear and gelu, backward": [
        "call matmul",
        "tb_sum_3_panels",
        "tb_sum_3_rest",
        "call matmul",
        "call matmul",
    ],
    "embedding, backward": ["tb_gather", "tb_full", "tb_scatter_add"],
    "sums and a map of one operand": ["tb_sum_3_sum_3_rest"],
    "a map and its sum across rows": ["tb_sum_2_panels", "tb_sum_2_rest"],
    "attention": ["tb_multiply", "call matmul", "tb_rows_divide", "call matmul"],
}  # fmt: skip


@pytest.mark.parametrize("name", FUSION)
def test_a_program_takes_few_kernels(name: str) -> None:
    _, program = lowered(FUSION[name])
    assert steps_by_name(program) == STEPS[name], str(program)


def test_an_optimizer_is_one_kernel_in_place() -> None:
    _, program = lowered(IN_PLACE["an optimizer"])
    assert steps_by_name(program) == ["tb_subtract_3"]
    assert len(steps_of(program.steps[0])) == 8
    assert program.replaceable == OVER


def test_what_is_read_later_is_not_written_over() -> None:
    graph = record(lambda x, y: (x + 1, tb.cumulative_sum(x * y)), spec(100), spec(100))
    _, program = program_of(graph, replaces={0: 0})
    assert program.replaceable == {0: 0}
    assert steps_by_name(program)[-1] == "tb_add", "it waits for the other reader"
    turned = record(lambda x: tb.flip(x) + 1, spec(100))
    assert program_of(turned, replaces={0: 0})[1].replaceable == {}


def test_what_follows_a_product_at_its_own_elements_is_marked() -> None:
    graph = record(lambda x, w, b: F.gelu(F.linear(x, w, b)), spec(32, 64), spec(128, 64), spec(128))
    _, program = program_of(graph)
    (step,) = (s for item in program.steps for s in steps_of(item))
    assert step.epilogue_of == 0
    _, program = program_of(record(lambda x, w: tb.flip(tb.matmul(x, w), axis=0) + 1, spec(3, 4), spec(4, 5)))
    assert all(s.epilogue_of is None for item in program.steps for s in steps_of(item))


def test_costly_work_is_not_done_twice() -> None:
    text = str(lowered(ORDER["costly work"])[1])
    assert text.count("exp(") == 1, text


def test_a_long_program_is_cut_into_kernels_of_bounded_size() -> None:
    _, program = lowered(ORDER["a long program"])
    assert len(steps_by_name(program)) > 1
    assert all(str(kernel).count("\n") < 600 for kernel in program.kernels())


def test_a_number_of_each_run_is_a_parameter() -> None:
    _, program = program_of(record(lambda x, y: x * y + x, spec(50), spec()), scalars=(1,))
    (step,) = (s for item in program.steps for s in steps_of(item))
    (late,) = [value for value in step.launch.values if isinstance(value, RuntimeArg)]
    assert (late.what, late.operand) == ("scalar", 1)


def test_equal_small_steps_run_together_and_others_in_their_order() -> None:
    first, second = lowered(ORDER["equal steps"])[1].steps
    assert isinstance(first, KernelLaunch)
    assert isinstance(second, ParallelBatch)
    assert {id(s.launch.kernel) for s in second.steps} == {id(first.launch.kernel)}


@pytest.mark.parametrize("name", ["softmax", "layer norm, backward", "cross entropy, backward", "short rows"])
def test_light_items_share_rows(name: str) -> None:
    _, program = lowered(replace(FUSION[name], target=THIN))
    rows = [s.launch for item in program.steps for s in steps_of(item) if "tb_rows" in s.launch.kernel.name]
    assert rows
    for launch in rows:
        assert ("barrier" in str(launch.kernel)) == (name != "short rows")
        assert launch.group == (launch.grid[0] if name != "short rows" else 0)


def test_an_op_that_nobody_can_generate_is_refused_without_calls() -> None:
    x = Node(op="input", attrs={"index": 0}, spec=spec(3, 3))
    root = Node(op="cholesky", inputs=(x,), spec=spec(3, 3))
    graph = Graph(inputs=(x,), outputs=(root,))
    with pytest.raises(UnsupportedOpError, match="cholesky"):
        lower(graph, [packed(0, (3, 3))], CPU)
    program = lower(graph, [packed(0, (3, 3))], CPU, library=frozenset())
    assert steps_by_name(program) == ["call cholesky"]


@pytest.mark.parametrize("name", ORDER)
def test_steps_come_after_what_they_read(name: str) -> None:
    """The verifier of programs refuses others, and a kernel that waits for itself is no program at all."""
    _, program = lowered(ORDER[name])
    assert program.outputs


SCRIPT = """
from fused_programs import FUSION, IN_PLACE, lowered
for case in (*FUSION.values(), IN_PLACE["an optimizer"]):
    junk = [object() for _ in range(hash(str(case)) % 1000)]
    print(lowered(case)[1])
"""


def test_equal_graphs_give_equal_programs_in_every_process() -> None:
    texts = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT], cwd=Path(__file__).parent, capture_output=True, text=True,
            check=True, env={"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin"},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(texts) == 1
