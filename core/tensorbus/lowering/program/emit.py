"""The launches and calls of a graph whose fusion groups are known: a schedule for each group, in order.

Groups of equal structure are scheduled once: see ``fusion.kernel_cache``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from ...backend_interface.graph import Node
from ...dtypes.definition import float32
from ...errors import UnsupportedOpError
from ...ops.definition import table
from ..fusion.foreach_update import fused_updates, group_of, opened
from ..fusion.fusion_groups import FusionGroup
from ..fusion.kernel_cache import KernelKeys, insert, lookup
from ..fusion.placement import BufferPlacement, LoweringInput, result_orders
from ..ir.builder import RuntimeArg
from ..ir.kernel_task import LaunchList, LibraryCall
from ..ir.layout import Layout, packed
from ..library import Library
from ..op_sets import ATTENTION, INLINED, SCHEDULED
from ..schedules.choose import build
from ..schedules.pointwise.pointwise import lower_map
from ..schedules.schedule import ScheduleRequest, carve


@dataclass(frozen=True, slots=True, kw_only=True)
class EmittedProgram:
    """The launches and calls of a program in the order of its groups, and where its ``outputs`` lie."""

    launches: LaunchList
    outputs: tuple[Layout, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _CallUses:
    """The calls that read each node, and the side outputs that calls have: slots and lengths, by node."""

    readers: Mapping[Node, Sequence[Node]]
    side_outputs: dict[Node, tuple[int, int]]


def emit(asked: LoweringInput, placement: BufferPlacement, groups: Sequence[FusionGroup]) -> EmittedProgram:
    """Return the launches and calls of all groups. Raises ``UnsupportedOpError`` for what nobody can run."""
    where, scalars = placement.where, placement.scalars
    launches = LaunchList(target=asked.target, sizes={**placement.sizes}, next_slot=placement.next_slot)
    updates = fused_updates([node for node in asked.nodes if node not in asked.calls])
    own = launches.sizes.keys()
    keys = KernelKeys(where, scalars, own, (asked.target, asked.sized, not asked.whole, asked.reuses))
    uses = _CallUses(readers=_readers(asked.calls), side_outputs={})
    read = _read_elsewhere(asked, placement, groups)
    for group in groups:
        node = next(iter(group.roots.values())).node
        if node in asked.calls:
            _emit_call(asked, placement, node, uses, launches)
        elif node.op == "result":
            continue
        elif node.op in ATTENTION:
            _emit_several(asked, placement, group, launches)
        elif id(node) in updates:
            _emit_update(asked, placement, group, updates[id(node)], keys, launches)
        elif node.op in INLINED or node.op in SCHEDULED:
            _emit_group(asked, placement, group, read, keys, launches)
        else:
            raise UnsupportedOpError(f"{node.op}: no schedule is written for it, and it is no call here.")
    outputs: list[Layout] = []
    for node in asked.graph.outputs:
        if id(node) in scalars:
            slot = launches.temporary(1, node.spec.dtype)
            lower_map(carve(node, slot, {}, scalars, asked.sized), launches)
            outputs.append(packed(slot, ()))
        else:
            outputs.append(where[id(node)])
    return EmittedProgram(launches=launches, outputs=tuple(outputs))


def output_buffers(asked: LoweringInput, placement: BufferPlacement) -> set[int]:
    """Return the ids of the nodes whose buffers are those of the outputs."""
    ids: set[int] = set()
    for node in asked.graph.outputs:
        while id(node) not in placement.buffered and node.inputs and id(node) in placement.where:
            node = node.inputs[0]
        ids.add(id(node))
    return ids


def _read_elsewhere(
    asked: LoweringInput, placement: BufferPlacement, groups: Sequence[FusionGroup]
) -> set[int]:
    """Return the ids of the nodes whose buffers are read outside the kernel that makes them."""
    ids = output_buffers(asked, placement)
    for group in groups:
        for root in group.roots.values():
            ids |= {id(n) for n, _ in root.reads if id(n) not in group.roots}
    return ids


def _readers(calls: Collection[Node]) -> dict[Node, list[Node]]:
    readers: dict[Node, list[Node]] = {}
    for call in calls:
        for x in {*call.inputs}:
            readers.setdefault(x, []).append(call)
    return readers


def _emit_group(
    asked: LoweringInput, placement: BufferPlacement, group: FusionGroup, read: Collection[int],
    keys: KernelKeys, launches: LaunchList,
) -> None:  # fmt: skip
    """Append the launches of a group; roots that nobody else reads lose their buffers."""
    stored = {k: placement.where[k].slot for k in group.roots if k in read}
    for k in group.roots:
        if k not in stored:
            launches.sizes.pop(placement.where[k].slot)
    key = keys.of(group, stored)
    if lookup(key, launches):
        return
    before, first = len(launches.items), launches.next_slot
    build(_request(asked, placement, group, placement.where, stored, launches), launches)
    insert(key, launches, before, first)


def _emit_several(
    asked: LoweringInput, placement: BufferPlacement, group: FusionGroup, launches: LaunchList
) -> None:
    """Append the launches of an op of several results, in buffers of their own."""
    (root,) = group.roots.values()
    layouts = _result_layouts(asked, root.node, placement.where, launches)
    request = _request(asked, placement, group, placement.where, {}, launches)
    build(replace(request, results=tuple([x.slot for x in layouts])), launches)


def _result_layouts(
    asked: LoweringInput, node: Node, where: Mapping[int, Layout], launches: LaunchList
) -> list[Layout]:
    """Return where each of the results of a node lies; those that nobody reads in a buffer all the same."""
    specs = table[node.op].specs(tuple(x.spec for x in node.inputs), node.attrs)
    parts = {n.attrs["index"]: n for n in asked.nodes if n.op == "result" and n.inputs[0] is node}
    launches.sizes.pop(where[id(node)].slot, None)
    return [
        where[id(parts[k])] if k in parts and id(parts[k]) in where
        else packed(launches.temporary(prod(s.shape), s.dtype), s.shape)
        for k, s in enumerate(specs)
    ]  # fmt: skip


def _emit_update(
    asked: LoweringInput, placement: BufferPlacement, group: FusionGroup, parts: Sequence[Node],
    keys: KernelKeys, launches: LaunchList,
) -> None:  # fmt: skip
    """Append the launches of a fused update; it is opened where none like it was before."""
    launches.sizes.pop(placement.where[next(iter(group.roots))].slot)
    key = keys.of(group, {}, parts)
    if lookup(key, launches):
        return
    roots = opened(group, parts)
    before, first = len(launches.items), launches.next_slot
    own = {id(root.node): placement.where[id(part)] for part, root in roots.items()}
    stored = {root: layout.slot for root, layout in own.items()}
    update = group_of(group, [*roots.values()])
    build(_request(asked, placement, update, {**placement.where, **own}, stored, launches), launches)
    insert(key, launches, before, first)


def _request(
    asked: LoweringInput, placement: BufferPlacement, group: FusionGroup, where: Mapping[int, Layout],
    stored: Mapping[int, int], launches: LaunchList,
) -> ScheduleRequest:  # fmt: skip
    """Return what schedules are asked about a group whose roots in ``stored`` go to these slots."""
    return ScheduleRequest(
        group=group, where=where, scalars=placement.scalars, stored=stored, sized=asked.sized,
        whole=asked.whole, reuses=asked.reuses, own_slots=launches.sizes.keys(),
    )  # fmt: skip


def _emit_call(
    asked: LoweringInput, placement: BufferPlacement, node: Node, uses: _CallUses, launches: LaunchList
) -> None:
    """Append the call that runs an op of the device's."""
    where, scalars = placement.where, placement.scalars
    operands = tuple([
        RuntimeArg("scalar", scalars[id(x)]) if id(x) in scalars else where[id(x)] for x in node.inputs
    ])  # fmt: skip
    specs = table[node.op].specs(tuple(x.spec for x in node.inputs), node.attrs)
    layouts = [where[id(node)]]
    if table[node.op].results:
        layouts = _result_layouts(asked, node, where, launches)
    anywhere = result_orders(asked, node, where) is not None
    free = anywhere and not all(x.is_contiguous and not x.offset for x in layouts)
    filled, taken = _side_slots(asked, node, uses, launches)
    call = LibraryCall(
        op=node.op, attrs=node.attrs, inputs=operands, specs=tuple(x.spec for x in node.inputs),
        outputs=tuple([x.slot for x in layouts]), out_specs=specs, layouts=tuple(layouts) if free else (),
        row_stride=0 if free or layouts[0].is_contiguous else layouts[0].strides[-2],
        side_output=filled and filled[0], side_input=taken and taken[0],
        side_size=(filled or taken or (0, 0))[1],
    )  # fmt: skip
    launches.items.append(call)


def _side_slots(
    asked: LoweringInput, node: Node, uses: _CallUses, launches: LaunchList
) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    """Return the slot that a call leaves something in for others, and the one that it takes it from."""
    library, left = asked.library, uses.side_outputs
    if type(library) is not Library:
        return None, None
    length = max([library.side_output(node, reader) for reader in uses.readers.get(node, ())], default=0)
    if length:
        left[node] = launches.temporary(length, float32), length
    taken = [left[x] for x in node.inputs if x in left and library.side_output(x, node)]
    return left.get(node), next(iter(taken), None)
