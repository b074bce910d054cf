"""Small inputs of libraries' calls, copied to where graphs know them.

What a library queued cannot be told another address, and so a graph is for those that it was recorded with.
A small tensor that is new at each run, a batch say, is copied; a large one has graphs for its places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import cupy
from tensorbus.backend_api import StridedArray

if TYPE_CHECKING:
    from ..memory import Block
    from ..unit import Unit

COPIED_MAX_BYTES: Final = 1 << 20
"""Up to how many bytes an input is copied."""
ALL: Final = 1 << 24
"""Up to how many bytes those of one program may have together."""
OFTEN: Final = 3
"""How often an input has lain elsewhere when a graph was to be recorded, before it is copied."""


class SteadyInputs:
    """The inputs ``slots`` of one program's libraries: copies where they do not stay in place."""

    def __init__(self, unit: Unit, slots: Sequence[int]) -> None:
        self._unit = unit
        self._slots = slots
        self._places: dict[int, int] = {}
        self._moves = dict.fromkeys(slots, 0)
        self._blocks: dict[int, Block] = {}

    def note(self, values: Sequence[Any], buffers: Sequence[Any]) -> bool:
        """Note where inputs lie for which there is no graph; return whether more of them are copied now."""
        count = len(self._blocks)
        for slot in self._slots:
            block = buffers[slot]
            if block is None or slot in self._blocks:
                continue
            self._moves[slot] += self._places.get(slot, block.ptr) != block.ptr
            self._places[slot] = block.ptr
            room = ALL - sum(known.nbytes for known in self._blocks.values())
            if self._moves[slot] >= OFTEN and _is_plain(values[slot]) and values[slot].nbytes <= room:
                self._blocks[slot] = self._unit.pool.allocate(values[slot].nbytes)
        return len(self._blocks) > count

    def placed(self, values: Sequence[Any], buffers: list[Any], stream: Any) -> list[Any]:
        """Return the buffers with those of the copies; the copies are queued in ``stream``."""
        if not self._blocks:
            return buffers
        result, runtime = [*buffers], cupy.cuda.runtime
        with self._unit.current():
            for slot, block in self._blocks.items():
                value = values[slot]
                if _is_plain(value) and value.nbytes <= block.nbytes:
                    kind = runtime.memcpyDeviceToDevice
                    runtime.memcpyAsync(block.ptr, buffers[slot].ptr, value.nbytes, kind, stream.ptr)
                    result[slot] = block
        return result

    def clear(self) -> None:
        """Give the copies' memory back, behind what is queued with it, and forget where inputs lay."""
        self._blocks.clear()
        self._places.clear()
        self._moves = dict.fromkeys(self._slots, 0)


def _is_plain(value: Any) -> bool:
    """Return whether a value is small, and begins with its block, its elements in C order."""
    return (
        type(value) is StridedArray
        and value.offset == 0
        and value.is_contiguous
        and 0 < value.nbytes <= COPIED_MAX_BYTES
    )
