"""Traces a function into a graph, lowers it, and runs the program in C beside the eager result."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus.backend_interface.graph import Graph, Node
from tensorbus.decompose.decompose import decompose
from tensorbus.decompose.tracer import PRIMS
from tensorbus.dtypes import definition as dt
from tensorbus.graph.passes.simplify import simplify
from tensorbus.graph.verify import verify as verify_graph
from tensorbus.lowering.codegen.render import render
from tensorbus.lowering.ir.builder import RuntimeArg, fit
from tensorbus.lowering.ir.kernel_task import ERROR_SLOT, KernelLaunch, LibraryCall
from tensorbus.lowering.ir.layout import Layout, packed
from tensorbus.lowering.program.lower import lower
from tensorbus.lowering.program.program import ParallelBatch, Program, steps_of
from tensorbus.lowering.program.verify import verify_program
from tensorbus.lowering.target import Target
from tensorbus.ops.definition import Spec

LIBRARY = frozenset({"matmul"})
CPU = Target(tasks_to_fill=64, work_items_to_fill=64, lanes=64, last_task_epilogue=True)
THIN = Target(tasks_to_fill=8, work_items_to_fill=256, lanes=4, row_per_task=False, tile_rows=4)


def spec(*shape: int, dtype: dt.DType = dt.float32) -> Spec:
    return Spec(shape, dtype)


def record(function: Callable[..., Any], *specs: Spec) -> Graph:
    """Return the graph of a function of tensors."""
    inputs = tuple(Node(op="input", attrs={"index": k}, spec=s) for k, s in enumerate(specs))
    made = function(*map(PRIMS.wrap, inputs))
    outputs = made if isinstance(made, tuple | list) else (made,)
    return Graph(inputs=inputs, outputs=tuple(x._value for x in outputs))


def program_of(
    graph: Graph, target: Target = CPU, scalars: Sequence[int] = (), replaces: dict[int, int] | None = None
) -> tuple[Graph, Program]:
    """Return the simplified graph and its program; ``scalars`` are the inputs that are Python numbers."""
    graph = verify_graph(simplify(decompose(graph, LIBRARY.__contains__)))
    layouts = [None if k in scalars else packed(k, n.spec.shape) for k, n in enumerate(graph.inputs)]
    program = lower(graph, layouts, target, library=LIBRARY, replaces=replaces)
    return graph, verify_program(program, layouts)


def steps_by_name(program: Program) -> list[str]:
    """Return the steps: calls, kernels, and the different kernels of a batch joined by ``+``."""
    found = []
    for item in program.steps:
        if isinstance(item, LibraryCall):
            found.append(f"call {item.op}")
        elif isinstance(item, ParallelBatch):
            names = {id(s.launch.kernel): s.launch.kernel.name for s in item.steps}
            found.append("+".join(names.values()))
        else:
            found.append(item.launch.kernel.name)
    return found


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
        given = [
            fit(values[v.operand], graph.inputs[v.operand].spec.dtype) if v.what == "scalar" else v.plus
            for v in late
        ]
        run = compiler.prepare(render(step.launch.kernel, compiler.dialect(0)), step.launch, 0)
        run([buffers[s] for s in step.slots], given)

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


def check(
    function: Callable[..., Any],
    *arrays: Any,
    tolerance: float = 1e-5,
    replaces: dict[int, int] | None = None,
    target: Target = CPU,
) -> Program:
    """Hold a program against the same function run eagerly; return the program."""
    specs = [Spec(np.shape(a), dt.dtype(str(a.dtype))) for a in arrays]
    graph, program = program_of(record(function, *specs), target, replaces=replaces)
    made = function(*(tb.asarray(a.copy()) for a in arrays))
    wanted = made if isinstance(made, tuple | list) else (made,)
    for in_place in (False, True) if program.replaceable else (False,):
        for g, w in zip(execute(program, graph, arrays, in_place), wanted, strict=True):
            np.testing.assert_allclose(
                g.astype("f8"), w.detach().numpy().astype("f8"), rtol=tolerance, atol=tolerance
            )
    return program


def with_gradients(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    """Return a function that takes its result's gradient as well, and adds those of ``count`` operands."""

    def run(*given: Any) -> Any:
        *arguments, g = given
        for x in arguments[:count]:
            x.requires_grad_()
        out = function(*arguments)
        out.backward(g)
        return (out, *(x.grad for x in arguments[:count]))

    return run
