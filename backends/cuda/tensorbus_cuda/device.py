"""The NVIDIA GPUs: the probe, which needs no CuPy, and the units with their streams, through CuPy."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

from tensorbus.backend_api import (
    DeviceError,
    DeviceProperties,
    DeviceUnavailableError,
    DType,
    MemoryStats,
    Reports,
    SourceCall,
    StridedArray,
    UnsupportedDtypeError,
    pack,
)

from .async_errors import Failures, Watch
from .dialect import dialect

if TYPE_CHECKING:
    from .gemm.cublaslt import Library
    from .graphs.cuda_graph import GraphDriver
    from .memory import Block

_DRIVER: Final = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
_NOT_READY: Final = 600
"""``cudaErrorNotReady``: work before an event is not done."""
_NO_DEVICE: Final = 100
"""``CUDA_ERROR_NO_DEVICE`` of the CUDA driver API."""
_OLDEST: Final = 14
"""The first version of CuPy that this is written for."""
_FEW: Final = 1 << 16
"""Up to how many bytes are copied from the host without waiting, from memory of our own."""
_Report = ctypes.c_int64 * 3
"""What a kernel reports: the number of an op, a value, and its limit."""
_Room = ctypes.c_uint8 * 4096
"""What smaller values are read through: pinned, so that the copy waits for nothing by itself."""


def why_unavailable() -> str | None:
    """Return the first thing that is missing: driver, GPU, CuPy. None where nothing is."""
    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError:
        return f"there is no NVIDIA driver on this machine ({_DRIVER} cannot be loaded)"
    count, problem = _count(driver)
    if problem:
        return problem
    if importlib.util.find_spec("cupy") is None:
        return f"CuPy is not installed, though the driver shows {count} GPU(s)"
    return None


def _count(driver: ctypes.CDLL) -> tuple[int, str]:
    """Return how many GPUs there are, and what is wrong, or ""."""
    none = "the NVIDIA driver is installed but finds no GPU, or none that CUDA_VISIBLE_DEVICES lets it show"
    code = driver.cuInit(0)
    if code == _NO_DEVICE:
        return 0, none
    if code:
        return 0, f"the NVIDIA driver does not start: cuInit returned error {code}{_said(driver, code)}"
    count = ctypes.c_int()
    code = driver.cuDeviceGetCount(ctypes.byref(count))
    if code:
        return 0, f"the NVIDIA driver does not count its GPUs: cuDeviceGetCount returned error {code}"
    return count.value, "" if count.value else none


def _said(driver: ctypes.CDLL, code: int) -> str:
    """Return what the driver calls an error, in brackets; empty where it has no words for it."""
    text = ctypes.c_char_p()
    driver.cuGetErrorString(code, ctypes.byref(text))
    return f" ({text.value.decode()})" if text.value else ""


def _look_at_cupy() -> None:
    """Raise ``DeviceUnavailableError`` where CuPy is too old, or does not find what it compiles with."""
    try:
        import cupy
    except Exception as error:  # also of a library that it loads
        raise DeviceUnavailableError(f"CuPy is installed but cannot be imported: {error}") from error
    version = str(getattr(cupy, "__version__", "without a version"))
    if not version.partition(".")[0].isdigit() or int(version.partition(".")[0]) < _OLDEST:
        raise DeviceUnavailableError(f"CuPy {version} is installed, and {_OLDEST} or later is needed")
    try:
        from cupy.cuda import nvrtc

        nvrtc.getVersion()
    except Exception as error:  # ImportError, or what the finder of libraries raises
        raise DeviceUnavailableError(
            f"CuPy {version} is installed, but not NVRTC, which compiles kernels: {error}"
        ) from error


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
        self.dialect = dialect(self.processors)
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

    def use(self, stream: Any) -> Any:
        """Make a stream current for this thread (None: the default one); return the one before."""
        replaced = self.stream()
        with self.current():
            (self.default if stream is None else stream).use()
        return replaced

    def wait(self) -> None:
        """Wait for the work in every stream. Raises ``DeviceError`` where some of it failed."""
        import cupy

        running, self._running = self._running, False
        self._unread = self._unread or running
        try:
            self._device.synchronize()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise self.failed("waiting for it", error) from error
        self.failures.done()
        self.pinned.let_go()

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
            from .graphs.cuda_graph import GraphDriver

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

        Kernels that still run may report later: it is looked again when they have been waited for.
        """
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
            room = self._local.room = _Room.from_buffer(self.pinned.allocate(ctypes.sizeof(_Room)))
        return room


class CudaRuntime:
    """The T0 functions of NVIDIA GPUs, with streams, copies between GPUs, and DLPack."""

    def __init__(self) -> None:
        reason = why_unavailable()
        if reason is not None:
            raise DeviceUnavailableError(reason)
        _look_at_cupy()
        import cupy

        from .compiler import CudaCompiler

        try:
            count = cupy.cuda.runtime.getDeviceCount()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise DeviceUnavailableError(f"CuPy finds no GPU that it can use: {error}") from error
        self.units = [Unit(k, alone=count == 1) for k in range(count)]
        self.reports = Reports()
        self.compiler = CudaCompiler(self)

    def unit(self, index: int) -> Unit:
        """Return one unit."""
        return self.units[index]

    def device_count(self) -> int:
        """Return how many GPUs there are."""
        return len(self.units)

    def properties(self, index: int) -> DeviceProperties:
        """Describe one GPU."""
        import cupy

        unit = self.units[index]
        version = cupy.cuda.runtime.driverGetVersion()
        return DeviceProperties(
            name=unit.model,
            vendor="NVIDIA",
            driver=f"CUDA {version // 1000}.{version % 1000 // 10}, CuPy {cupy.__version__}",
            memory=unit.total,
            compute_units=unit.processors,
            dtypes=frozenset(unit.dialect.types),
            extra={"architecture": f"sm_{unit.architecture}"},
        )

    def from_host(self, data: memoryview, shape: tuple[int, ...], dtype: DType, index: int) -> StridedArray:
        """Copy C-ordered bytes into a new value."""
        import numpy as np

        unit = self.units[index]
        if dtype not in unit.dialect.types:
            names = ", ".join(d.name for d in unit.dialect.types)
            raise UnsupportedDtypeError(
                f"{unit.name} has no {dtype}; it has {names}. Cast it before it is moved there."
            )
        if data.nbytes == 0:
            return StridedArray.contiguous(None, shape, dtype)
        block = unit.pool.allocate(data.nbytes)
        host, few = np.frombuffer(data, np.uint8), data.nbytes <= _FEW
        if few:  # what is not pinned has been read when the call returns: nobody waits for earlier work
            host = host.copy()
        with unit.current():
            block.memory.copy_from_host_async(host.ctypes.data, data.nbytes, unit.stream())
            if few:
                block.queued = True
            else:
                unit.stream().synchronize()  # others' memory, pinned perhaps, may change or go from now on
        return StridedArray.contiguous(block, shape, dtype)

    def to_host(self, value: StridedArray, dtype: DType, index: int) -> memoryview:
        """Return the elements as C-ordered bytes, waiting for the work in all streams."""
        unit = self.units[index]
        if value.size == 0:
            unit.check(self.reports)
            return memoryview(b"")
        if value.nbytes <= ctypes.sizeof(_Room):
            return self._read(unit, value)
        unit.wait()
        packed = pack(self.compiler, value, index)
        host = bytearray(value.nbytes)
        at = ctypes.addressof(ctypes.c_char.from_buffer(host))
        with unit.current():
            packed.buffer.memory.copy_to_host_async(at, value.nbytes, unit.stream())
            unit.stream().synchronize()
        unit.check(self.reports)
        return memoryview(host)

    def _read(self, unit: Unit, value: StridedArray) -> memoryview:
        """Return the elements of a small value. The copy is queued before anything is waited for."""
        unit.join(value)
        packed, room = pack(self.compiler, value, unit.index), unit.room()
        with unit.current():
            packed.buffer.memory.copy_to_host_async(ctypes.addressof(room), value.nbytes, unit.stream())
        unit.wait()
        unit.check(self.reports)
        return memoryview(bytearray(ctypes.string_at(room, value.nbytes)))

    def copy_across(self, value: StridedArray, source: int, target: int) -> StridedArray:
        """Return a copy on another GPU, which does not pass through the host where they are connected."""
        from .copies.peer_copy import copied

        if value.size == 0:
            return StridedArray.contiguous(None, value.shape, value.dtype)
        self.units[source].join(value)
        return copied(pack(self.compiler, value, source), self.units[source], self.units[target])

    def pin(self, nbytes: int, index: int) -> memoryview:
        """Return new page-locked memory."""
        return self.units[index].pinned.allocate(nbytes)

    def is_pinned(self, data: memoryview, index: int) -> bool:
        """Return whether bytes lie in such memory: also in what another GPU's was asked for."""
        return any(unit.pinned.has(data) for unit in self.units)

    def upload(
        self, data: memoryview, shape: tuple[int, ...], dtype: DType, index: int, *, keep: Any
    ) -> StridedArray:
        """Queue a copy of pinned bytes into a new value."""
        return StridedArray.contiguous(self.units[index].pinned.upload(data, keep), shape, dtype)

    def download(
        self, value: StridedArray, dtype: DType, index: int
    ) -> tuple[memoryview, Callable[[], None]]:
        """Queue a copy of a value into pinned memory, behind the work that makes it; return what waits."""
        unit = self.units[index]
        unit.join(value)
        return unit.pinned.download(pack(self.compiler, value, index), self.reports)

    def synchronize(self, index: int) -> None:
        """Wait for all streams' work; raise what a kernel reported."""
        self.units[index].wait()
        self.units[index].check(self.reports)

    def memory_stats(self, index: int) -> MemoryStats:
        """Return the memory statistics of the GPU."""
        return self.units[index].pool.stats()

    def reset_peak_memory_stats(self, index: int) -> None:
        """Make the peak equal to what is allocated now."""
        pool = self.units[index].pool
        pool.peak = pool.allocated

    def empty_cache(self, index: int) -> None:
        """Give the memory that is kept for reuse back to the driver."""
        self.units[index].pool.trim()

    def compile_kernel(
        self, call: SourceCall, index: int
    ) -> Callable[[Sequence[Any]], tuple[StridedArray, ...]]:
        """Return what queues a kernel that a user wrote in CUDA C++ or Triton."""
        from .user_kernels import compile_kernel

        return compile_kernel(self.compiler, call, index)

    def create_stream(self, index: int) -> Any:
        """Return a new stream, which does not wait for the default one."""
        import cupy

        with self.units[index].current():
            return cupy.cuda.Stream(non_blocking=True)

    def use_stream(self, stream: Any, index: int) -> Any:
        """Make ``stream`` current for this thread; return the one it replaces."""
        return self.units[index].use(stream)

    def synchronize_stream(self, stream: Any, index: int) -> None:
        """Wait for the work in ``stream``."""
        unit = self.units[index]
        with unit.current():
            (stream or unit.stream()).synchronize()
        unit.check(self.reports)

    def record_event(self, stream: Any, index: int) -> Any:
        """Return a marker behind the work now in ``stream``."""
        unit = self.units[index]
        with unit.current():
            return (stream or unit.stream()).record()

    def wait_event(self, event: Any, stream: Any, index: int) -> None:
        """Make later work in ``stream`` wait for ``event``."""
        unit = self.units[index]
        with unit.current():
            (stream or unit.stream()).wait_event(event)

    def synchronize_event(self, event: Any, index: int) -> None:
        """Block until ``event`` has been reached."""
        with self.units[index].current():
            event.synchronize()

    def event_done(self, event: Any, index: int) -> bool:
        """Return whether ``event`` has been reached. Raises ``DeviceError`` where work failed."""
        import cupy

        unit = self.units[index]
        with unit.current():
            code = cupy.cuda.runtime.eventQuery(event.ptr)  # ``done`` of CuPy takes errors for work to do
            if code not in (0, _NOT_READY):
                raise unit.failed("looking at an event", code)
            return not code

    def elapsed_time(self, start: Any, end: Any, index: int) -> float:
        """Return the milliseconds between two events."""
        import cupy

        with self.units[index].current():
            end.synchronize()
            return float(cupy.cuda.get_elapsed_time(start, end))

    def to_dlpack(self, value: StridedArray, index: int, **options: Any) -> Any:
        """Return a capsule over the value's memory, over a copy with ``copy=True``."""
        from .copies.dlpack import export

        return export(self.units[index], value, **options)

    def dlpack_device(self, value: StridedArray, index: int) -> tuple[int, int]:
        """Return CUDA's number in DLPack, and the GPU's."""
        return 2, index

    def from_dlpack(self, producer: Any, index: int, *, copy: bool | None) -> tuple[StridedArray, DType]:
        """Return a value over the memory of ``producer``, and its dtype."""
        from .copies.dlpack import borrow

        return borrow(self.units[index], producer, copy)


@cache
def runtime() -> CudaRuntime:
    """Return the runtime: one for the process."""
    return CudaRuntime()
