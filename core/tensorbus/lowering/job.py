"""One step of a program before it has a schedule: a root, what it reads, and where its result goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from ..dtypes import DType
from ..graph.graph import Graph, Node
from . import index as ix
from .builder import Builder, Launch
from .index import ZERO
from .ir import INDEX, Expr, Var
from .layout import Layout, Shape
from .pull import ERRORS, Pull
from .target import Target

ERROR_SLOT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """``root`` over ``leaves`` (by node id: where each lies), written to slot ``out``.

    ``strides`` are those of the result over the root's domain where a schedule walks it in another order;
    None: packed.
    """

    root: Node
    leaves: Mapping[int, Layout]
    scalars: Mapping[int, int]
    out: int
    strides: Shape | None = None

    @property
    def graph(self) -> Graph:
        """The group as a graph of its own."""
        return Graph(inputs=(), outputs=(self.root,))

    def puller(self, builder: Builder) -> tuple[Pull, dict[str, int]]:
        """Return what reads this group, and the slots of the buffer names it uses."""
        graph = self.graph
        ordered = [node for node in graph if id(node) in self.leaves]
        named = {id(node): (f"x{k}", self.leaves[id(node)]) for k, node in enumerate(ordered)}
        return Pull(builder, graph, named, self.scalars), {name: lay.slot for name, lay in named.values()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A launch and the slots of its buffers, in the kernel's order."""

    launch: Launch
    slots: tuple[int, ...]


@dataclass(slots=True)
class Steps:
    """The launches of a program so far, and the buffers that they need in between."""

    target: Target
    sizes: dict[int, tuple[int, DType]] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    next_slot: int = 0

    def temporary(self, size: int, dtype: DType) -> int:
        """Return the slot of a new buffer of ``size`` elements."""
        slot = self.next_slot
        self.next_slot += 1
        self.sizes[slot] = (size, dtype)
        return slot

    def add(self, launch: Launch, slots: Mapping[str, int]) -> None:
        """Append a launch; ``slots`` maps the names of its buffers."""
        if 0 in launch.grid:
            return
        named = {**slots, ERRORS: ERROR_SLOT}
        self.steps.append(Step(launch=launch, slots=tuple(named[b.name] for b in launch.kernel.buffers)))


Loops = list[tuple[Var, Expr, int]]


def spread(b: Builder, lengths: Sequence[Expr], values: Sequence[int]) -> tuple[tuple[Expr, ...], Loops]:
    """Return indices over axes that are walked in parallel, and the loops: last axis on grid axis 0.

    All axes before the last two are walked as one, on grid axis 2.
    """
    rank = len(lengths)
    index: list[Expr] = [ZERO] * rank
    loops: Loops = []
    for axis, k in enumerate(range(rank - 1, max(rank - 3, -1), -1)):
        var = Var(f"i{axis}", INDEX)
        index[k] = var
        loops.append((var, lengths[k], values[k]))
    if rank > 2:
        outer = rank - 2
        var = Var("i2", INDEX)
        total = prod(values[:outer])
        loops.append((var, b.size("outer", total) if outer > 1 else lengths[0], total))
        index[:outer] = ix.unflatten(var, lengths[:outer])
    return tuple(index), loops


def place(b: Builder, prefix: str, index: Sequence[Expr], lengths: Sequence[Expr], layout: Layout) -> Expr:
    """Return where the element at ``index`` lies in an output."""
    if layout.is_contiguous:
        return ix.flatten(index, lengths)
    return ix.dot(index, [b.size(f"{prefix}_s{k}", s) for k, s in enumerate(layout.strides)])
