"""What a well-formed program is: slots are filled before they are read, steps of a batch are independent."""

from __future__ import annotations

from .job import ERROR_SLOT
from .layout import Layout
from .steps import Batch, Call, Item, Program, slots_of, steps_of
from .verify import IRError, verify


def verify_program(program: Program, inputs: int) -> Program:
    """Return ``program``, of ``inputs`` inputs, when it is well formed; raise ``IRError`` otherwise."""

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
        if isinstance(item, Batch):
            need(_independent(item), f"step {k}: steps of a batch wait for each other")
        for step in steps_of(item):
            after = step.epilogue_of
            need(
                after is None or (after == k - 1 and isinstance(program.steps[after], Call)),
                f"step {k} follows no call",
            )
    for layout in program.outputs:
        need(
            layout.slot in filled and layout.slot not in freed,
            f"output %{layout.slot} is not there at the end",
        )
        need(_inside(layout, program, inputs), f"output %{layout.slot} reaches beyond its buffer")
    return program


def _independent(batch: Batch) -> bool:
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
