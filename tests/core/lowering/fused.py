"""Traces a function into a graph, and lowers it; tests/cpu runs such programs in C."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tensorbus.backend_interface.graph import Graph, Node
from tensorbus.decompose.decompose import decompose
from tensorbus.decompose.tracer import PRIMS
from tensorbus.dtypes import definition as dt
from tensorbus.graph.passes.simplify import simplify
from tensorbus.graph.verify import verify as verify_graph
from tensorbus.lowering.ir.kernel_task import LibraryCall
from tensorbus.lowering.ir.layout import packed
from tensorbus.lowering.program.lower import lower
from tensorbus.lowering.program.program import ParallelBatch, Program
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
    result = function(*map(PRIMS.wrap, inputs))
    outputs = result if isinstance(result, tuple | list) else (result,)
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
    results = []
    for item in program.steps:
        if isinstance(item, LibraryCall):
            results.append(f"call {item.op}")
        elif isinstance(item, ParallelBatch):
            names = {id(s.launch.kernel): s.launch.kernel.name for s in item.steps}
            results.append("+".join(names.values()))
        else:
            results.append(item.launch.kernel.name)
    return results


def with_gradients(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    """Return a function that takes its result's gradient as well, and adds those of ``count`` operands."""

    def run(*args: Any) -> Any:
        *arguments, g = args
        for x in arguments[:count]:
            x.requires_grad_()
        out = function(*arguments)
        out.backward(g)
        return (out, *(x.grad for x in arguments[:count]))

    return run
