"""Which nodes of a graph get a buffer, before kernels are made: what is costly, shared, or read many times.

Everything else is computed inside the kernels that want it. Nodes chosen here may still end inside one
kernel, where all that read them do: then they get none after all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import Final

from ..graph.graph import Graph, Node
from ..strided import row_major
from .families import REDUCTIONS, SCANS, SORTS, Library
from .layout import Layout, view
from .pull import ELEMENTWISE, PULLED

ROOTS: Final = REDUCTIONS | frozenset(SCANS) | SORTS | {"matmul", "scatter"}
"""The ops that schedules of their own are written for."""
COSTLY: Final = frozenset(
    """power sqrt rsqrt exp expm1 log log1p log2 log10 sin cos tan asin acos atan sinh cosh tanh asinh acosh
    atanh atan2 erf floor_divide remainder""".split()
)
"""The ops that call a function for each element."""
CHEAP: Final = 6
LONG: Final = 50
CALL: Final = 100
GATHER: Final = 7
ROW: Final = 32
BODY: Final = 256
"""How many ops one kernel may have: compilers take more than proportional time for more."""
_ONCE: Final = frozenset({"concat", "pad", "slice_update", "reshape", "permute_dims", "slice", "flip"})
_VIEWS: Final = frozenset({"reshape", "permute_dims", "broadcast_to"})
_ELSEWHERE: Final = frozenset({"input", "constant", "slice", "flip", "windows"})
"""What may lie anywhere, so that views of it are known only once it does."""
_TOP: Final = 1 << 20
Calls = Library | Collection[str] | None
"""What a device runs by calls of its own; None where there are no calls."""


def is_call(node: Node, library: Calls) -> bool:
    """Return whether a node is run by a call of the device's: its own choice, or nobody can generate it."""
    if library is None or node.op in ("input", "constant", "result"):
        return False
    if node.op in library or not (node.op in PULLED or node.op in ROOTS):
        return True
    return type(library) is Library and library.lacks(node)


def is_stack(node: Node, cost: int) -> bool:
    """Return whether a concat is of computed operands, all of one shape."""
    return node.op == "concat" and cost > CHEAP and len({x.spec.shape for x in node.inputs}) == 1


def cost_of(graph: Graph) -> int:
    """Return what an element of a graph costs, counted in simple ops."""
    return sum(CALL if node.op in COSTLY else node.op in ELEMENTWISE for node in graph)


def materialized(graph: Graph, nodes: Sequence[Node], library: Calls) -> set[int]:
    """Return the ids of the nodes that get a buffer."""
    whole = library is not None
    cost: dict[int, int] = {}
    size: dict[int, int] = {}
    reads: dict[int, frozenset[int]] = {}
    sizes = {id(node): prod(node.spec.shape) for node in nodes}
    wanted: set[int] = set()
    for node in graph.outputs:
        wanted.add(id(_base(node) if whole else node))
    for node in nodes:
        made = node.op in ROOTS or is_call(node, library) or node.op == "result"
        own = CALL if node.op in COSTLY else GATHER if node.op == "gather" else node.op in ELEMENTWISE
        before = 0 if made else sum(0 if _dear(node, x, cost) else cost[id(x)] for x in node.inputs)
        cost[id(node)] = min(own + before, _TOP)
        size[id(node)] = 0 if made else 1 + sum(size[id(x)] for x in node.inputs)
        leaf = made or node.op == "input"
        reads[id(node)] = (
            frozenset({id(node)} if prod(node.spec.shape) > 1 else ())
            if leaf else frozenset().union(*(reads[id(x)] for x in node.inputs))
        )  # fmt: skip
        if size[id(node)] > BODY and node.op in ELEMENTWISE:
            wanted.add(id(node))
            size[id(node)] = 0
            cost[id(node)] = 1
            reads[id(node)] = frozenset({id(node)})
    readers: dict[int, set[int]] = {id(node): set() for node in nodes}
    for node in reversed(nodes):
        readers_of = readers[id(node)]
        least = prod(node.spec.shape) // 2
        count, loads = len(readers_of), sum(sizes[k] > least for k in reads[id(node)])
        shared = count > 1 and (cost[id(node)] > CHEAP or (whole and count * loads > count + loads + 1))
        shared = shared and node.op not in ("input", "constant")
        own = node.op in ROOTS or node.op == "result" or is_call(node, library)
        if own or shared or is_stack(node, cost[id(node)]):
            wanted.add(id(node))
        mine = {id(node)} if id(node) in wanted else readers_of
        for x in node.inputs:
            readers[id(x)] |= mine
            rows = not whole and node.op in REDUCTIONS and len(x.spec.shape) - 1 in node.attrs["axis"]
            again = node.op in SORTS and cost[id(x)] > 0  # an element is read in each pass
            dear = (cost[id(x)] >= CALL and rows) or _dear(node, x, cost)
            if node.op == "matmul" or is_call(node, library):
                wanted.add(id(_base(x) if whole else x))
            elif again or dear:
                wanted.add(id(x))
    return {
        id(node) for node in nodes
        if id(node) in wanted and (node.op != "constant" or any(node is o for o in graph.outputs))
    }  # fmt: skip


def _dear(node: Node, x: Node, cost: Mapping[int, int]) -> bool:
    """Return whether ``node`` needs each element of a costly operand ``x`` more than once.

    One function for a row, of what lies there, costs less than a kernel of its own.
    """
    grows = node.op not in _ONCE and prod(node.spec.shape) >= 2 * prod(x.spec.shape)
    if not grows or cost[id(x)] < LONG:
        return False
    return cost[id(x)] >= 3 * LONG or _row_of(node, x) < ROW or not _is_short(x)


def _is_short(x: Node) -> bool:
    """Return whether a few ops make a node of inputs."""
    found = [x]
    for node in found:
        if node.op in ROOTS or len(found) > CHEAP:
            return False
        found += [y for y in node.inputs if y.op not in ("input", "constant")]
    return True


def _row_of(node: Node, x: Node) -> int:
    """Return how many elements of ``node``, side by side, need the same one of ``x``."""
    found = 1
    if node.op not in ELEMENTWISE and node.op != "broadcast_to":
        return found
    lead = len(node.spec.shape) - len(x.spec.shape)
    for k in reversed(range(len(node.spec.shape))):
        if k >= lead and x.spec.shape[k - lead] != 1:
            break
        found *= node.spec.shape[k]
    return found


def _base(node: Node) -> Node:
    """Return the node whose buffer, once there is one, shows ``node`` as a view: itself, or one before it."""
    chain = [node]
    while chain[-1].op in _VIEWS:
        chain.append(chain[-1].inputs[0])
    base = chain[-1]
    if base.op in _ELSEWHERE:
        return node
    seen: Layout | None = Layout(0, base.spec.shape, row_major(base.spec.shape))
    for step in reversed(chain[:-1]):
        seen = view(step, seen) if seen is not None else None
    return node if seen is None else base
