"""A schedule, and what it is asked about: the one shape that all schedules have, a third party's too."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, Literal, TypeVar

from ...backend_interface.graph import Node
from ...graph.rewrite import rebuild, topological
from ...tracing.sym_int import near
from ..fusion.canonicalize import DomainKernel, canonical
from ..fusion.collapse_dims import collapse
from ..fusion.fusion_groups import FusionGroup, reduced_axes_last
from ..ir.kernel_task import KernelTask, LaunchList
from ..ir.layout import Layout, Shape
from ..op_sets import ATTENTION, REDUCTIONS, SCANS, SORTS
from ..target import Target

T = TypeVar("T")
Verdict = Literal[True] | str
"""Whether a schedule is for a group: if not, the reason."""


@dataclass(kw_only=True)
class ScheduleRequest:
    """A fusion group that wants a schedule, and where its operands and results lie.

    ``where`` has the layout of each buffer by the id of its node, ``scalars`` the inputs that are Python
    numbers, ``stored`` the slot of each root that other kernels read, ``results`` those of an op that has
    several. ``own_slots`` are those whose buffers the program makes: what lies there between rows is its own
    too. ``whole`` says that the group is of a program whose device has calls of its own, ``reuses`` that it
    matters which buffers may become one.
    """

    group: FusionGroup
    where: Mapping[int, Layout]
    scalars: Mapping[int, int]
    stored: Mapping[int, int]
    results: tuple[int, ...] = ()
    sized: bool = False
    whole: bool = False
    reuses: bool = False
    own_slots: Collection[int] = frozenset()
    _known: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    def once(self, work_out: Callable[[ScheduleRequest, Target], T], target: Target) -> T:
        """Return what ``work_out`` says of the group: asked once, for all schedules of the one target."""
        if work_out not in self._known:
            self._known[work_out] = work_out(self, target)
        known: T = self._known[work_out]
        return known

    @cached_property
    def root(self) -> Node:
        """The first root: the only one of most groups."""
        return next(iter(self.group.roots.values())).node

    @cached_property
    def kind(self) -> str:
        """``matmul``, ``attention``, ``scatter``, ``sort``, ``scan``, ``reduction`` or ``pointwise``.

        A group that reduces on the way to what it stores, such as a softmax, is a ``reduction``.
        """
        op = self.root.op if len(self.group.roots) == 1 else ""
        if op in ("matmul", "scatter"):
            return op
        if op in ATTENTION:
            return "attention"
        if op in SORTS:
            return "sort"
        if op in SCANS:
            return "scan"
        return "reduction" if op in REDUCTIONS or self.group.reduced else "pointwise"

    @cached_property
    def task(self) -> KernelTask:
        """The only root as a graph of its own."""
        return carve(self.root, self.stored[id(self.root)], self.where, self.scalars, self.sized)

    @cached_property
    def collapsed(self) -> KernelTask:
        """The task with neighbouring axes joined."""
        return collapse(self.task)

    @cached_property
    def kernel(self) -> DomainKernel:
        """The group over its domain."""
        return canonical(self.group, self.where, self.scalars, self.stored, self.sized)

    @cached_property
    def rows(self) -> DomainKernel:
        """The same; where reductions wait for each other, the axes that they go over are the last."""
        if not self.group.multi_pass:
            return self.kernel
        group = reduced_axes_last(self.group)
        return canonical(group, self.where, self.scalars, self.stored, self.sized)

    @property
    def reduces_columns(self) -> bool:
        """Whether there are reductions, and none goes over the last axis."""
        return bool(self.group.reduced) and len(self.group.domain) - 1 not in self.group.reduced

    def single(self, target: Target) -> Verdict:
        """Return whether the group is one result in C order, which needs no more than its own axes."""
        group = self.group
        if len(group.roots) != 1:
            return "it has several results"
        if not all(self.where[k].is_contiguous for k in self.stored):
            return "the result does not lie in C order"
        if not group.reduced:
            return True
        if (
            self.reduces_columns and self.whole and target.row_per_task and not target.vector_ops
            and group.domain[-1] >= target.heuristics.row_min_length
        ):  # fmt: skip
            return "columns are reduced by a panel for each task, with whatever else is of them"
        length = near(prod(group.domain[k] for k in group.reduced))
        long = length >= target.heuristics.row_min_length
        if not target.row_per_task and long and rows_fill(group.domain, group.reduced, target):
            return "rows are long enough for a workgroup each"
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A way to write the kernels of fusion groups of some ``kinds`` (see ``ScheduleRequest.kind``).

    ``applies(request, target)`` returns True, or the reason why the schedule is not for this group on this
    hardware. ``build(request, launches)`` appends the launches; where it finds out only then that the code
    has no such form, it appends nothing and returns the reason. ``about`` says when it is right.
    """

    name: str
    about: str
    kinds: frozenset[str]
    applies: Callable[[ScheduleRequest, Target], Verdict]
    build: Callable[[ScheduleRequest, LaunchList], str | None]


def rows_fill(domain: Shape, over: tuple[int, ...], target: Target) -> bool:
    """Return whether reductions are over the last axes, and there are rows enough for all cores."""
    first, limits = len(domain) - len(over), target.heuristics
    rows, length = near(prod(domain[:first])), near(prod(domain[first:]))
    short = bool(target.subgroup_size) and length <= target.max_workgroup * limits.row_elements_per_work_item
    few = rows * target.max_workgroup < target.work_items_to_fill // 2
    if target.workgroup_counters and length > limits.workgroup_row_max_length and few:
        short = False  # several workgroups share a row, and the last of them joins their results
    return over == tuple(range(first, len(domain))) and (
        short or rows >= target.tasks_to_fill // limits.busy_share
    )


def carve(
    root: Node, out: int, where: Mapping[int, Layout], scalars: Mapping[int, int], sized: bool
) -> KernelTask:
    """Return the task of one root: a graph of its own whose inputs are what already lies in buffers."""
    inputs: dict[int, Layout] = {}
    numbers: dict[int, int] = {}

    def is_read(node: Node) -> bool:
        return id(node) in scalars or (node is not root and id(node) in where)

    def rule(node: Node, operands: tuple[Node, ...]) -> Node:
        if not is_read(node):
            return node.of(operands)
        read = Node(op="input", spec=node.spec)
        if node is not root and id(node) in where:
            inputs[id(read)] = where[id(node)]
        else:
            numbers[id(read)] = scalars[id(node)]
        return read

    done = rebuild(topological([root], is_read), rule)
    return KernelTask(root=done[root], inputs=inputs, scalars=numbers, out=out, sized=sized)
