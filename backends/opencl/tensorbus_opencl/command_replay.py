"""``mode="reduce-overhead"``: launches whose arguments stay set, in memory that is kept between runs.

A driver's own command buffers (``cl_khr_command_buffer``) were measured and are not used: with Intel's
runtime for processors a replay of 20 kernels took nine tenths of queueing them one by one, one of 3 twice as
long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyopencl as cl
from tensorbus.backend_api import ERROR_SLOT, DeviceError

if TYPE_CHECKING:
    from tensorbus.backend_api import Queued, Script

    from .compiler import OpenclCompiler
    from .memory import Block
    from .queues import Queue


class _Bound:
    """A kernel of one launch: what each run gives it, and what it has as arguments now.

    ``slots`` and ``late`` are by the number of the argument.
    """

    __slots__ = ("blocks", "grid", "group", "kernel", "late", "name", "numbers", "slots")

    def __init__(self, kernel: cl.Kernel, grid: tuple[int, ...], group: tuple[int, ...], name: str) -> None:
        self.kernel, self.grid, self.group, self.name = kernel, grid, group, name
        self.slots: list[tuple[int, int]] = []
        self.late: list[tuple[int, Callable[[Sequence[Any]], bytes]]] = []
        self.blocks: list[Any] = []
        self.numbers: list[bytes] = []


class Replay:
    """A program's launches. Each queue has kernels and temporary memory of its own.

    One thread at a time plays it; what it holds goes when it goes.
    """

    def __init__(self, compiler: OpenclCompiler, script: Script) -> None:
        """Take a program of launches alone."""
        self._compiler = compiler
        self._unit = compiler.runtime.unit(script.index)
        self._script = script
        shown = {layout.slot for layout in script.program.outputs}
        self._result_slots = [slot for slot in script.nbytes if slot in shown]
        self._room, self._sizes = _rooms(script, shown)
        self._known: dict[int, tuple[list[_Bound], list[Block]]] = {}

    def play(self, values: Sequence[Any], buffers: list[Any]) -> bool:
        """Queue the launches, with new buffers for the results that have none."""
        unit = self._unit
        to = unit.queue()
        bit = to.bit
        known = self._known.get(bit)
        if known is None:
            known = self._known[bit] = self._bind(to)
        nbytes, allocate = self._script.nbytes, unit.pool.allocate
        for slot in self._result_slots:
            if buffers[slot] is None and nbytes[slot]:
                buffers[slot] = allocate(nbytes[slot], bit)
        enqueue = cl.enqueue_nd_range_kernel
        for one in known[0]:
            kernel, set_blocks = one.kernel, one.blocks
            for k, (at, slot) in enumerate(one.slots):
                block = unit.error_block() if slot == ERROR_SLOT else buffers[slot]
                memory = None
                if block is not None:
                    memory = block.memory
                    if block.users != bit:
                        block.used_by(bit)
                if set_blocks[k] is not memory:
                    kernel.set_arg(at, memory)
                    set_blocks[k] = memory
            for k, (at, read) in enumerate(one.late):
                number = read(values)
                if one.numbers[k] != number:
                    kernel.set_arg(at, number)
                    one.numbers[k] = number
            try:
                enqueue(to, kernel, one.grid, one.group)
            except cl.Error as error:
                raise DeviceError(f"{unit.name}: {one.name} could not be queued: {error}") from error
        return True

    def _bind(self, to: Queue) -> tuple[list[_Bound], list[Block]]:
        """Make the kernels and the temporary memory for a queue."""
        blocks = [self._unit.pool.allocate(n, to.bit) for n in self._sizes]
        return [self._bound(step, blocks) for step in self._script.steps if step.what is not None], blocks

    def _bound(self, step: Queued, blocks: Sequence[Block]) -> _Bound:
        assert step.what is not None
        launch = step.what
        kernel, grid, group, packs = self._compiler.bound(step.source, launch, self._script.index)
        bound = _Bound(kernel, grid, group, launch.kernel.name)
        for at, slot in enumerate(step.slots):
            if slot in self._room:
                kernel.set_arg(at, blocks[self._room[slot]].memory)
            else:
                bound.slots.append((at, slot))
        bound.blocks = [self] * len(bound.slots)
        for (at, pack), read in zip(packs, step.late, strict=True):
            bound.late.append((at, _packed(pack, read)))
        bound.numbers = [b""] * len(bound.late)
        return bound


def _packed(
    pack: Callable[[Any], bytes], read: Callable[[Sequence[Any]], Any]
) -> Callable[[Sequence[Any]], bytes]:
    return lambda values: pack(read(values))


def _rooms(script: Script, shown: set[int]) -> tuple[dict[int, int], list[int]]:
    """Return which block each temporary slot lies in, and the sizes of the blocks, used again when free."""
    room: dict[int, int] = {}
    sizes: list[int] = []
    free: list[int] = []
    steps = iter(script.steps)
    for item, frees in zip(script.program.steps, script.program.frees, strict=True):
        for _ in range(len(getattr(item, "steps", (item,)))):
            for slot in dict.fromkeys(next(steps).slots):
                need = script.nbytes.get(slot, 0)
                if not need or slot in shown or slot in room:
                    continue
                fits = sorted((sizes[k], k) for k in free if need <= sizes[k] <= 2 * need)
                if fits:
                    room[slot] = fits[0][1]
                    free.remove(fits[0][1])
                else:
                    room[slot] = len(sizes)
                    sizes.append(need)
        free += [room[slot] for slot in frees if slot in room]
    return room, sizes
