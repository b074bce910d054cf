"""The NVIDIA GPUs: the probe, which needs no CuPy, and the runtime, through CuPy."""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from math import prod
from typing import Any, Final
from weakref import WeakMethod

from tensorbus.backend_api import (
    DeviceProperties,
    DeviceUnavailableError,
    DType,
    MemoryStats,
    Reports,
    SourceCall,
    StridedArray,
    UnsupportedDtypeError,
    is_alone,
    pack,
)

from .event_query import DRIVER, NOT_READY, event_query
from .interruptible_wait import InterruptibleWait
from .unit import STAGING_BYTES, Unit

_NO_DEVICE: Final = 100
"""``CUDA_ERROR_NO_DEVICE`` of the CUDA driver API."""
_OLDEST: Final = 14
"""The first version of CuPy that this is written for."""
_MAX_COPIED_BYTES: Final = 1 << 16
"""Up to how many bytes are copied from the host without waiting, from memory of our own."""


def why_unavailable() -> str | None:
    """Return the first thing that is missing: driver, GPU, CuPy. None where nothing is."""
    try:
        driver = ctypes.CDLL(DRIVER)
    except OSError:
        return f"there is no NVIDIA driver on this machine ({DRIVER} cannot be loaded)"
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
        return (
            0,
            f"the NVIDIA driver does not start: cuInit returned error {code}{_driver_message(driver, code)}",
        )
    count = ctypes.c_int()
    code = driver.cuDeviceGetCount(ctypes.byref(count))
    if code:
        return 0, f"the NVIDIA driver does not count its GPUs: cuDeviceGetCount returned error {code}"
    return count.value, "" if count.value else none


def _driver_message(driver: ctypes.CDLL, code: int) -> str:
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
        host, few = np.frombuffer(data, np.uint8), data.nbytes <= _MAX_COPIED_BYTES
        if few:  # what is not pinned has been read when the call returns: nobody waits for earlier work
            host = host.copy()
        stream = unit.stream()

        def copy() -> None:
            with unit.current():
                block.memory.copy_from_host_async(host.ctypes.data, data.nbytes, stream)
                if not few:  # others' memory, pinned perhaps, may change or go from now on
                    stream.synchronize()

        if few:
            copy()
            block.queued = True
        else:
            unit.until(copy)
        return StridedArray.contiguous(block, shape, dtype)

    def to_host(self, value: StridedArray, dtype: DType, index: int) -> memoryview:
        """Return the elements as C-ordered bytes, waiting for the work in all streams."""
        unit = self.units[index]
        if value.size == 0:
            unit.check(self.reports)
            return memoryview(b"")
        if value.nbytes <= STAGING_BYTES:
            return self._read(unit, value)
        unit.wait()
        unit.check(self.reports)  # what failed is not copied: a library may be at its end meanwhile
        packed = pack(self.compiler, value, index)
        host = bytearray(value.nbytes)
        first = ctypes.c_char.from_buffer(host)
        stream = unit.stream()

        def copy() -> None:  # holds the memory that it writes: it may go on where nobody waits any more
            with unit.current():
                packed.buffer.memory.copy_to_host_async(ctypes.addressof(first), value.nbytes, stream)
                stream.synchronize()

        unit.until(copy)
        unit.check(self.reports)
        return memoryview(host)

    def _read(self, unit: Unit, value: StridedArray) -> memoryview:
        """Return the elements of a small value. The copy is queued before anything is waited for."""
        unit.join(value)
        packed, room = pack(self.compiler, value, unit.index), unit.room()
        with unit.current():
            packed.buffer.memory.copy_to_host_async(ctypes.addressof(room), value.nbytes, unit.stream())
        try:
            unit.wait()
        except BaseException:
            unit.give_up_room()
            raise
        unit.check(self.reports)
        return memoryview(bytearray(ctypes.string_at(room, value.nbytes)))

    def copy_across(self, value: StridedArray, source: int, target: int) -> StridedArray:
        """Return a copy on another GPU, which does not pass through the host where they are connected."""
        from .copies.peer_copy import copied

        if value.size == 0:
            return StridedArray.contiguous(None, value.shape, value.dtype)
        self.units[source].join(value)
        here, there = self.units[source], self.units[target]
        there.origins = (there.origins | here.origins | {here}) - {there}
        return copied(pack(self.compiler, value, source), here, there)

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

    def put_back_read_error(self, error: Exception, index: int) -> None:
        """Raise an error that was taken at the next read after all."""
        self.units[index].late.append(error)

    def memory_stats(self, index: int) -> MemoryStats:
        """Return the memory statistics of the GPU."""
        return self.units[index].pool.stats()

    def reset_peak_memory_stats(self, index: int) -> None:
        """Make the peak equal to what is allocated now."""
        self.units[index].pool.used.reset_peak()

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
        unit.wait_for(stream or unit.stream())
        unit.check(self.reports)

    def record_event(self, stream: Any, index: int) -> Any:
        """Return a marker behind the work now in ``stream``."""
        unit = self.units[index]
        with unit.current():
            chosen = stream or unit.stream()
            event = unit.marks[chosen.ptr] = chosen.record()
            return event

    def wait_event(self, event: Any, stream: Any, index: int) -> None:
        """Make later work in ``stream`` wait for ``event``."""
        unit = self.units[index]
        with unit.current():
            (stream or unit.stream()).wait_event(event)

    def synchronize_event(self, event: Any, index: int) -> None:
        """Block until ``event`` has been reached; raise what was to be raised later."""
        self.units[index].wait_for(event)
        self.units[index].look_before_reads()

    def event_done(self, event: Any, index: int) -> bool:
        """Return whether ``event`` has been reached. Raises ``DeviceError`` where work failed."""
        unit = self.units[index]
        with unit.current():
            unit.enter_once()
            code = event_query()(event.ptr)
            if code not in (0, NOT_READY):
                raise unit.failed("looking at an event", code)
            return not code

    def elapsed_time(self, start: Any, end: Any, index: int) -> float:
        """Return the milliseconds between two events."""
        import cupy

        with self.units[index].current():
            end.synchronize()
            return float(cupy.cuda.get_elapsed_time(start, end))

    def raise_later(self, error: Exception, index: int) -> None:
        """Raise ``error`` at the next wait for the GPU, or read of a value."""
        self.units[index].raise_later(error)

    def not_later(self, error: Exception, index: int) -> None:
        """Do not raise ``error`` any more."""
        with suppress(ValueError):
            self.units[index].late.remove(error)

    def make_waits_interruptible(self, look: Callable[[], None], index: int) -> None:
        """Let ``interrupt_waits`` end the host's waits from now on: a thread of its own makes them."""
        unit = self.units[index]
        unit.looks = [*(known for known in unit.looks if known() is not None), WeakMethod(look)]
        if unit.interruptible is None:
            unit.interruptible = InterruptibleWait(unit.late)

    def check_reads(self, check: Callable[[], None], index: int) -> None:
        """Call ``check`` behind each wait of the host from now on, before a value is handed out."""
        unit = self.units[index]
        unit.read_checks = [*(known for known in unit.read_checks if known() is not None), WeakMethod(check)]

    def interrupt_waits(self, index: int) -> None:
        """End what waits on the host: it raises what is to be raised later."""
        waits = self.units[index].interruptible
        if waits is not None:
            waits.interrupt()

    def address(self, value: StridedArray, index: int) -> int | None:
        """Return the address of the first element; its memory waits for the current stream before reuse."""
        if value.size == 0:
            return 0
        if not value.is_contiguous:
            return None
        own, buffer = self.units[index].stream(), value.buffer
        if buffer.stream is not own:
            buffer.used_by(own)
        return int(buffer.ptr) + value.offset * value.dtype.itemsize

    def is_alone(self, value: StridedArray, index: int) -> bool:
        """Return whether nothing but ``value`` refers to its memory, and no other stream works with it."""
        return value.size > 0 and is_alone(self.compiler, value, index)

    def contiguous(self, value: StridedArray, index: int) -> StridedArray:
        """Return ``value``, or a copy of it whose elements lie in C order."""
        return pack(self.compiler, value, index)

    def forget_use(self, value: StridedArray, index: int) -> None:
        """Forget that the current stream works with a value, which is held until that is done."""
        if value.size:
            value.buffer.not_used_by(self.units[index].stream())

    def allocate(self, shape: tuple[int, ...], dtype: DType, index: int) -> StridedArray:
        """Return a new value whose elements are whatever was there."""
        nbytes = prod(shape) * dtype.itemsize
        return StridedArray.contiguous(
            self.units[index].pool.allocate(nbytes) if nbytes else None, shape, dtype
        )

    def to_dlpack(self, value: StridedArray, index: int, **options: Any) -> Any:
        """Return a capsule over the value's memory, over a copy with ``copy=True``.

        Its reader asks nobody: where there are read checks, they come first, and so does the GPU's work.
        """
        unit = self.units[index]
        if unit.has_read_checks():
            self.synchronize(index)
        from .copies.dlpack import export

        return export(unit, value, **options)

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
