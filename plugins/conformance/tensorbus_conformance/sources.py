"""The sources that a dialect's device would run for every sample call, without the device.

Where no such hardware is, the sources can still be compiled, or run by another compiler.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tensorbus import Tensor
from tensorbus.backend_interface.graph import Graph, Node
from tensorbus.decompose.tracer import graph_of_op, trace
from tensorbus.dtypes import definition as dt
from tensorbus.dtypes.definition import DType
from tensorbus.lowering.codegen.dialect import Dialect
from tensorbus.lowering.ir.layout import Layout, packed
from tensorbus.lowering.op_sets import ELEMENTWISE, SCHEDULED, accumulator
from tensorbus.lowering.program.lower import lower
from tensorbus.lowering.program.program import Program
from tensorbus.ops.definition import Op, Spec, table
from tensorbus.testing.coverage import TRANSFER, is_good
from tensorbus.testing.sample import samples_of

from .examination import all_ops
from .trial import HOST, Bound, Trial

_MOVES = frozenset(
    """input constant result broadcast_to permute_dims slice flip windows reshape pad concat slice_update
    gather iota full""".split()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A sample call, its graph, and the program that a device of the dialect would run for it.

    Operands lie packed, in slots of their own from 0; Python numbers have no slot.
    """

    trial: Trial
    bound: Bound
    graph: Graph
    program: Program


def planned(dialect: Dialect, ops: Iterable[str] = (), dtypes: Iterable[DType] = dt.ALL) -> Iterator[Planned]:
    """Yield the sample calls of ``ops`` (all) in ``dtypes``, as far as the dialect has them.

    Calls that the code generator has no schedule for are left out: those of factorizations, for example.
    """
    all_ops()
    kinds = [d for d in dtypes if d in dialect.types]
    for op in [table[name] for name in ops] or [op for op in table if op.family != TRANSFER]:
        for d in kinds:
            if d in op.dtypes:
                yield from _calls(op, d, dialect)


def _calls(op: Op[...], dtype: DType, dialect: Dialect) -> Iterator[Planned]:
    for place, sample in enumerate(samples_of(op)):
        if not is_good(sample, dtype):
            continue
        trial = Trial(op=op, device=HOST, dtype=dtype, sample=sample, place=place)
        bound = trial.bind(trial.tensors())
        graph = _graph(op, bound)
        if not all(_is_covered(node, dialect) for node in graph):
            continue
        inputs: list[Layout | None] = [
            packed(k, x.shape) if isinstance(x, Tensor) else None for k, x in enumerate(bound.operands)
        ]
        program = lower(graph, inputs, dialect.target, op.family != "elementwise")
        yield Planned(trial=trial, bound=bound, graph=graph, program=program)


def _graph(op: Op[...], bound: Bound) -> Graph:
    """Return the op itself where a schedule knows it, else its decomposition."""
    specs = tuple(
        Spec(x.shape if isinstance(x, Tensor) else (), d)
        for x, d in zip(bound.operands, bound.plan.computed, strict=True)
    )
    if op.name not in ELEMENTWISE | SCHEDULED:
        return trace(op.name, specs, bound.attrs)
    return graph_of_op(op.name, specs, bound.attrs)


def _is_covered(node: Node, dialect: Dialect) -> bool:
    """Return whether schedules know the op, and the dialect the dtypes that it computes in."""
    known = node.op in ELEMENTWISE or node.op in SCHEDULED or node.op in _MOVES
    return known and {node.spec.dtype, accumulator(node.spec.dtype)} <= dialect.types.keys()
