"""Numbers that come with each run of a graph, in memory that its kernels read them from.

Telling one kernel of a graph another number takes the driver as long as launching one, and an optimizer has a
kernel for each parameter. All numbers of a run are copied at once instead: each that several kernels have,
as the rate at which all learn, lies there once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from tensorbus.backend_api import INDEX, RuntimeArg, numbers_in_memory

from ..kernel_launch import cell

if TYPE_CHECKING:
    from tensorbus.backend_api import Launch, Script

    from ..compiler import CudaCompiler
    from ..kernel_launch import Launcher
    from ..unit import Unit

MIN_STEPS: Final = 8
"""From how many kernels with numbers on they are worth kernels of their own, which are compiled for it."""
_APART: Final = 16
"""Bytes of each number: of the widest."""
Reader = Callable[[Sequence[Any]], Any]


class RunNumbers:
    """Those of one program: ``launchers`` has, by step, what launches a kernel that reads them there.

    With that are the addresses of its numbers, the last of its buffers. Raises ``DeviceError`` where such a
    kernel cannot be built.
    """

    def __init__(self, unit: Unit, compiler: CudaCompiler, script: Script) -> None:
        self.launchers: dict[int, tuple[Launcher, list[int]]] = {}
        self._late: dict[int, list[Reader]] = {}
        self._sent = b""
        self._readers: list[Reader] = []
        self._block: Any = None
        late = [k for k, step in enumerate(script.steps) if step.late]
        if len(late) < MIN_STEPS:
            return
        known: dict[Launch, Any] = {}  # most are alike, and it takes long to write one
        changed: list[tuple[int, Launch, Any]] = []
        for k in late:
            what = script.steps[k].what
            if what is not None:
                new = known.get(what, known)
                if new is known:
                    new = known[what] = numbers_in_memory(what, unit.dialect)
                changed += [(k, what, new)] if new is not None else []
        compiler.build([source for _, _, (_, source, _) in changed], script.index)
        places: dict[Any, int] = {}
        kinds: list[Any] = []
        plan: list[tuple[int, Launcher, list[int]]] = []
        for k, what, (launch, source, _) in changed:
            pairs = zip(what.kernel.params, what.values, strict=True)
            arguments = [(value, p.dtype) for p, value in pairs if isinstance(value, RuntimeArg)]
            offsets = []
            for number, read in zip(arguments, script.steps[k].late, strict=True):
                if number[1] is INDEX:
                    self._late.setdefault(k, []).append(read)
                    continue
                if number not in places:
                    places[number] = len(kinds) * _APART
                    kinds.append(number[1])
                    self._readers.append(read)
                offsets.append(places[number])
            plan.append((k, compiler.template(source, launch, script.index), offsets))
        if plan:
            self._words = (ctypes.c_uint8 * (len(kinds) * _APART))()
            self._cells = [cell(kind, self._words, n * _APART) for n, kind in enumerate(kinds)]
            self._block = unit.pool.allocate(len(self._words))
            self._at = ctypes.addressof(self._words)
        for k, launcher, offsets in plan:
            self.launchers[k] = launcher, [self._block.ptr + offset for offset in offsets]

    def late(self, k: int, readers: Sequence[Reader]) -> Sequence[Reader]:
        """Return which ``readers`` of a step's arguments are left: of those that the kernel is arguments."""
        return self._late.get(k, ()) if k in self.launchers else readers

    def send(self, values: Sequence[Any], stream: Any) -> None:
        """Queue a copy of the run's numbers in ``stream``, unless they are those of the run before."""
        if not self._readers:
            return
        for place, read in zip(self._cells, self._readers, strict=True):
            place.value = read(values)
        content = bytes(self._words)  # 0.0 is not -0.0
        if content == self._sent:
            return
        self._sent = b""  # until the copy is queued: an interrupt may come between
        # What is not pinned has been read when the call returns.
        self._block.memory.copy_from_host_async(self._at, len(content), stream)
        self._sent = content
