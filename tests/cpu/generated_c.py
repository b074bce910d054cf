"""Runs programs of generated C on NumPy arrays, and holds them against the same ops, eager and in float64."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from fused_programs import FusedProgram, lowered
from tensorbus.backend_interface.graph import Graph
from tensorbus.dtypes import definition as dt
from tensorbus.lowering.codegen.render import render
from tensorbus.lowering.ir.builder import RuntimeArg, fit
from tensorbus.lowering.ir.kernel_task import ERROR_SLOT, KernelLaunch, LibraryCall
from tensorbus.lowering.ir.layout import Layout
from tensorbus.lowering.program.program import Program, steps_of

from error_bounds import assert_as_exact_as_eager


def execute(program: Program, graph: Graph, values: Sequence[Any], in_place: bool = False) -> list[Any]:
    """Run a program on NumPy arrays and Python numbers, with compiled C; products are NumPy's.

    ``in_place`` writes outputs over copies of the inputs whose place they take.
    """
    from tensorbus_cpu.compiler import NATIVE

    compiler = NATIVE.compiler()
    if not hasattr(os, "fork"):
        pytest.skip("C is compiled on Unix only")
    assert compiler is not None, "no C compiler"
    buffers: dict[int, Any] = {ERROR_SLOT: np.zeros(4, "i8")}
    for k, value in enumerate(values):
        if isinstance(value, np.ndarray):
            buffers[k] = np.array(value, order="C")
    for slot, (size, dtype) in program.sizes.items():
        buffers[slot] = np.full(size * dtype.itemsize, 0xA7, "u1").view(_numpy(dtype))

    for out, k in program.replaceable.items() if in_place else ():
        buffers[program.outputs[out].slot] = buffers[k]

    def view(x: Layout, dtype: dt.DType) -> Any:
        kind = _numpy(dtype)
        flat = buffers[x.slot].reshape(-1)[x.offset :]
        return np.lib.stride_tricks.as_strided(flat, x.shape, [s * kind.itemsize for s in x.strides])

    def launch(step: KernelLaunch) -> None:
        late = [v for v in step.launch.values if isinstance(v, RuntimeArg)]
        operands = [
            fit(values[v.operand], graph.inputs[v.operand].spec.dtype) if v.what == "scalar" else v.plus
            for v in late
        ]
        run = compiler.prepare(render(step.launch.kernel, compiler.dialect(0)), step.launch, 0)
        run([buffers[s] for s in step.slots], operands)

    for item in program.steps:
        if isinstance(item, LibraryCall):
            operands = [
                view(x, s.dtype)
                for x, s in zip(item.inputs, item.specs, strict=True)
                if isinstance(x, Layout)
            ]
            assert item.op == "matmul", item.op
            buffers[item.outputs[0]][...] = np.matmul(*operands).reshape(-1)
        for step in steps_of(item):
            launch(step)
    return [view(x, node.spec.dtype).copy() for x, node in zip(program.outputs, graph.outputs, strict=True)]


def _numpy(dtype: dt.DType) -> Any:
    return np.dtype("u1" if dtype is dt.bool_ else dtype.name)


def check(case: FusedProgram, message: str = "") -> None:
    """Run a program, over its operands too where it may replace them; hold it against the ops one by one."""
    graph, program = lowered(case)
    arrays = case.arrays()
    eager, exact = (_eagerly(case, arrays, wide) for wide in (False, True))
    for in_place in (False, True) if program.replaceable else (False,):
        actual = execute(program, graph, arrays, in_place)
        for f, e, x, node in zip(actual, eager, exact, graph.outputs, strict=True):
            if not node.spec.dtype.is_floating:
                np.testing.assert_array_equal(f, e, err_msg=message)
                continue
            assert_as_exact_as_eager(f, e, x, _operations(graph), node.spec.dtype, message)


def _eagerly(case: FusedProgram, arrays: Sequence[Any], wide: bool) -> list[Any]:
    floats = [wide and x.dtype.kind == "f" for x in arrays]
    result = case.function(
        *(tb.asarray(x.astype("f8") if w else x.copy()) for x, w in zip(arrays, floats, strict=True))
    )
    return [x.detach().numpy() for x in (result if isinstance(result, tuple | list) else (result,))]


def _operations(graph: Graph) -> int:
    """Return how many roundings may follow each other: the ops, and the terms of the longest sum."""
    longest, nodes = 1, list(graph)
    for node in nodes:
        size, widest = prod(node.spec.shape), max((prod(x.spec.shape) for x in node.inputs), default=0)
        longest = max(
            longest, node.inputs[0].spec.shape[-1] if node.op == "matmul" else widest // max(size, 1)
        )
    return longest + len(nodes)
