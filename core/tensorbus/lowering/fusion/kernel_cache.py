"""Schedules that are found again: equal groups, as those of a model's equal layers, are scheduled once.

A group is known by its structure: ops, attributes, shapes, how operands lie, and which of them are the same
buffer or number; not by which buffers and numbers these are, nor by anything else of its program. The kernels
of equal groups are then one object, which is checked, rendered and compiled once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...backend_interface.graph import Node
from ...dtypes.definition import DType
from ...graph.passes.simplify import frozen
from ...system import fork_safe_locks
from ..ir.builder import RuntimeArg
from ..ir.kernel_task import KernelLaunch, LaunchList
from ..ir.layout import Layout
from .fusion_groups import FusionGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class _Schedule:
    """Steps whose slots are places: those of the group's buffers, then those of ``temporaries``.

    The operands of what is ``RuntimeArg`` are places too.
    """

    steps: tuple[KernelLaunch, ...]
    temporaries: tuple[tuple[int, DType], ...]


_known: OrderedDict[Any, _Schedule] = OrderedDict()
_lock = fork_safe_locks.simple()


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelKey:
    """The ``name`` of a group, with its slots and operands in the order in which the name counts them."""

    name: Any
    slots: tuple[int, ...]
    operands: tuple[int, ...]


@dataclass(slots=True)
class KernelKeys:
    """Names the groups of one program by their structure; ``context`` is what else schedules depend on.

    ``own_slots``: as in ``ScheduleRequest``.
    """

    where: Mapping[int, Layout]
    scalars: Mapping[int, int]
    own_slots: Collection[int]
    context: tuple[Any, ...]
    _attrs: dict[int, Any] = field(default_factory=dict)

    def of(self, group: FusionGroup, stored: Mapping[int, int], parts: Sequence[Node] = ()) -> KernelKey:
        """Return the signature of a group. One with an attribute that does not hash is equal to no other.

        ``parts`` are the results of its root that are stored, where it is a fused update.
        """
        own = {self.where[k].slot for k in group.roots}
        numbers: dict[Node, int] = {}
        slots: dict[int, int] = {}
        operands: dict[int | None, int] = {None: 0}
        entries: list[Any] = []
        for root in group.roots.values():
            stack = [(root.node, False)]
            while stack:
                node, ready = stack.pop()
                if node in numbers:
                    continue
                spec = node.spec
                if ready:
                    about = self._named(node), spec.shape, spec.dtype
                    entry: Any = (node.op, *about, *[numbers[x] for x in node.inputs])
                elif id(node) in self.scalars:
                    place = operands.setdefault(self.scalars[id(node)], len(operands))
                    entry = (place, spec.shape, spec.dtype)
                elif (layout := self.where.get(id(node))) is not None and layout.slot not in own:
                    place = slots.setdefault(layout.slot, len(slots))
                    late = operands.setdefault(layout.late, len(operands))
                    gaps = not layout.is_contiguous and layout.slot in self.own_slots
                    entry = (place, layout.strides, layout.offset, late, spec.shape, spec.dtype, gaps)
                else:
                    stack.append((node, True))
                    stack += [(x, False) for x in reversed(node.inputs)]
                    continue
                numbers[node] = len(entries)
                entries.append(entry)
        roots: tuple[Any, ...] = tuple([
            (numbers[root.node], root.access, slots.setdefault(stored[k], len(slots)), self.where[k].strides)
            if k in stored else (numbers[root.node], root.access, -1)
            for k, root in group.roots.items()
        ])  # fmt: skip
        if parts:
            layouts = [self.where[id(x)] for x in parts]
            roots = tuple([
                (x.attrs["index"], slots.setdefault(at.slot, len(slots)), at.strides)
                for x, at in zip(parts, layouts, strict=True)
            ])  # fmt: skip
        name = (tuple(entries), roots, group.domain, group.reduced, self.context)
        return KernelKey(name=name, slots=tuple(slots), operands=tuple(k for k in operands if k is not None))

    def _named(self, node: Node) -> Any:
        """Return attributes in a form that hashes; equal ones are often one object."""
        key = self._attrs.get(id(node.attrs))
        if key is None:
            key = self._attrs[id(node.attrs)] = _hashable(node.attrs)
        return key


def _hashable(attrs: Mapping[str, Any]) -> Any:
    key = frozen(attrs)
    try:
        hash(key)
    except TypeError:
        return object()
    return key


def lookup(key: KernelKey, steps: LaunchList) -> bool:
    """Append the steps of a group of this name; return whether they are known."""
    with _lock:
        known = _known.get(key.name)
        if known is None:
            return False
        _known.move_to_end(key.name)
    places = [*key.slots, *[steps.temporary(size, dtype) for size, dtype in known.temporaries]]
    steps.items += [_with(step, places, key.operands) for step in known.steps]
    return True


def insert(key: KernelKey, steps: LaunchList, before: int, first: int) -> None:
    """Keep the steps from number ``before`` on as those of the group; slots from ``first`` on are new."""
    fresh = [slot for slot in steps.sizes if slot >= first]
    places = {slot: k for k, slot in enumerate([*key.slots, *fresh])}
    operands = {operand: k for k, operand in enumerate(key.operands)}
    try:
        known = [
            _with(step, places, operands) for step in steps.items[before:] if isinstance(step, KernelLaunch)
        ]
    except KeyError:  # something else of the program: it is this group's alone
        return
    schedule = _Schedule(steps=tuple(known), temporaries=tuple(steps.sizes[s] for s in fresh))
    with _lock:
        _known[key.name] = schedule
        while len(_known) > steps.target.heuristics.known_schedules:
            _known.popitem(last=False)


_Places = Sequence[int] | Mapping[int, int]


def _with(step: KernelLaunch, places: _Places, operands: _Places) -> KernelLaunch:
    """Return a step with other slots and operands."""
    slots = tuple([s if s < 0 else places[s] for s in step.slots])
    launch = step.launch
    if any(isinstance(v, RuntimeArg) and v.what != "code" for v in launch.values):
        values = tuple([
            replace(v, operand=operands[v.operand]) if isinstance(v, RuntimeArg) and v.what != "code" else v
            for v in launch.values
        ])  # fmt: skip
        launch = replace(launch, values=values)
    same = frozenset([places[s] for s in step.aligned_reads])
    return replace(step, launch=launch, slots=slots, aligned_reads=same)
