"""The nodes of a graph that get a buffer, before kernels are made: those costly, shared, or read many times.

Everything else is computed inside the kernels that want it. Nodes chosen here may still end inside one
kernel, where all that read them do: then they get none after all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import Final

from ...backend_interface.graph import Graph, Node
from ...backend_interface.strided_array import row_major
from ...tracing.sym_int import near
from ..heuristics import Heuristics
from ..ir.layout import Layout, view
from ..op_sets import (
    ELEMENTWISE,
    INSIDE,
    REDUCTIONS,
    SCHEDULED,
    SORTS,
    calls_function,
)
from .access_map import own_access, picked

_ONCE: Final = frozenset({"concat", "pad", "slice_update", "reshape", "permute_dims", "slice", "flip"})
_VIEWS: Final = frozenset({"reshape", "permute_dims", "broadcast_to"})
_CUTS: Final = _VIEWS | {"slice"}
_ELSEWHERE: Final = frozenset({"input", "constant", "slice", "flip", "windows"})
"""What may lie anywhere, so that views of it are known only once it does."""
_TOP: Final = 1 << 20
_NONE: Final[frozenset[Node]] = frozenset()


def is_stack(node: Node, cost: int, limits: Heuristics) -> bool:
    """Return whether a concat is of computed operands, all of one shape."""
    return (
        node.op == "concat" and cost > limits.fuse_cheap_ops and len({x.spec.shape for x in node.inputs}) == 1
    )


def cost_of(graph: Graph, limits: Heuristics) -> int:
    """Return what an element of a graph costs, counted in simple ops."""
    return sum(limits.function_ops if calls_function(node.op) else node.op in ELEMENTWISE for node in graph)


def is_computed_stack(node: Node, limits: Heuristics) -> bool:
    """Return whether a node is a stack by the cost of all that is behind it, as far as one has to look."""
    cheap = limits.fuse_cheap_ops
    if not is_stack(node, cheap + 1, limits):
        return False
    cost, seen, left = 0, {node}, [node]
    while left and cost <= cheap:
        at = left.pop()
        cost += limits.function_ops if calls_function(at.op) else at.op in ELEMENTWISE
        left += {*at.inputs} - seen
        seen.update(at.inputs)
    return cost > cheap


def fused_operands(
    graph: Graph, nodes: Sequence[Node], calls: Collection[Node], limits: Heuristics, *, packs: bool
) -> set[Node]:
    """Return the operands of generated products that are computed inside them, for them alone.

    Right ones as they are packed, where the device ``packs`` them. Left ones where they are read, once for
    each few columns of the result: where there are few, and a few simple ops make an element.
    """
    products = [node for node in nodes if node.op == "matmul" and node not in calls]
    if not products:
        return set()
    uses = Counter([*graph.outputs, *(x for node in nodes for x in node.inputs)])
    candidates = [node.inputs[1] for node in products] if packs else []
    few = [n.inputs[0] for n in products if n.spec.shape[-1] <= limits.matmul_computed_max_columns]
    candidates += [x for x in few if _is_cheap(x, calls, limits)]
    return {x for x in candidates if x.op in ELEMENTWISE and uses[x] == 1}


def _is_cheap(node: Node, calls: Collection[Node], limits: Heuristics) -> bool:
    """Return whether a few simple ops make a value of what lies in buffers."""
    visited = {node: None}
    left = [node]
    while left:
        for x in left.pop().inputs:
            is_stored = x.op in SCHEDULED or x.op in ("input", "constant", "result") or x in calls
            if is_stored or x in visited:
                continue
            visited[x] = None
            left.append(x)
            if len(visited) > limits.fuse_cheap_ops:
                return False
    return all(x.op in _VIEWS or (x.op in ELEMENTWISE and not calls_function(x.op)) for x in visited)


def choose_buffers(
    graph: Graph, nodes: Sequence[Node], calls: Collection[Node], limits: Heuristics, *, whole: bool,
    buffers: int = 0, within: Collection[Node] = (),
) -> set[int]:  # fmt: skip
    """Return the ids of the nodes that get a buffer; ``calls`` are run whole by the device, where it can.

    ``buffers`` is how many a kernel may have, 0: any number. Operands in ``within`` are computed by products.
    """
    cost: dict[Node, int] = {}
    size: dict[Node, int] = {}
    reads: dict[Node, frozenset[Node]] = {}
    sizes = {node: near(prod(node.spec.shape)) for node in nodes}
    wanted = {_base(node) if whole else node for node in graph.outputs}
    wanted |= _parts(nodes, calls, buffers - 1) if buffers else _NONE
    wanted |= _partial_sums(graph, nodes, calls, limits) if whole else _NONE
    for node in nodes:
        op = node.op
        is_scheduled = op in SCHEDULED or op == "result" or node in calls or INSIDE in node.attrs
        own = _own_cost(op, limits)
        if is_scheduled or op == "input":
            cost[node] = own
            size[node] = 0 if is_scheduled else 1
            reads[node] = frozenset((node,)) if sizes[node] > 1 else _NONE
            continue
        operands = node.inputs
        before = sum([0 if _recompute_is_expensive(node, x, cost, limits) else cost[x] for x in operands])
        cost[node] = min(own + before, _TOP)
        size[node] = 1 + sum([size[x] for x in operands])
        reads[node] = reads[operands[0]] if len(operands) == 1 else _NONE.union(*[reads[x] for x in operands])
        if size[node] > limits.kernel_max_ops and op in ELEMENTWISE:
            wanted.add(node)
            size[node] = 0
            cost[node] = 1
            reads[node] = frozenset((node,))
    wholes = _split_sources(nodes, calls) if whole else {}
    readers: dict[Node, set[Node]] = {node: set() for node in nodes}
    for node in reversed(nodes):
        op, called = node.op, node in calls
        readers_of = readers[node]
        count = len(readers_of)
        if op in SCHEDULED or op == "result" or called or INSIDE in node.attrs:
            wanted.add(node)
        elif count > 1 and op not in ("input", "constant"):
            least = sizes[node] // 2
            loads = sum([sizes[x] > least for x in reads[node]])
            if cost[node] > limits.fuse_cheap_ops or (whole and count * loads > count + loads + 1):
                wanted.add(node)
        if (op == "concat" and is_stack(node, cost[node], limits)) or (
            whole and _is_made_of_rows(node, limits)
        ):
            wanted.add(node)
        mine = {node} if node in wanted else readers_of
        for x in node.inputs:
            readers[x] |= mine
            if x in within:
                continue
            if op == "matmul" or called:
                base = _base(x) if whole else x
                wanted.add(wholes.get(base, base))
                continue
            rows = not whole and op in REDUCTIONS and len(x.spec.shape) - 1 in node.attrs["axis"]
            again = op in SORTS and cost[x] > 0  # an element is read in each pass
            if (
                again
                or (rows and cost[x] >= limits.function_ops)
                or _recompute_is_expensive(node, x, cost, limits)
            ):
                wanted.add(x)
    shown = set(graph.outputs)
    return {id(node) for node in nodes if node in wanted and (node.op != "constant" or node in shown)}


def _own_cost(op: str, limits: Heuristics) -> int:
    """Return what an element of a node costs beside its operands, counted in simple ops."""
    if calls_function(op):
        return limits.function_ops
    return limits.gather_ops if op == "gather" else int(op in ELEMENTWISE)


def _parts(nodes: Sequence[Node], calls: Collection[Node], most: int) -> set[Node]:
    """Return what gets a buffer so that no node needs more than ``most`` others to be computed.

    A node has fewer operands than that: see ``joins.short``.
    """
    buffered: set[Node] = set()
    needs: dict[Node, frozenset[Node]] = {}
    for node in nodes:
        operand_needs = {x: needs[x] for x in node.inputs}
        while len(whole := _NONE.union(*operand_needs.values())) > most:
            x = max(operand_needs, key=lambda x: len(operand_needs[x]))
            if len(operand_needs[x]) == 1:
                break
            buffered.add(x)
            operand_needs[x] = needs[x] = frozenset((x,))
        alone = (
            node.op in SCHEDULED or node.op in ("input", "result") or node in calls or INSIDE in node.attrs
        )
        needs[node] = frozenset((node,)) if alone else whole
    return buffered


def large_products(
    nodes: Sequence[Node], calls: Collection[Node], uses: Mapping[Node, int], limits: Heuristics
) -> set[Node]:
    """Return the products and results of calls that one reader alone keeps much memory for."""
    return {
        node
        for node in nodes
        if (node.op == "matmul" or node in calls)
        and uses.get(node, 0) == 1
        and near(prod(node.spec.shape)) * node.spec.dtype.itemsize >= limits.lend_min_bytes
    }


def _partial_sums(
    graph: Graph, nodes: Sequence[Node], calls: Collection[Node], limits: Heuristics
) -> set[Node]:
    """Return what gets a buffer so that no kernel waits for many large products that it alone reads."""
    uses = Counter([*graph.outputs, *(x for node in nodes for x in node.inputs)])
    products = large_products(nodes, calls, uses, limits)
    buffered: set[Node] = set()
    held: dict[Node, frozenset[Node]] = {}
    for node in nodes:
        if node in products:
            held[node] = frozenset((node,))
        elif node.op in ELEMENTWISE or node.op in _VIEWS:
            parts = {x: held[x] for x in node.inputs if uses[x] == 1}
            while len(whole := _NONE.union(*parts.values())) > limits.sum_max_products:
                x = max(parts, key=lambda x: len(parts[x]))
                if len(parts[x]) == 1:
                    break
                buffered.add(_base(x))
                parts[x] = frozenset((x,))
            held[node] = whole
        else:
            held[node] = _NONE
    return buffered


def _recompute_is_expensive(node: Node, x: Node, cost: Mapping[Node, int], limits: Heuristics) -> bool:
    """Return whether ``node`` needs each element of a costly operand ``x`` more than once.

    One function for a row, of what lies there, costs less than a kernel of its own.
    """
    times = near(prod(node.spec.shape)) // max(near(prod(x.spec.shape)), 1)
    if node.op in _ONCE or times < 2:
        return False
    often = times >= limits.fuse_max_repeats and cost[x] > limits.fuse_cheap_ops
    if often and _row_of(node, x) == 1:
        return True
    if cost[x] < limits.fuse_long_ops:
        return False
    shared = _row_of(node, x) >= limits.fuse_min_shared_row
    return cost[x] >= 3 * limits.fuse_long_ops or not shared or not _is_short(x, limits)


def _is_made_of_rows(node: Node, limits: Heuristics) -> bool:
    """Return whether a node takes one element of each row of what is computed of whole rows.

    The kernel that goes over the rows has it at hand; for another one all of them would have to be kept.
    """
    if node.op != "gather" or (pick := picked(node, own_access(node.spec.shape))) is None:
        return False
    stack = [node.inputs[0]]
    for x in stack:
        if x.op in REDUCTIONS:
            return pick[0] in x.attrs["axis"]
        if len(stack) <= limits.fuse_cheap_ops and x.op in ELEMENTWISE:
            stack += x.inputs
    return False


def _split_sources(nodes: Sequence[Node], calls: Collection[Node]) -> dict[Node, Node]:
    """Return what is computed and then cut up for calls, by its cuts: one buffer shows them all."""
    cuts: dict[Node, dict[Node, None]] = {}
    for node in nodes:
        if node.op == "matmul" or node in calls:
            for x in node.inputs:
                base, source = _base(x), _view_source(x, _CUTS)
                if base is x is not source and source.op in ELEMENTWISE:
                    cuts.setdefault(source, {})[x] = None
    return {
        cut: source for source, parts in cuts.items() for cut in parts
        if sum(prod(x.spec.shape) for x in parts) >= prod(source.spec.shape)
    }  # fmt: skip


def _is_short(x: Node, limits: Heuristics) -> bool:
    """Return whether a few ops make a node of inputs."""
    stack = [x]
    for node in stack:
        if node.op in SCHEDULED or len(stack) > limits.fuse_cheap_ops:
            return False
        stack += [y for y in node.inputs if y.op not in ("input", "constant")]
    return True


def _row_of(node: Node, x: Node) -> int:
    """Return how many elements of ``node``, side by side, need the same one of ``x``."""
    elements = 1
    if node.op not in ELEMENTWISE and node.op != "broadcast_to":
        return elements
    lead = len(node.spec.shape) - len(x.spec.shape)
    for k in reversed(range(len(node.spec.shape))):
        if k >= lead and x.spec.shape[k - lead] != 1:
            break
        elements *= node.spec.shape[k]
    return elements


def _base(node: Node) -> Node:
    """Return the node whose buffer, once there is one, shows ``node`` as a view: itself, or one before it."""
    base = _view_source(node, _VIEWS)
    return node if base.op in _ELSEWHERE else base


def _view_source(node: Node, ops: Collection[str]) -> Node:
    """Return the node whose packed buffer shows ``node`` through some of ``ops``; itself where none does."""
    chain = [node]
    while chain[-1].op in ops:
        chain.append(chain[-1].inputs[0])
    base = chain[-1]
    seen: Layout | None = Layout(0, base.spec.shape, row_major(base.spec.shape))
    for step in reversed(chain[:-1]):
        seen = view(step, seen) if seen is not None else None
    return node if seen is None else base
