"""A unit: one GPU with its streams, its memory, and what its kernels report."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakMethod

from tensorbus.backend_api import DeviceError, Reports, StridedArray

from .async_errors import Failures, Watch
from .dialect import dialect
from .event_query import NOT_READY, event_query
from .interruptible_wait import InterruptibleWait

if TYPE_CHECKING:
    from .gemm.cublaslt import Library
    from .graphs.graph_driver import GraphDriver
    from .memory import Block

_Report = ctypes.c_int64 * 3
"""What a kernel reports: the number of an op, a value, and its limit."""
_MAX_SHARED_MEMORY: Final = 97
"""CUDA's number for how many bytes of shared memory a block may have that asks for them."""
STAGING_BYTES: Final = 4096
"""Up to how large a value is read through pinned memory, so that the copy waits for nothing by itself."""
_LOOKING_SECONDS: Final = 0.05
"""How long the end of work is looked for without a pause: about as long as a training step takes."""
_Staging = ctypes.c_uint8 * STAGING_BYTES


class Unit:
    """One GPU: its streams, its memory, and where its kernels report errors."""

    def __init__(self, index: int, alone: bool) -> None:
        """``alone`` says that there is no other GPU, so that none has to be made current."""
        import cupy

        from .copies.pinned_memory import Pinned
        from .memory import Pool

        self.index = index
        self._device = cupy.cuda.Device(index)
        about = cupy.cuda.runtime.getDeviceProperties(index)
        self.model = about["name"].decode()
        self.name = f"cuda:{index} ({self.model})"
        self.total = int(about["totalGlobalMem"])
        self.processors = int(about["multiProcessorCount"])
        self.architecture = f"{about['major']}{about['minor']}"
        shared = int(cupy.cuda.runtime.deviceGetAttribute(_MAX_SHARED_MEMORY, index))
        self.dialect = dialect(self.processors, int(self.architecture), shared)
        self.alone = alone
        self.failures = Failures(self.name)
        self.bare: AbstractContextManager[Any] = nullcontext() if alone else self._device
        """A context in which CuPy works on this GPU; CUDA's errors leave it as they are."""
        self._context = Watch(self.failures, self.bare)
        self.default = cupy.cuda.Stream.null
        self.stream: Callable[[], Any] = partial(cupy.cuda.get_current_stream, index)
        """Returns this thread's current stream, which is CuPy's: its arrays and ours are in one order."""
        self.pool = Pool(self)
        self.pinned = Pinned(self)
        self._library: Library | None = None
        self._driver: GraphDriver | None = None
        self.silent: Any = None
        self.recorded_for: Any = None
        self.lane = 0
        """Which of several libraries' calls that run side by side is being recorded."""
        self.graph_lock = threading.Lock()
        self._local = threading.local()
        self._reported = _Report()
        self._errors: Block | None = None
        self.counting = 4 * self.dialect.target.workgroup_counters
        """The bytes in which the groups of a kernel are counted."""
        self._counts: dict[tuple[int, int], Block] = {}
        self._counted: tuple[Any, Block | None] = None, None
        """The stream of the last kernel that counts its groups, and where it does."""
        self.late: list[Exception] = []
        """What is raised at the next looks: of a collective, say, that did not end."""
        self.interruptible: InterruptibleWait | None = None
        """What waits of the host are made by, once others may have to end them."""
        self.marks: dict[int, Any] = {}
        """The last event that was asked for in each stream: what others may have to end has one behind it."""
        self.looks: list[WeakMethod[Callable[[], None]]] = []
        """What is called behind each wait of the host: it may put something into ``late``."""
        self.read_checks: list[WeakMethod[Callable[[], None]]] = []
        """What is called before a value is handed out to the host."""
        self.origins: frozenset[Unit] = frozenset()
        """Units from which values have been copied here."""
        self._given_up: list[Any] = []
        """Pinned memory that copies may still write to which nobody waits for any more."""
        self._running = self._unread = False
        """Whether a kernel that may report has been queued since all were waited for, and before that."""

    def current(self) -> AbstractContextManager[Any]:
        """Return a context in which CuPy works on this GPU; an error that loses it is a ``DeviceError``."""
        return self._context

    def enter(self) -> None:
        """Make this thread one that uses the GPU: the driver's own functions need that."""
        import cupy

        with self._device:
            cupy.cuda.runtime.memGetInfo()

    def enter_once(self) -> None:
        """Make this thread one that uses the GPU, if it is none yet."""
        if not getattr(self._local, "entered", False):
            self.enter()
            self._local.entered = True

    def use(self, stream: Any) -> Any:
        """Make a stream current for this thread (None: the default one); return the one before."""
        replaced = self.stream()
        with self.current():
            (self.default if stream is None else stream).use()
        return replaced

    def until(self, wait: Callable[[], object]) -> None:
        """Make a call that waits for the GPU; what is to be raised later ends it, once others say so."""
        if self.interruptible is None:
            wait()
        else:
            self.interruptible.run(wait, self.look)

    def has_read_checks(self) -> bool:
        """Return whether anybody wants to look before a value is handed out."""
        return any(known() is not None for unit in (self, *self.origins) for known in unit.read_checks)

    def look_before_reads(self) -> None:
        """Let those look who want to before the host has a value, and raise what was to be raised later."""
        for unit in (self, *self.origins):
            unit.look()
            for known in unit.read_checks:
                check = known()
                if check is not None:
                    check()
            unit.raise_late()

    def wait_for(self, marker: Any) -> None:
        """Wait for a stream or an event."""

        def wait() -> None:
            with self.current():
                marker.synchronize()

        self.until(wait)

    def look(self) -> None:
        """Let those look who wanted to, behind waits of the host and during long ones."""
        for known in self.looks:
            look = known()
            if look is not None:
                look()

    def raise_later(self, error: Exception) -> None:
        """Raise ``error`` at the next look; waits that are interrupted for it raise it in any case."""
        self.late.append(error)
        if self.interruptible is not None:
            self.interruptible.expect(error)

    def raise_late(self) -> None:
        """Raise what was to be raised later, if there is anything."""
        try:
            late = self.late.pop(0)
        except IndexError:  # nothing, or another thread was first
            return
        raise type(late)(str(late))

    def wait(self) -> None:
        """Wait for the work in every stream. Raises ``DeviceError`` where some of it failed."""
        import cupy

        running, self._running = self._running, False
        self._unread = self._unread or running
        try:
            if self.interruptible is None or self._has_ended():
                self._device.synchronize()
            else:
                self.until(self._device.synchronize)
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise self.failed("waiting for it", error) from error
        self.failures.done()
        self.pinned.release()

    def _has_ended(self) -> bool:
        """Look for a while whether what others may have to end is done: no thread need wait for it then.

        A thread that sleeps meanwhile finds its processor's caches cold: what a training step does in Python
        then took twice as long; and waking two of them takes a tenth of a millisecond. Errors are left to
        the wait.
        """
        with self.current():
            event, query, end = self.stream().record(), event_query(), perf_counter() + _LOOKING_SECONDS
            while (code := query(event.ptr)) == NOT_READY and not self.late and perf_counter() < end:
                pass
            return not code and not self.late and not any(query(x.ptr) for x in list(self.marks.values()))

    def failed(self, what: str, problem: Exception | int) -> DeviceError:
        """Return the error of ``what``, which CUDA refused: that of earlier work, if it was that.

        ``problem`` is the exception, or a number of the driver's.
        """
        late_error = self.failures.error(problem)
        return late_error or DeviceError(f"{self.name}: {what} failed: {problem}.")

    def refused(self, what: str, code: int) -> DeviceError:
        """Return the error of a library that returned ``code``: that of earlier work, if that has failed."""
        try:
            self.wait()
        except DeviceError as error:
            return error
        return DeviceError(f"{self.name}: {what} returned error {code}.")

    def join(self, value: StridedArray) -> None:
        """Make later work in the current stream wait for the stream that makes a value."""
        stream, own = self.stream(), value.buffer.stream
        if own is not stream:
            with self.current():
                stream.wait_event(own.record())

    def library(self) -> Library:
        """Return cuBLASLt for this GPU."""
        if self._library is None:
            from .gemm.cublaslt import Library

            self._library = Library(self)
        return self._library

    def copy_rows(self, source: Block, pitch: int, target: Block, apart: int, width: int, rows: int) -> None:
        """Queue a copy of ``rows`` rows of ``width`` bytes, ``pitch`` apart, to ``apart`` from each other."""
        import cupy

        kind = cupy.cuda.runtime.memcpyDeviceToDevice
        with self.current():
            cupy.cuda.runtime.memcpy2DAsync(
                target.ptr, apart, source.ptr, pitch, width, rows, kind, self.stream().ptr
            )

    def driver(self) -> GraphDriver:
        """Return the functions of the driver for graphs."""
        if self._driver is None:
            from .graphs.graph_driver import GraphDriver

            self._driver = GraphDriver()
        return self._driver

    def side(self) -> Any:
        """Return the stream that graphs are recorded in, one at a time: nothing ever runs there."""
        import cupy

        if self.silent is None:
            self.silent = cupy.cuda.Stream(non_blocking=True)
        return self.silent

    def behind(self, stream: Any) -> Any:
        """Return the stream that work queued in ``stream`` will run in: another one while it is recorded."""
        return self.recorded_for if stream is self.silent and self.recorded_for is not None else stream

    def workplace(self, stream: Any) -> tuple[int, int]:
        """Return a key for the memory that a library works in: calls with the same one run one by one."""
        return self.behind(stream).ptr, self.lane if stream is self.silent else 0

    def error_block(self) -> Block:
        """Return the block for errors, memory of the host; from now on it is looked at when waiting."""
        if self._errors is None:
            data = self.pinned.allocate(ctypes.sizeof(_Report))
            self._reported = _Report.from_buffer(data)
            ctypes.memset(self._reported, 0, len(data))
            self._errors = self.pool.adopt(data, ctypes.addressof(self._reported), len(data))
        self._running = True
        return self._errors

    def counts(self) -> Block:
        """Return the block in which the current stream's kernels, one by one, count their groups."""
        stream = self.stream()
        before, known = self._counted
        if known is not None and before is stream:
            return known
        place = self.workplace(stream)
        if place not in self._counts:
            self._counts[place] = self.pool.zeros(self.counting)
        block = self._counts[place]
        if stream is not self.silent:
            self._counted = stream, block
        return block

    def check(self, reports: Reports) -> None:
        """Raise the first error that a kernel reported since the last look, and forget it.

        Kernels that still run may report later: it is looked again when they have been waited for. What was
        to be raised later comes first, and what others find who look before a value is handed out.
        """
        self.look_before_reads()
        if not (self._running or self._unread) or self._errors is None:
            return
        self._unread = False
        if not self._reported[0]:
            return
        if self._running:  # the kernel that reported may not have written all of it
            self.wait()
            self._unread = False
        report = [*self._reported]
        ctypes.memset(self._reported, 0, ctypes.sizeof(_Report))
        raise reports.error(self.name, *report)

    def room(self) -> Any:
        """Return this thread's own few bytes of pinned memory, for values that are read at once."""
        room = getattr(self._local, "room", None)
        if room is None:
            room = self._local.room = _Staging.from_buffer(self.pinned.allocate(ctypes.sizeof(_Staging)))
        return room

    def give_up_room(self) -> None:
        """Leave this thread's few bytes to a copy that nobody waits for, and which may still come."""
        self._given_up.append(self._local.room)
        self._local.room = None
