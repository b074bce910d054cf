"""From a graph to launches: which nodes get a kernel of their own, and what each of those kernels reads.

A kernel pulls everything elementwise, moved or gathered that stands before it. A buffer is made for outputs,
for reductions, scans, products and scatters, and where computing twice would cost more than storing once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Final

from ..dtypes import DType
from ..graph.graph import Graph, Node
from .collapse import collapse
from .families import REDUCTIONS, SCANS, SORTS
from .job import Job, Step, Steps
from .layout import Layout, packed, view
from .matmul import lower_matmul
from .pointwise import lower_map, lower_stack
from .pull import ELEMENTWISE
from .reduce import lower_reduction
from .rows import lower_rows
from .scan import lower_scan
from .scatter import lower_scatter
from .sort import lower_sort
from .target import Target

ROOTS: Final = REDUCTIONS | frozenset(SCANS) | SORTS | {"matmul", "scatter"}
_COSTLY: Final = frozenset(
    """power sqrt rsqrt exp expm1 log log1p log2 log10 sin cos tan asin acos atan sinh cosh tanh asinh acosh
    atanh atan2 erf floor_divide remainder""".split()
)
_CHEAP: Final = 6
_LONG: Final = 50
_CALL: Final = 100
_ONCE: Final = frozenset({"concat", "pad", "slice_update", "reshape", "permute_dims", "slice", "flip"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Launches in order. Slots are buffers: the inputs first, then those in ``sizes`` (elements, dtype).

    ``outputs`` says where each result lies; ``frees`` which slots are needed no more after each step.
    """

    steps: tuple[Step, ...]
    sizes: Mapping[int, tuple[int, DType]]
    outputs: tuple[Layout, ...]
    frees: tuple[tuple[int, ...], ...]

    def __str__(self) -> str:
        return "\n\n".join(str(step.launch.kernel) for step in self.steps)


def lower(graph: Graph, inputs: Sequence[Layout | None], target: Target, sized: bool = False) -> Program:
    """Return the program of ``graph``. An input that is None is a Python scalar, given at each call.

    ``sized`` says that float constants may come from lengths: they are parameters then, and the code serves
    other lengths.
    """
    nodes = list(graph)
    wanted = _materialized(graph, nodes)
    where: dict[int, Layout] = {}
    scalars: dict[int, int] = {}
    for k, node in enumerate(graph.inputs):
        found = inputs[k]
        if found is None:
            scalars[id(node)] = k
        else:
            where[id(node)] = found
    steps = Steps(target=target, next_slot=len(inputs))
    _lower_rows(graph, where, scalars, steps, sized)
    needed = _needed(graph, where)
    for node in nodes:
        if id(node) in where or id(node) in scalars or id(node) not in needed:
            continue
        seen = where.get(id(node.inputs[0])) if node.inputs else None
        if seen is not None and (moved := view(node, seen)) is not None:
            where[id(node)] = moved
        elif id(node) in wanted:
            slot = steps.temporary(prod(node.spec.shape), node.spec.dtype)
            where[id(node)] = packed(slot, node.spec.shape)
            _lower_node(_carve(node, where, scalars, slot, sized), steps)
    outputs = []
    for node in graph.outputs:
        if id(node) in scalars:
            slot = steps.temporary(1, node.spec.dtype)
            where[id(node)] = packed(slot, ())
            lower_map(_carve(node, {}, scalars, slot), steps)
        outputs.append(where[id(node)])
    return Program(
        steps=tuple(steps.steps), sizes=steps.sizes, outputs=tuple(outputs),
        frees=_last_uses(steps, outputs, len(inputs)),
    )  # fmt: skip


def _needed(graph: Graph, where: Mapping[int, Layout]) -> set[int]:
    """Return the ids of the nodes that what is not yet in a buffer is computed from."""
    found: set[int] = set()
    stack = list(graph.outputs)
    while stack:
        node = stack.pop()
        if id(node) not in found and id(node) not in where:
            found.add(id(node))
            stack.extend(node.inputs)
    return found


def _lower_rows(
    graph: Graph, where: dict[int, Layout], scalars: Mapping[int, int], steps: Steps, sized: bool
) -> None:
    """Lower outputs that normalize rows, each in one kernel."""
    for node in graph.outputs:
        if id(node) in where or id(node) in scalars or node.op not in ELEMENTWISE:
            continue
        slot = steps.temporary(prod(node.spec.shape), node.spec.dtype)
        if lower_rows(_carve(node, where, scalars, slot, sized), steps, _COSTLY):
            where[id(node)] = packed(slot, node.spec.shape)
        else:
            steps.forget(slot)


def _lower_node(job: Job, steps: Steps) -> None:
    op = job.root.op
    if op == "matmul":
        lower_matmul(job, steps)
    elif op == "scatter":
        lower_scatter(job, steps)
    elif op in SORTS:
        lower_sort(job, steps)
    elif op in SCANS:
        lower_scan(collapse(job), steps)
    elif op in REDUCTIONS:
        lower_reduction(collapse(job), steps, costly=_cost(job.graph) >= _CALL)
    elif op == "concat" and _is_stack(job.root, _cost(job.graph)):
        lower_stack(job, steps)
    elif prod(job.root.spec.shape):
        lower_map(collapse(job), steps)


def _carve(
    root: Node, where: Mapping[int, Layout], scalars: Mapping[int, int], out: int, sized: bool = False
) -> Job:
    """Return the job of one root: a graph of its own whose leaves are what already lies in buffers."""
    leaves: dict[int, Layout] = {}
    numbers: dict[int, int] = {}
    done: dict[int, Node] = {}
    stack: list[tuple[Node, bool]] = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if id(node) in done:
            continue
        found = where.get(id(node)) if node is not root else None
        if found is not None or id(node) in scalars:
            made = Node(op="input", spec=node.spec)
            if found is not None:
                leaves[id(made)] = found
            else:
                numbers[id(made)] = scalars[id(node)]
        elif ready:
            made = replace(node, inputs=tuple(done[id(x)] for x in node.inputs))
        else:
            stack.append((node, True))
            stack.extend((x, False) for x in reversed(node.inputs))
            continue
        done[id(node)] = made
    return Job(root=done[id(root)], leaves=leaves, scalars=numbers, out=out, sized=sized)


def _is_stack(node: Node, cost: int) -> bool:
    """Return whether a concat is of computed operands, all of one shape."""
    return node.op == "concat" and cost > _CHEAP and len({x.spec.shape for x in node.inputs}) == 1


def _cost(graph: Graph) -> int:
    return sum(_CALL if node.op in _COSTLY else node.op in ELEMENTWISE for node in graph)


def _materialized(graph: Graph, nodes: Sequence[Node]) -> set[int]:
    """Return the ids of the nodes that get a buffer."""
    cost: dict[int, int] = {}
    for node in nodes:
        own = _CALL if node.op in _COSTLY else 1 if node.op in ELEMENTWISE or node.op == "gather" else 0
        before = 0 if node.op in ROOTS else sum(cost[id(x)] for x in node.inputs)
        cost[id(node)] = min(own + before, 1 << 20)
    wanted = {id(node) for node in graph.outputs}
    readers: dict[int, set[int]] = {id(node): set() for node in nodes}
    for node in reversed(nodes):
        readers_of = readers[id(node)]
        shared = len(readers_of) > 1 and cost[id(node)] > _CHEAP
        if node.op in ROOTS or shared or _is_stack(node, cost[id(node)]):
            wanted.add(id(node))
        mine = {id(node)} if id(node) in wanted else readers_of
        for x in node.inputs:
            readers[id(x)] |= mine
            grows = node.op not in _ONCE and prod(node.spec.shape) >= 2 * prod(x.spec.shape)
            rows = node.op in REDUCTIONS and len(x.spec.shape) - 1 in node.attrs["axis"]
            again = node.op in SORTS and cost[id(x)] > 0  # an element is read in each pass
            dear = (cost[id(x)] >= _CALL and rows) or (cost[id(x)] >= _LONG and grows)
            if node.op == "matmul" or again or dear:
                wanted.add(id(x))
    return {
        id(node) for node in nodes
        if id(node) in wanted and (node.op != "constant" or any(node is o for o in graph.outputs))
    }  # fmt: skip


def _last_uses(steps: Steps, outputs: Sequence[Layout], inputs: int) -> tuple[tuple[int, ...], ...]:
    last: dict[int, int] = {}
    for k, step in enumerate(steps.steps):
        for slot in step.slots:
            last[slot] = k
    for layout in outputs:
        last.pop(layout.slot, None)
    return tuple(
        tuple(slot for slot, at in last.items() if at == k and slot >= inputs)
        for k in range(len(steps.steps))
    )
