"""The stage before fusion groups: which nodes of a graph get a buffer, and where each value lies.

A kernel computes everything elementwise, moved or gathered that stands before it. A buffer is made for
outputs, for reductions, scans, products and scatters, and where computing twice would cost more than storing
once; what is then read in one kernel only needs none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Final

from ...backend_interface.graph import Graph, Node
from ...backend_interface.strided_array import row_major
from ...dtypes.definition import DType
from ...ops.definition import table
from ..ir.layout import Layout, ordered, packed, view
from ..library import Calls, Library, is_call
from ..op_sets import ATTENTION, ELEMENTWISE
from ..target import Target
from .concat_in_place import Concatenation, joins
from .materialize import choose_buffers, fused_operands

_ROWS_APART: Final = ELEMENTWISE | {"broadcast_to", "reshape"}
"""The ops whose results any schedule of theirs stores with rows apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweringInput:
    """The input of every stage behind the graph passes: the graph, where its inputs lie, and the target.

    ``nodes`` are those of the graph in order, ``calls`` the ones that the device runs by calls of its own.
    The other fields are the arguments of ``lower``.
    """

    graph: Graph
    nodes: Sequence[Node]
    calls: Collection[Node]
    inputs: Sequence[Layout | None]
    target: Target
    library: Calls
    sized: bool
    replaces: Mapping[int, int]

    @classmethod
    def of(
        cls, graph: Graph, inputs: Sequence[Layout | None], target: Target, library: Calls, *, sized: bool,
        replaces: Mapping[int, int],
    ) -> LoweringInput:  # fmt: skip
        """Return the input of the stages, with the calls of the graph."""
        nodes = tuple(graph)
        calls = {node for node in nodes if is_call(node, library)}
        return cls(
            graph=graph, nodes=nodes, calls=calls, inputs=inputs, target=target, library=library,
            sized=sized, replaces=replaces,
        )  # fmt: skip

    @property
    def whole(self) -> bool:
        """Whether the device has calls of its own: the graph is then a whole program."""
        return self.library is not None

    @property
    def reuses(self) -> bool:
        """Whether it matters which buffers may become one."""
        return self.whole or bool(self.replaces)


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferPlacement:
    """The place of each value, by the id of its node.

    ``where`` has the layouts of what has a buffer or is a view of one, ``scalars`` the numbers of the inputs
    that are Python scalars. ``buffered`` are the ids of the nodes whose buffers the program fills itself;
    ``sizes`` has the elements and dtypes of these, by their slots, all below ``next_slot``.
    """

    where: Mapping[int, Layout]
    scalars: Mapping[int, int]
    buffered: frozenset[int]
    sizes: Mapping[int, tuple[int, DType]]
    next_slot: int

    def without(self, nodes: Collection[int]) -> BufferPlacement:
        """Return the placement without the buffers of some nodes, which are computed where they are read."""
        gone = {self.where[key].slot for key in nodes}
        return replace(
            self,
            where={key: layout for key, layout in self.where.items() if key not in nodes},
            buffered=self.buffered.difference(nodes),
            sizes={slot: size for slot, size in self.sizes.items() if slot not in gone},
        )


def place(asked: LoweringInput) -> BufferPlacement:
    """Return where every node lies that gets a buffer or is a view of one."""
    nodes, calls = asked.nodes, asked.calls
    where: dict[int, Layout] = {}
    scalars: dict[int, int] = {}
    for k, node in enumerate(asked.graph.inputs):
        layout = asked.inputs[k]
        if layout is None:
            scalars[id(node)] = k
        else:
            where[id(node)] = layout
    wanted, read = _wanted(asked), read_by_calls(calls)
    whole = {id(x) for call in calls if call.op in table and table[call.op].ordered for x in call.inputs}
    concats = joins(nodes, calls, asked.graph.outputs)
    buffered: set[int] = set()
    sizes: dict[int, tuple[int, DType]] = {}
    for node in nodes:
        if id(node) in where or id(node) in scalars:
            continue
        source = where.get(id(node.inputs[0])) if node.inputs else None
        moved = None if source is None or node in calls else view(node, source)
        if moved is not None and (moved.is_contiguous or id(node) not in whole):
            where[id(node)] = moved
        elif id(node) in wanted:
            buffered.add(id(node))
            slot = len(asked.inputs) + len(sizes)
            concat = concats.get(id(node))
            if concat is not None and (parts := _in_concat(asked, concat, slot, where)) is not None:
                sizes[slot] = prod(concat.whole.spec.shape), node.spec.dtype
                where |= parts
            elif _in_place(asked, node, buffered):
                where[id(node)] = where[id(node.inputs[0])]
            else:
                if id(node) in whole:  # what communicates takes values in C order
                    size, where[id(node)] = prod(node.spec.shape), packed(slot, node.spec.shape)
                else:
                    size, where[id(node)] = _new_buffer(asked, node, slot, where, read)
                sizes[slot] = size, node.spec.dtype
    return BufferPlacement(
        where=where, scalars=scalars, buffered=frozenset(buffered), sizes=sizes,
        next_slot=len(asked.inputs) + len(sizes),
    )  # fmt: skip


def _wanted(asked: LoweringInput) -> set[int]:
    """Return the ids of the nodes that want a buffer, or to be a view of one."""
    within = set[Node]()
    if asked.whole:
        within = fused_operands(
            asked.graph, asked.nodes, asked.calls, asked.target.heuristics, packs=asked.target.row_per_task
        )
    wanted = choose_buffers(
        asked.graph, asked.nodes, asked.calls, asked.target.heuristics, whole=asked.whole,
        buffers=asked.target.max_buffers, within=within,
    )  # fmt: skip
    products = [n for n in asked.nodes if n.op == "matmul" or n.op in ATTENTION or n in asked.calls]
    wanted |= {id(x) for n in products for x in n.inputs if x not in within}
    return wanted | {id(n) for n in asked.graph.outputs}


def read_by_calls(calls: Collection[Node]) -> set[int]:
    """Return the ids of what calls read, also behind views of it."""
    ids: set[int] = set()
    for call in calls:
        for node in call.inputs:
            ids.add(id(node))
            while node.op in ("reshape", "permute_dims"):
                node = node.inputs[0]
                ids.add(id(node))
    return ids


def _new_buffer(
    asked: LoweringInput, node: Node, slot: int, where: Mapping[int, Layout], read: Collection[int]
) -> tuple[int, Layout]:
    """Return the elements of a node's buffer, and its layout: packed, unless a call has its rows apart."""
    shape, library, row_stride = node.spec.shape, asked.library, 0
    order = _order(asked, node, where)
    if order:
        return prod(shape), ordered(slot, shape, order)
    if type(library) is Library and shape:
        if node in asked.calls and not (node.op in table and table[node.op].results):
            row_stride = library.row_stride(node, [where.get(id(x)) for x in node.inputs])
        elif id(node) in read and node.op in _ROWS_APART:
            row_stride = library.row_stride(node, ())
    if not row_stride:
        return prod(shape), packed(slot, shape)
    return prod(shape[:-1]) * row_stride, Layout(slot, shape, row_major((*shape[:-1], row_stride)))


def _in_concat(
    asked: LoweringInput, concat: Concatenation, slot: int, where: Mapping[int, Layout]
) -> Mapping[int, Layout] | None:
    """Return where the results of calls lie in their concatenation; None where the calls cannot do it."""
    if any(result_orders(asked, x.inputs[0], where) is None for x in concat.parts):
        return None
    return concat.layouts(slot)


def result_orders(
    asked: LoweringInput, call: Node, where: Mapping[int, Layout]
) -> Sequence[tuple[int, ...]] | None:
    """Return in which order the axes of a call's results lie best; None where they must be in C order."""
    library = asked.library
    if type(library) is not Library or call not in asked.calls:
        return None
    return library.axis_orders(call, [where.get(id(x)) for x in call.inputs])


def _order(asked: LoweringInput, node: Node, where: Mapping[int, Layout]) -> tuple[int, ...]:
    """Return in which order the axes of a call's result lie; nothing: in C order."""
    call = node.inputs[0] if node.op == "result" else node
    orders = result_orders(asked, call, where)
    if not orders or (node is call and node.op in table and table[node.op].results):
        return ()
    return orders[node.attrs["index"] if node.op == "result" else 0]


def _in_place(asked: LoweringInput, node: Node, buffered: Collection[int]) -> bool:
    """Return whether a call writes its result over its first operand, which nobody else reads."""
    library = asked.library
    if type(library) is not Library or node not in asked.calls or not library.in_place(node):
        return False
    x = node.inputs[0]
    uses = sum(n is x for n in (*asked.graph.outputs, *(i for n in asked.nodes for i in n.inputs)))
    return id(x) in buffered and uses == 1 and x.spec == node.spec
