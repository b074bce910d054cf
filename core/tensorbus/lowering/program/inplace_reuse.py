"""Results that take the place of an operand which nobody reads any more: one buffer instead of two."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ...dtypes.definition import DType
from ...tracing.sym_int import near
from ..heuristics import Heuristics
from ..ir.kernel_task import ERROR_SLOT, KernelLaunch, LibraryCall
from ..ir.layout import Layout
from .program import slots_of


def in_place(
    items: Sequence[KernelLaunch | LibraryCall], sizes: dict[int, tuple[int, DType]],
    outputs: Collection[int], limits: Heuristics,
) -> list[KernelLaunch | LibraryCall]:  # fmt: skip
    """Return the steps with such results in the slots of those operands; theirs leave ``sizes``.

    The operand is one that the step reads only at the element that it writes. Slots in ``outputs``, the
    program's results, stay what they are, and so do slots that several steps write.
    """
    slots = [slots_of(item) for item in items]
    last: dict[int, int] = {}
    writers: dict[int, int] = {}
    for k, (read, written) in enumerate(slots):
        last |= dict.fromkeys(read | written, k)
        for s in written:
            writers[s] = writers.get(s, 0) + 1
    moved: dict[int, int] = {}
    result: list[KernelLaunch | LibraryCall] = []
    for k, item in enumerate(items):
        if isinstance(item, KernelLaunch):
            read, written = slots[k]
            free = [
                s for s in sorted(read & item.aligned_reads)
                if _is_free(s, k, last, writers, sizes, outputs)
                and near(sizes[s][0]) * sizes[s][1].itemsize >= limits.in_place_min_bytes
            ]  # fmt: skip
            for out in sorted(written - {ERROR_SLOT}):
                fits = [s for s in free if sizes.get(out) == sizes[s]]
                if fits and out in sizes and out not in outputs and writers[out] == 1 and out not in read:
                    free.remove(fits[0])
                    moved[out] = moved.get(fits[0], fits[0])
        result.append(_renamed(item, moved))
    for out in moved:
        del sizes[out]
    return result


def _is_free(
    s: int, k: int, last: Mapping[int, int], writers: Mapping[int, int],
    sizes: Mapping[int, tuple[int, DType]], outputs: Collection[int],
) -> bool:  # fmt: skip
    return s in sizes and s not in outputs and last[s] == k and writers.get(s) == 1


def _renamed(item: KernelLaunch | LibraryCall, moved: Mapping[int, int]) -> KernelLaunch | LibraryCall:
    if isinstance(item, KernelLaunch):
        if not any(s in moved for s in item.slots):
            return item
        same = frozenset(moved.get(s, s) for s in item.aligned_reads)
        return replace(item, slots=tuple(moved.get(s, s) for s in item.slots), aligned_reads=same)
    inputs = tuple(
        replace(x, slot=moved.get(x.slot, x.slot)) if isinstance(x, Layout) else x for x in item.inputs
    )
    return replace(item, inputs=inputs, outputs=tuple(moved.get(s, s) for s in item.outputs))
