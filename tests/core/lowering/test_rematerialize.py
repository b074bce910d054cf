"""Values that backward needs of forward: stored, or recomputed by the kernels that read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorbus as tb
from fused import CPU, THIN, program_of, record, spec
from fused_programs import SIDE, trained
from tensorbus.dtypes import definition as dt
from tensorbus.lowering.heuristics import Heuristics
from tensorbus.lowering.program.program import Program, steps_of

F = tb.nn.functional
assert Heuristics().recompute_min_elements <= SIDE * SIDE


def kernels_of(program: Program) -> list[list[str]]:
    """Return the dtypes of what each kernel writes."""
    return [
        [str(b.dtype).removeprefix("tensorbus.") for b in step.launch.kernel.buffers if b.writes]
        for item in program.steps for step in steps_of(item)
    ]  # fmt: skip


def kept_by(step: Callable[..., Any], side: int, dtype: dt.DType, target: Any) -> int:
    """Return how many buffers of the layer's size the first kernel writes."""
    operand = spec(side, side, dtype=dtype)
    _, program = program_of(record(step, operand, operand), target)
    return len(kernels_of(program)[0])


@pytest.mark.parametrize("act", [F.gelu, lambda x: F.gelu(x, approximate="tanh"), F.silu, tb.tanh])
def test_a_function_of_what_backward_reads_is_computed_again(act: Callable[[Any], Any]) -> None:
    for dtype in (dt.float32, dt.bfloat16):
        assert kept_by(trained(act), SIDE, dtype, THIN) == 1


def test_small_values_and_costly_ones_are_kept() -> None:
    def cubed(x: Any) -> Any:  # three functions: more than reading what they give
        return x * tb.tanh(tb.exp(tb.sin(x)))

    assert kept_by(trained(F.silu), 16, dt.float32, THIN) == 2
    assert kept_by(trained(cubed), SIDE, dt.float32, THIN) > 1


def test_functions_that_a_processor_calls_one_by_one_are_kept() -> None:
    assert kept_by(trained(F.silu), SIDE, dt.float32, CPU) == 2


def test_what_is_shown_stays() -> None:
    def step(x: Any, w: Any) -> Any:
        x.requires_grad_()
        inner = tb.sigmoid(x)
        out = (x * inner) @ w
        (out * out).sum().backward()
        return inner, x.grad

    operand = spec(SIDE, SIDE)
    _, program = program_of(record(step, operand, operand), THIN)
    assert len(kernels_of(program)[0]) == 2
