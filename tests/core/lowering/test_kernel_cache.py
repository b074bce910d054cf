"""Fusion groups that are scheduled once: equal ones share a kernel, others that only look equal do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from fused import CPU, program_of, record, spec
from fused_programs import layers
from tensorbus.dtypes import definition as dt
from tensorbus.lowering.fusion import kernel_cache as repeated
from tensorbus.lowering.ir.kernel_task import KernelLaunch
from tensorbus.lowering.ir.layout import Layout, packed
from tensorbus.lowering.library import Library
from tensorbus.lowering.program.lower import lower
from tensorbus.lowering.program.program import steps_of

RNG = np.random.default_rng(0)


def f(*shape: int) -> Any:
    return RNG.normal(size=shape).astype("f4")


def launches(function: Callable[..., Any], *arrays: Any) -> list[KernelLaunch]:
    _, program = program_of(record(function, *[spec(*x.shape) for x in arrays]))
    return [step for item in program.steps for step in steps_of(item)]


def test_layers_share_their_kernels() -> None:
    few, many = (launches(layers(n), f(64, 64), *[f(64, 64) for _ in range(n)]) for n in (3, 6))
    assert len(many) == len(few) + 3
    assert len({id(step.launch.kernel) for step in many}) == 3


def test_what_was_scheduled_once_is_found_again_in_another_program() -> None:
    (first,) = launches(lambda a, b: tb.tanh(a) * b + 1.25, f(5, 6), f(5, 6))
    other = launches(lambda c, a, b: (c.sum(), tb.tanh(a) * b + 1.25), f(9), f(5, 6), f(5, 6))
    assert any(step.launch.kernel is first.launch.kernel for step in other)


def test_few_schedules_are_kept() -> None:
    target = replace(CPU, heuristics=replace(CPU.heuristics, known_schedules=2))
    for n in range(3, 8):
        program_of(record(lambda a: tb.exp(a) + 1, spec(n)), target)
    assert len(repeated._known) <= 2


@pytest.mark.parametrize("own_first", [True, False])
def test_gaps_between_rows_are_walked_only_in_buffers_of_the_program(own_first: bool) -> None:
    def exponential(calls_before: bool) -> KernelLaunch:
        function = (lambda x, w: tb.exp(x @ w) @ w) if calls_before else (lambda x, w: tb.exp(x) @ w)
        graph = record(function, spec(4, 5), spec(5, 5))
        apart = Layout(0, (4, 5), (8, 1))
        library = Library(frozenset({"matmul"}), {dt.float32}, row_stride=lambda node, x: 8)
        program = lower(graph, [apart, packed(1, (5, 5))], CPU, library=library)
        (launch,) = [s for item in program.steps for s in steps_of(item)]
        return launch

    repeated._known.clear()
    launches = {own: exponential(own) for own in (own_first, not own_first)}
    assert launches[True].launch.grid == (32,)
    assert sorted(launches[False].launch.grid) == [4, 5]
