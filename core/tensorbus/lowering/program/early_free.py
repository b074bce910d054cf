"""Steps that let more memory go than they take run as soon as they can, not where the graph names them.

The loss of a training step is such: graphs name it last, and what it reads, often the largest of all, would
wait for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from ...dtypes.definition import DType
from ...tracing.sym_int import near
from ..ir.kernel_task import ERROR_SLOT, KernelLaunch, LibraryCall
from .program import slots_of


def early(
    items: Sequence[KernelLaunch | LibraryCall],
    sizes: Mapping[int, tuple[int, DType]],
    outputs: Collection[int],
) -> list[KernelLaunch | LibraryCall]:
    """Return the items in an order in which those come early that free more bytes than they fill.

    ``sizes`` are of the slots that the program makes, of which ``outputs`` stay to the end: these are there
    from the beginning, and filling them takes nothing. A slot that has several writers stays where it is, and
    so do its readers.
    """
    slots = [slots_of(item) for item in items]
    last: dict[int, int] = {}
    writers: dict[int, list[int]] = {}
    for k, (read, written) in enumerate(slots):
        for s in read | written:
            last[s] = k
        for s in written:
            writers.setdefault(s, []).append(k)

    def nbytes(slots: Collection[int]) -> int:
        return sum(sizes[s][0] * sizes[s][1].itemsize for s in slots if s in sizes)

    def is_alone(k: int) -> bool:
        return all(len(writers.get(s, ())) <= 1 for s in (slots[k][0] | slots[k][1]) - {ERROR_SLOT})

    def is_own(b: int, k: int) -> bool:
        """Return whether a step makes something of the program's inputs for step ``k`` alone."""
        read, written = slots[b]
        makes = all(s in sizes and last[s] == k and readers[s] == 1 and s not in outputs for s in written)
        return makes and is_alone(b) and not any(s in writers for s in read)

    readers = Counter([s for read, _ in slots for s in read])
    places: list[tuple[int, int]] = []
    for k, (read, written) in enumerate(slots):
        before = [writers[s][0] for s in read - {ERROR_SLOT} if s in writers]
        own = [b for b in before if is_own(b, k)]  # its operands, packed: they come along
        before = [b for b in before if b not in own]
        frees = nbytes([s for s in read - written if last[s] == k and s not in outputs])
        taken = nbytes(written - {*outputs}) + 2 * nbytes([s for b in own for s in slots[b][1]])
        places.append((k, 0))
        if is_alone(k) and before and near(frees) > near(taken):
            at, depth = max(places[b] for b in before)
            for b in own:
                places[b] = min(places[b], (at, depth + 1))
            places[k] = at, depth + 2
    order = sorted(range(len(items)), key=lambda k: (*places[k], k))
    return [items[k] for k in order]
