"""One step of a program before it has a schedule: a root, what it reads, and where its result goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from ...backend_interface.graph import Graph, Node
from ...dtypes.definition import DType
from ...ops.definition import Spec
from ...system.former_names import former_names
from ..target import Target
from . import index_expr as ix
from .builder import COUNTS, Builder, Launch, RuntimeArg
from .index_expr import ONE, ZERO
from .inline import ERRORS, BufferRead, Inliner
from .layout import Layout, Shape
from .loop_ir import INDEX, Const, Expr, Var

ERROR_SLOT = -1
COUNTS_SLOT = -2
"""Where workgroups are counted: all is 0 between launches, and nothing waits for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTask:
    """``root`` over ``inputs`` (by node id: where each lies), written to slot ``out``.

    ``strides`` are those of the result over the root's domain where a schedule goes over it in another order;
    None: packed. ``sized`` says that float constants may come from lengths, so that they are parameters.
    """

    root: Node
    inputs: Mapping[int, Layout]
    scalars: Mapping[int, int]
    out: int
    strides: Shape | None = None
    sized: bool = False

    @property
    def graph(self) -> Graph:
        """The group as a graph of its own."""
        return Graph(inputs=(), outputs=(self.root,))

    def inliner(self, builder: Builder, graph: Graph | None = None) -> tuple[Inliner, dict[str, int]]:
        """Return what reads this group, and the slots of the buffer names it uses.

        ``graph`` stands for the group where there is more to it than the root.
        """
        graph = graph or self.graph
        slots: dict[int, str] = {}
        shared: dict[tuple[str, Shape], str] = {}
        named: dict[int, BufferRead] = {}
        for node in graph:
            if id(node) in self.inputs:
                layout = self.inputs[id(node)]
                name = slots.setdefault(layout.slot, f"x{len(slots)}")
                strides = shared.setdefault((name, layout.strides), f"{name}v{len(shared)}")
                offset = f"{name}o{len(named)}"
                named[id(node)] = BufferRead(buffer=name, strides=strides, offset=offset, layout=layout)
        return Inliner(builder, graph, named, self.scalars, self.sized), {
            name: slot for slot, name in slots.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleChoice:
    """The schedule that wrote a launch, and why; those ``refused`` before, each with the reason."""

    name: str
    reason: str
    refused: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return "\n".join([f"{self.name}: {self.reason}", *(f"  not {n}: {why}" for n, why in self.refused)])


@former_names(same="aligned_reads", plain="pointwise")
@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLaunch:
    """A launch and the slots of its buffers, in the kernel's order.

    ``epilogue_of`` is the number of the call in the program, the step before, whose product this one reads
    at the element that it writes, and nothing else of its size but by rows, columns or such elements.
    ``aligned_reads`` are the slots that it reads only at the element that it writes. A ``pointwise`` launch
    has no reductions and no order between elements: each of them could be computed alone. ``choice`` says
    which schedule wrote it.
    """

    launch: Launch
    slots: tuple[int, ...]
    epilogue_of: int | None = None
    aligned_reads: frozenset[int] = frozenset()
    pointwise: bool = False
    choice: ScheduleChoice | None = field(default=None, compare=False)


@former_names(
    apart="row_stride", lies="layouts", leaves="side_output", takes="side_input", left="side_size"
)  # fmt: skip
@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryCall:
    """An op that the device runs by itself, on operands where they lie.

    ``inputs`` are of ``specs``: views of slots, or a ``RuntimeArg`` for a Python scalar of the run.
    ``outputs`` are slots, each filled in C order with a result of ``out_specs``; where ``row_stride`` is not
    0, rows of the one result are so many elements apart. ``layouts`` says where each result lies in its slot,
    if not all are in C order. ``side_output`` is a slot that the call fills beside its results, for calls
    that name it as their ``side_input``; it has ``side_size`` elements of float32.
    """

    op: str
    attrs: Mapping[str, Any]
    inputs: tuple[Layout | RuntimeArg, ...]
    specs: tuple[Spec, ...]
    outputs: tuple[int, ...]
    out_specs: tuple[Spec, ...]
    row_stride: int = 0
    layouts: tuple[Layout, ...] = ()
    side_output: int | None = None
    side_input: int | None = None
    side_size: int = 0


@dataclass(slots=True)
class LaunchList:
    """The launches of a program so far, and the buffers that they need in between."""

    target: Target
    sizes: dict[int, tuple[int, DType]] = field(default_factory=dict)
    items: list[KernelLaunch | LibraryCall] = field(default_factory=list)
    next_slot: int = 0

    def temporary(self, size: int, dtype: DType) -> int:
        """Return the slot of a new buffer of ``size`` elements."""
        slot = self.next_slot
        self.next_slot += 1
        self.sizes[slot] = (size, dtype)
        return slot

    def add(
        self,
        launch: Launch,
        slots: Mapping[str, int],
        aligned_reads: frozenset[int] = frozenset(),
        pointwise: bool = False,
    ) -> None:
        """Append a launch, as a ``KernelLaunch``. ``slots`` maps the names of its buffers."""
        if 0 in launch.grid:
            return
        named = {**slots, ERRORS: ERROR_SLOT, COUNTS: COUNTS_SLOT}
        own_slots = tuple(named[b.name] for b in launch.kernel.buffers)
        self.items.append(
            KernelLaunch(launch=launch, slots=own_slots, aligned_reads=aligned_reads, pointwise=pointwise)
        )


Loops = list[tuple[Var, Expr, int]]


def parallel_loops(
    b: Builder, lengths: Sequence[Expr], values: Sequence[int], second: int | None = None
) -> tuple[tuple[Expr, ...], Loops]:
    """Return indices over axes that run in parallel, and the loops: last axis on grid axis 0.

    Axis ``second`` (None: the last but one) is on grid axis 1; the others are one loop, on grid axis 2.
    An axis of length 1 has no loop.
    """
    index: list[Expr] = [ZERO] * len(lengths)
    loops: Loops = []
    long = [k for k, length in enumerate(lengths) if length != ONE]
    near = long[-1:] + (long[-2:-1] if second is None else [second])
    for axis, k in enumerate(near):
        var = Var(f"i{axis}", INDEX)
        index[k] = var
        loops.append((var, lengths[k], values[k]))
    outer = [k for k in long if k not in near]
    if outer:
        var = Var("i2", INDEX)
        total = prod(values[k] for k in outer)
        loops.append((var, b.size("outer", total) if len(outer) > 1 else lengths[outer[0]], total))
        for k, i in zip(outer, ix.unflatten(var, [lengths[k] for k in outer]), strict=True):
            index[k] = i if isinstance(i, Var | Const) else b.let(i, "i")
    return tuple(index), loops


def element_offset(
    b: Builder, prefix: str, index: Sequence[Expr], lengths: Sequence[Expr], layout: Layout
) -> Expr:
    """Return where the element at ``index`` lies in an output."""
    if layout.is_contiguous:
        return ix.flatten(index, lengths)
    return ix.dot(index, [b.size(f"{prefix}_s{k}", s) for k, s in enumerate(layout.strides)])
