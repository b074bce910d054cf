"""The OpenCL devices: which there are, what they can do, their queues and events."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any
from weakref import WeakMethod

import numpy as np
from tensorbus.backend_api import (
    DeviceProperties,
    DeviceUnavailableError,
    DType,
    MemoryStats,
    Reports,
    SourceCall,
    StridedArray,
    Target,
    UnsupportedDtypeError,
    from_source,
    is_alone,
    pack,
)

from . import icd_loader

icd_loader.set_up()

import pyopencl as cl  # noqa: E402  (the loader looks for drivers when it is imported)

from .compiler import OpenclCompiler  # noqa: E402
from .dialect import dialect  # noqa: E402
from .memory import Block, Pool  # noqa: E402
from .pinned_memory import Pinned  # noqa: E402
from .queues import Queue, Queues  # noqa: E402
from .shutdown import blocking  # noqa: E402


class Unit:
    """One device: its context, its queues, its memory, and where its kernels report errors."""

    def __init__(self, index: int, device: cl.Device) -> None:
        self.index = index
        self.device = device
        self.name = f"opencl:{index} ({device.name.strip()})"
        self.context = cl.Context([device])
        self._queues = Queues(self.context)
        self.pool = Pool(self.context, device, self.name, self._queues)
        self.default = self.new_queue()
        self.pinned = Pinned(self)
        extensions = device.extensions.split()
        self.is_processor = bool(device.type & cl.device_type.CPU)
        self.joins_sines = self.is_processor and "cl_intel_vec_len_hint" in extensions  # Intel's compiler
        self.dialect = dialect(
            half="cl_khr_fp16" in extensions,
            double="cl_khr_fp64" in extensions,
            target=self._target(),
            long_atomics=all(f"cl_khr_int64_{kind}_atomics" in extensions for kind in ("base", "extended")),
            vector_hints="cl_intel_vec_len_hint" in extensions,
        )
        exact = device.single_fp_config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT
        self.options = ["-cl-std=CL1.2", *(["-cl-fp32-correctly-rounded-divide-sqrt"] if exact else [])]
        self.copies_kernels = _version(device) >= (2, 1)
        self.largest_group = min(int(device.max_work_group_size), 1024 if self.is_processor else 256)
        self._local = threading.local()
        self._errors: dict[int, Block] = {}
        self._unread: set[int] = set()
        self.late: list[Exception] = []
        """Errors that were taken and put back."""
        self.read_checks: list[WeakMethod[Callable[[], None]]] = []
        """What is called before a value is handed out to the host."""

    def _target(self) -> Target:
        units = self.device.max_compute_units
        if self.is_processor:
            # Half as wide registers are half as many: a tile must fit into them.
            wide = self.device.native_vector_width_float >= 16
            return Target(
                tasks_to_fill=4 * units, work_items_to_fill=256 * units, lanes=16, row_per_task=True,
                tile_rows=8 if wide else 4, register_bytes=64 if wide else 32,
            )  # fmt: skip
        nvidia = "cl_nv_device_attribute_query" in self.device.extensions.split()
        subgroup = int(self.device.warp_size_nv) if nvidia else 0  # its compiler takes assembly as well
        local = min(int(self.device.local_mem_size), 3 << 14)
        return Target(
            tasks_to_fill=64 * units, work_items_to_fill=(1024 if nvidia else 256) * units, lanes=4,
            row_per_task=False, tile_rows=4, vector_bytes=16, subgroup_size=subgroup,
            local_memory=local, min_chunk=8 if nvidia else 64,
        )  # fmt: skip

    def new_queue(self) -> Queue:
        """Return a new queue, in order and with times."""
        return self._queues.new()

    def wait(self, but: Queue | None = None) -> None:
        """Wait for the work in every queue, or every other one."""
        self._queues.wait(but)

    def join(self) -> None:
        """Make later work in the current queue wait for the work now in all others."""
        queue = self.queue()
        others = [cl.enqueue_marker(other) for other in self._queues.others(queue)]
        if others:
            cl.enqueue_barrier(queue, wait_for=others)

    def queue(self) -> Queue:
        """Return this thread's current queue."""
        return getattr(self._local, "queue", self.default)

    def use(self, queue: Queue | None) -> Queue | None:
        """Make a queue current for this thread (None: the default one); return the one it replaces."""
        replaced = getattr(self._local, "queue", None)
        self._local.queue = self.default if queue is None else queue
        return replaced

    def error_block(self) -> Block:
        """Return the current queue's block for errors; from now on it is looked at when waiting.

        Behind the error the work-items of one kernel count each other, and queues do not wait for each other.
        """
        bit = self.queue().bit
        block = self._errors.get(bit)
        if block is None:
            block = self.pool.allocate(32, self.default.bit)
            blocking(cl.enqueue_copy, self.default, block.memory, np.zeros(4, np.int64))
            self._errors[bit] = block
        self._unread.add(bit)
        return block

    def run_read_checks(self) -> None:
        """Let those look who want to before the host has a value: they may wait, and raise."""
        for known in self.read_checks:
            check = known()
            if check is not None:
                check()

    def check(self, reports: Reports) -> None:
        """Raise the first error that a kernel reported since the last look, and forget it."""
        self.run_read_checks()
        error = next(iter(self.late), None)
        if error is not None:
            self.late = [x for x in self.late if x is not error]
            raise error.with_traceback(None)
        while self._unread:
            memory = self._errors[self._unread.pop()].memory
            report = np.zeros(3, np.int64)
            blocking(cl.enqueue_copy, self.default, report, memory)
            if report[0]:
                blocking(cl.enqueue_copy, self.default, memory, np.zeros(3, np.int64))
                raise reports.error(self.name, *report)


class OpenclRuntime:
    """The T0 functions of OpenCL devices, with streams."""

    def __init__(self) -> None:
        self.units = [Unit(k, d) for k, d in enumerate(_devices())]
        self.reports = Reports()
        self.compiler = OpenclCompiler(self)

    def unit(self, index: int) -> Unit:
        """Return one unit."""
        return self.units[index]

    def device_count(self) -> int:
        """Return how many devices there are. Raises where there is none."""
        return len(self.units)

    def properties(self, index: int) -> DeviceProperties:
        """Describe one device."""
        unit = self.units[index]
        d = unit.device
        return DeviceProperties(
            name=d.name.strip(),
            vendor=d.vendor.strip(),
            driver=f"{d.platform.name.strip()} {d.driver_version}",
            memory=unit.pool.total,
            compute_units=d.max_compute_units,
            dtypes=frozenset(unit.dialect.types),
            extra={"version": d.version.strip(), "processor": unit.is_processor},
        )

    def from_host(self, data: memoryview, shape: tuple[int, ...], dtype: DType, index: int) -> StridedArray:
        """Copy C-ordered bytes into a new value."""
        unit = self.units[index]
        if dtype not in unit.dialect.types:
            names = ", ".join(d.name for d in unit.dialect.types)
            raise UnsupportedDtypeError(
                f"{unit.name} has no {dtype}; it has {names}. Cast it before it is moved there."
            )
        if data.nbytes == 0:
            return StridedArray.contiguous(None, shape, dtype)
        queue = unit.queue()
        block = unit.pool.allocate(data.nbytes, queue.bit)
        blocking(cl.enqueue_copy, queue, block.memory, np.frombuffer(data, np.uint8), is_blocking=True)
        return StridedArray.contiguous(block, shape, dtype)

    def is_alone(self, value: StridedArray, index: int) -> bool:
        """Return whether nothing but ``value`` refers to its memory, and no other queue works with it."""
        return value.size > 0 and is_alone(self.compiler, value, index)

    def to_host(self, value: StridedArray, dtype: DType, index: int) -> memoryview:
        """Return the elements as C-ordered bytes, waiting for the work in all queues."""
        unit = self.units[index]
        if value.size == 0:
            unit.check(self.reports)
            return memoryview(b"")
        unit.wait(but=unit.queue())  # whichever queue makes the value; the current one is in order
        packed = pack(self.compiler, value, index)
        host: Any = np.empty(value.nbytes, np.uint8)
        blocking(cl.enqueue_copy, unit.queue(), host, packed.buffer.memory, is_blocking=True)
        unit.check(self.reports)
        return memoryview(host)

    def pin(self, nbytes: int, index: int) -> memoryview:
        """Return new memory of the host that the device reaches by itself."""
        return self.units[index].pinned.allocate(nbytes)

    def is_pinned(self, data: memoryview, index: int) -> bool:
        """Return whether bytes lie in such memory."""
        return self.units[index].pinned.has(data)

    def upload(
        self, data: memoryview, shape: tuple[int, ...], dtype: DType, index: int, *, keep: Any
    ) -> StridedArray:
        """Queue a copy of pinned bytes into a new value."""
        return StridedArray.contiguous(self.units[index].pinned.upload(data, keep), shape, dtype)

    def download(
        self, value: StridedArray, dtype: DType, index: int
    ) -> tuple[memoryview, Callable[[], None]]:
        """Queue a copy of a value into pinned memory, behind the work of all queues; return what waits."""
        unit = self.units[index]
        unit.join()
        return unit.pinned.download(pack(self.compiler, value, index), self.reports)

    def host_view(self, value: StridedArray, index: int) -> Any:
        """Return an array over the value's memory, where host and device share theirs."""
        from .dlpack import host_view

        view = host_view(self.units[index], value)
        self.units[index].check(self.reports)
        return view

    def to_dlpack(
        self, value: StridedArray, index: int, *, max_version: tuple[int, int] | None = None,
        copy: bool | None = None, **_: Any,
    ) -> Any:  # fmt: skip
        """Return a capsule over the value's buffer, over a new one with ``copy=True``."""
        from .dlpack import export

        unit = self.units[index]
        if copy:
            value = self.from_host(self.to_host(value, value.dtype, index), value.shape, value.dtype, index)
        capsule = export(unit, value, max_version)
        unit.check(self.reports)
        return capsule

    def dlpack_device(self, value: StridedArray, index: int) -> tuple[int, int]:
        """Return OpenCL's number in DLPack, and the unit's."""
        return 4, index

    def from_dlpack(self, producer: Any, index: int, *, copy: bool | None) -> tuple[StridedArray, DType]:
        """Return a value over the buffer of ``producer``, or over a copy, and its dtype."""
        from .dlpack import borrow

        value, dtype = borrow(self.units[index], producer)
        if copy:
            value = self.from_host(self.to_host(value, dtype, index), value.shape, dtype, index)
        return value, dtype

    def synchronize(self, index: int) -> None:
        """Wait for all queues' work; raise what a kernel reported."""
        unit = self.units[index]
        unit.wait()
        unit.check(self.reports)

    def check_reads(self, check: Callable[[], None], index: int) -> None:
        """Call ``check`` behind each wait of the host from now on, before a value is handed out."""
        unit = self.units[index]
        unit.read_checks = [*(known for known in unit.read_checks if known() is not None), WeakMethod(check)]

    def put_back_read_error(self, error: Exception, index: int) -> None:
        """Raise an error that was taken at the next read after all."""
        self.units[index].late.append(error)

    def memory_stats(self, index: int) -> MemoryStats:
        """Return the memory statistics of the device."""
        return self.units[index].pool.stats()

    def reset_peak_memory_stats(self, index: int) -> None:
        """Make the peak equal to what is allocated now."""
        self.units[index].pool.used.reset_peak()

    def empty_cache(self, index: int) -> None:
        """Give the blocks that are kept for reuse back to the driver."""
        self.units[index].pool.trim()

    def compile_kernel(
        self, call: SourceCall, index: int
    ) -> Callable[[Sequence[Any]], tuple[StridedArray, ...]]:
        """Return what queues a kernel that a user wrote in OpenCL C."""
        return from_source(self.compiler, call, index)

    def create_stream(self, index: int) -> Any:
        """Return a new queue."""
        return self.units[index].new_queue()

    def use_stream(self, stream: Any, index: int) -> Any:
        """Make ``stream`` current for this thread; return the one it replaces."""
        return self.units[index].use(stream)

    def synchronize_stream(self, stream: Any, index: int) -> None:
        """Wait for the work in ``stream``."""
        unit = self.units[index]
        (stream or unit.queue()).finish()
        unit.check(self.reports)

    def record_event(self, stream: Any, index: int) -> Any:
        """Return a marker behind the work now in ``stream``."""
        return cl.enqueue_marker(stream or self.units[index].queue())

    def wait_event(self, event: Any, stream: Any, index: int) -> None:
        """Make later work in ``stream`` wait for ``event``."""
        cl.enqueue_barrier(stream or self.units[index].queue(), wait_for=[event])

    def synchronize_event(self, event: Any, index: int) -> None:
        """Block until ``event`` has been reached."""
        blocking(event.wait)
        self.units[index].run_read_checks()

    def event_done(self, event: Any, index: int) -> bool:
        """Return whether ``event`` has been reached."""
        return bool(event.command_execution_status == cl.command_execution_status.COMPLETE)

    def elapsed_time(self, start: Any, end: Any, index: int) -> float:
        """Return the milliseconds between two events."""
        blocking(cl.wait_for_events, [start, end])
        return float(end.profile.end - start.profile.end) / 1e6


def _devices() -> list[cl.Device]:
    """Return all devices, graphics processors first."""
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        raise DeviceUnavailableError(_nothing(str(error))) from error
    usable: list[cl.Device] = []
    drivers_seen = set()
    for platform in platforms:
        driver = (platform.name, platform.vendor, platform.version)
        if driver in drivers_seen:  # listed by two .icd files
            continue
        drivers_seen.add(driver)
        try:
            usable += platform.get_devices()
        except cl.Error:
            continue
    usable = [d for d in usable if d.available and d.compiler_available]
    if not usable:
        raise DeviceUnavailableError(_nothing(f"{len(platforms)} platform(s), none with a device"))
    return sorted(usable, key=lambda d: not d.type & cl.device_type.GPU)


def _version(device: cl.Device) -> tuple[int, ...]:
    """Return the version of OpenCL that a device has: its text begins with ``OpenCL 3.0``."""
    return tuple(int(part) for part in device.version.split()[1].split("."))


def _nothing(why: str) -> str:
    return (
        f"no OpenCL device was found ({why}). Install the driver of your GPU, or one for the processor with"
        f" pip install 'tensorbus-opencl[cpu]'; `clinfo` lists what the loader sees."
    )


@cache
def runtime() -> OpenclRuntime:
    """Return the runtime: one for the process."""
    return OpenclRuntime()
