"""The check of a program: slots are filled before they are read, steps of a batch are independent."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from ..ir.kernel_task import COUNTS_SLOT, ERROR_SLOT, KernelLaunch, LibraryCall
from ..ir.layout import Layout
from ..ir.verify import IRError, verify
from ..ir.verify_bounds import NONE, Range, verify_bounds
from .program import Item, ParallelBatch, Program, slots_of, steps_of


def verify_program(program: Program, layouts: Sequence[Layout | None]) -> Program:
    """Return ``program`` when it is well formed; raise ``IRError`` otherwise. ``layouts`` are the inputs'."""
    inputs = len(layouts)
    extents = _SlotExtents(program, layouts)

    def need(holds: bool, what: str) -> None:
        if not holds:
            raise IRError(f"{what}\n{program}")

    filled = {ERROR_SLOT, *range(inputs), *(slot for slot, (size, _) in program.sizes.items() if not size)}
    freed: set[int] = set()
    for k, item in enumerate(program.steps):
        read, written = slots_of(item)
        need(not read - filled - written, f"step {k} reads slots that nothing has filled: {read - filled}")
        need(
            not (read | written) & freed, f"step {k} uses slots that were let go: {(read | written) & freed}"
        )
        need(all(s == ERROR_SLOT or s in program.sizes for s in written), f"step {k} writes over an input")
        filled |= written
        freed |= set(program.frees[k])
        for step in steps_of(item):
            verify(step.launch.kernel)
            extents.step(step)
        if isinstance(item, ParallelBatch):
            need(_independent(item), f"step {k}: steps of a batch wait for each other")
        for step in steps_of(item):
            after = step.epilogue_of
            need(
                after is None or (after == k - 1 and isinstance(program.steps[after], LibraryCall)),
                f"step {k} follows no call",
            )
    for layout in program.outputs:
        need(
            layout.slot in filled and layout.slot not in freed,
            f"output %{layout.slot} is not there at the end",
        )
        need(_inside(layout, program, inputs), f"output %{layout.slot} reaches beyond its buffer")
    return program


class _SlotExtents:
    """The extents of the elements of each slot."""

    def __init__(self, program: Program, layouts: Sequence[Layout | None]) -> None:
        self._extents: dict[int, Range] = {ERROR_SLOT: (0, inf), COUNTS_SLOT: (0, inf)}
        self._extents |= {slot: (0, size - 1) for slot, (size, _) in program.sizes.items()}
        self._extents |= {k: _extent(x) for k, x in enumerate(layouts) if x is not None}
        self._inputs = range(len(layouts))

    def step(self, step: KernelLaunch) -> None:
        """Check a step's indices. Raises ``IRError``."""
        buffers = zip(step.slots, step.launch.kernel.buffers, strict=True)
        input_names = {buffer.name for slot, buffer in buffers if slot in self._inputs}
        verify_bounds(step.launch, [self._extents[slot] for slot in step.slots], input_names)


def _extent(x: Layout) -> Range:
    """Return the least and the largest index of a view; an offset that comes with the call is not counted."""
    if 0 in x.shape:
        return NONE
    reach = [s * (n - 1) for n, s in zip(x.shape, x.strides, strict=True)]
    return x.offset + sum(r for r in reach if r < 0), x.offset + sum(r for r in reach if r > 0)


def _independent(batch: ParallelBatch) -> bool:
    items: list[Item] = list(batch.steps)
    for k, item in enumerate(items):
        written = slots_of(item)[1] - {ERROR_SLOT}
        if any(written & (r | w) for r, w in map(slots_of, items[:k] + items[k + 1 :])):
            return False
    return True


def _inside(layout: Layout, program: Program, inputs: int) -> bool:
    if layout.slot < inputs or 0 in layout.shape:
        return True
    last = layout.offset + sum(max(s, 0) * (n - 1) for n, s in zip(layout.shape, layout.strides, strict=True))
    return last < program.sizes[layout.slot][0]
