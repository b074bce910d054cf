"""Epilogues over all results of a kernel, computed by its last work-item to end: one kernel instead of two.

A sum of what rows come to is such, or what joins the chunks of a reduction: little work, for which nothing
else waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from math import prod
from typing import Any, Final

from ..ir import index_expr as ix
from ..ir.index_expr import ONE
from ..ir.inline import ERRORS
from ..ir.kernel_task import ERROR_SLOT, KernelLaunch, LibraryCall
from ..ir.loop_ir import INDEX, Buffer, Expr, For, LastTaskEpilogue, LoopKernel, Stmt, Var, VectorAccess
from .program import Item, slots_of

_BEGINS: Final = "end_"


def ended(items: Sequence[KernelLaunch | LibraryCall]) -> list[Item]:
    """Return the steps with those of one item at the end of the kernel whose results they read."""
    result: list[Item] = list(items)
    slots = [slots_of(item) for item in result]
    k = 0
    while k < len(result):
        last = result[k]
        at = _before(slots, k) if isinstance(last, KernelLaunch) and _is_alone(last) else -1
        first = result[at] if at >= 0 else None
        if isinstance(first, KernelLaunch) and isinstance(last, KernelLaunch) and _may_end(first, last):
            result[at] = _joined(first, last)
            slots[at] = slots_of(result[at])
            del result[k], slots[k]
        else:
            k += 1
    return result


def _is_alone(step: KernelLaunch) -> bool:
    return prod(step.launch.grid) == 1 and not any(isinstance(s, For) and s.kind == "parallel"
                                                   for s in step.launch.kernel.body)  # fmt: skip


def _before(slots: Sequence[tuple[set[int], set[int]]], k: int) -> int:
    """Return the number of the step before step ``k`` that it can be the end of; -1 where there is none."""
    read, written = slots[k]
    for at in range(k - 1, -1, -1):
        before, written_there = slots[at]
        if (before | written_there) & written - {ERROR_SLOT}:
            return -1
        if written_there & read:
            return at
    return -1


def _may_end(first: KernelLaunch, last: KernelLaunch) -> bool:
    """Return whether the items of ``first`` count each other, and what they hand over lies in memory."""
    launch, kernel = first.launch, first.launch.kernel
    if not kernel.task or prod(launch.grid) == 1 or isinstance(kernel.body[-1], LastTaskEpilogue):
        return False
    read, _ = slots_of(last)
    filled = {s for s, count in zip(first.slots, launch.fills, strict=False) if count}
    return not filled & read


def _joined(first: KernelLaunch, last: KernelLaunch) -> KernelLaunch:
    a, b = first.launch, last.launch
    known = {slot: buffer.name for slot, buffer in zip(first.slots, a.kernel.buffers, strict=True)}
    names: dict[str, str] = {p.name: _BEGINS + p.name for p in b.kernel.params}
    buffers = {x.name: x for x in a.kernel.buffers}
    slots = dict(zip(buffers, first.slots, strict=True))
    read, _ = slots_of(last)
    for slot, x in zip(last.slots, b.kernel.buffers, strict=True):
        name = names[x.name] = known.get(slot) or (ERRORS if slot == ERROR_SLOT else _BEGINS + x.name)
        former = buffers.get(name, Buffer(name, x.dtype))
        shared = slot in known and former.writes and slot in read
        buffers[name] = replace(former, writes=former.writes or x.writes, shared=former.shared or shared)
        slots[name] = slot
    if ERRORS not in buffers:
        buffers[ERRORS] = Buffer(ERRORS, INDEX, True)
        slots[ERRORS] = ERROR_SLOT
    total: Expr = ONE
    body: Sequence[Stmt] = a.kernel.body
    while body and isinstance(body[-1], For) and body[-1].kind == "parallel":
        total = ix.multiply(total, body[-1].stop)
        body = body[-1].body
    params = tuple(replace(p, name=names[p.name]) for p in b.kernel.params)
    end = LastTaskEpilogue(ERRORS, total, _renamed(b.kernel.body, names))
    kernel = LoopKernel(
        f"{a.kernel.name}_{b.kernel.name.removeprefix('tb_')}", tuple(buffers.values()),
        (*a.kernel.params, *params), (*a.kernel.body, end), a.kernel.task,
    )  # fmt: skip
    fills = (*a.fills, *(0 for _ in range(len(buffers) - len(a.fills)))) if a.fills else ()
    launch = replace(a, kernel=kernel, values=(*a.values, *b.values), fills=fills)
    own = {*last.slots}
    return replace(
        first,
        launch=launch,
        slots=tuple(slots[name] for name in buffers),
        aligned_reads=first.aligned_reads - own,
        pointwise=False,
    )


def _renamed(node: Any, names: Mapping[str, str]) -> Any:
    """Return statements with other names of buffers and parameters."""
    if isinstance(node, tuple):
        return tuple(_renamed(x, names) for x in node)
    if isinstance(node, Var):
        return replace(node, name=names.get(node.name, node.name))
    if not is_dataclass(node) or isinstance(node, type):
        return node
    values = {f.name: getattr(node, f.name) for f in fields(node)}
    changed: dict[str, Any] = {}
    for name, value in values.items():
        if name == "buffer" or (name == "array" and isinstance(node, VectorAccess)):
            changed[name] = names.get(value, value)
        elif isinstance(value, tuple) or (is_dataclass(value) and name != "dtype"):
            changed[name] = _renamed(value, names)
    return replace(node, **changed)
