"""Kernels in memory: those that were used last, up to a limit. A driver's compiled kernel is large.

Intel's runtime for processors holds 0.4 to 1.8 MB of host memory for each, and long-lived processes meet
thousands. What was let go is loaded again from the disk when it is launched again, in 2 to 20 ms.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import pyopencl as cl
from tensorbus.backend_api import DeviceError, WeakValues, with_line_numbers

if TYPE_CHECKING:
    from .device import Unit

LIMIT: Final = 512


class Handle:
    """A kernel of one unit, in memory or not. ``lock`` guards it and its arguments: hold it to launch.

    ``used`` is when it was launched last, in launches of any kernel; ``holds`` are the arguments that stay
    the same in the launches of one user, where they are set.
    """

    __slots__ = ("__weakref__", "holds", "kernel", "lock", "name", "source", "unit", "used")

    def __init__(self, unit: Unit, source: str, name: str) -> None:
        self.unit = unit
        self.source = source
        self.name = name
        self.lock = threading.Lock()
        self.kernel: cl.Kernel | None = None
        self.holds: object = None
        self.used = 0


class Loaded:
    """The kernels in memory of one process. Safe in many threads.

    ``loads`` counts what was loaded into memory so far.
    """

    def __init__(self, load: Callable[[Unit, str], cl.Program], limit: int = LIMIT) -> None:
        """Keep at most ``limit`` of what ``load`` makes of a unit and a source."""
        self.limit = limit
        self.loads = 0
        self.tick: Callable[[], int] = count(1).__next__
        self._load = load
        self._lock = threading.Lock()
        self._known: WeakValues[tuple[int, str], Handle] = WeakValues()
        self._held: set[Handle] = set()

    def __len__(self) -> int:
        """Return how many kernels are in memory."""
        return len(self._held)

    def handle(self, unit: Unit, source: str, name: str) -> Handle:
        """Return the one handle of a source, loaded. Raises ``DeviceError`` for source that does not compile.

        Whoever launches asks for ``handle.kernel or loaded.load(handle)``, with ``handle.lock`` held.
        """
        key = (unit.index, source)
        with self._lock:
            loaded = self._known.get(key)
            if loaded is None:
                loaded = self._known[key] = Handle(unit, source, name)
        with loaded.lock:
            if loaded.kernel is None:
                self.load(loaded)
        return loaded

    def load(self, handle: Handle) -> cl.Kernel:
        """Bring a kernel into memory, in the place of one that was not used for longest. Needs its lock."""
        with self._lock:
            handle.used = self.tick()
            program = self._load(handle.unit, handle.source)
            try:
                handle.kernel = kernel = _kernel(program, handle.name)
            except cl.LogicError as error:
                raise DeviceError(
                    f"opencl: the source has no function `__kernel void {handle.name}(...)`.\n"
                    f"{with_line_numbers(handle.source)}"
                ) from error
            handle.holds = None
            self.loads += 1
            self._held.add(handle)
            if len(self._held) > self.limit:
                self._shrink()
        return kernel

    def _shrink(self) -> None:
        for handle in sorted(self._held, key=lambda h: h.used):
            if len(self._held) <= self.limit:
                break
            # Another thread is about to launch it; waiting here for it, which may wait for us, would not end.
            if handle.lock.acquire(blocking=False):
                # The driver keeps a kernel, and its program, until what was queued of it has run.
                handle.kernel = None
                handle.lock.release()
                self._held.discard(handle)


def _kernel(program: cl.Program, name: str) -> cl.Kernel:
    """Return a kernel. What PyOpenCL keeps on disk for it is left alone where that is damaged."""
    # A ``Program`` in Python is asked for attributes by C++, which drops a Ctrl-C that arrives there.
    own: Any = program._get_prg()
    try:
        return cl.Kernel(own, name)
    except (cl.Error, MemoryError):
        raise
    except Exception as error:
        if cl._PYOPENCL_NO_CACHE:
            raise
        warnings.warn(
            f"opencl: what PyOpenCL keeps on disk cannot be read ({type(error).__name__}: {error}), and is"
            f" not used any more by this process. Remove the folder pytools from your cache (~/.cache).",
            RuntimeWarning,
            stacklevel=2,
        )
        cl._PYOPENCL_NO_CACHE = True
        return cl.Kernel(own, name)
