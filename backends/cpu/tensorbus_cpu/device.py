"""The host's processor as a device: one unit, whose work is done when a call returns."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tensorbus.backend_api import DeviceProperties, DType, MemoryStats, SourceCall, threads

from .compiler import NATIVE
from .eager.inplace_kernels import is_own
from .gemm.kernels_matmul import use_blas_threads
from .machine import cores, physical_memory
from .memory import (
    DTYPES,
    NAMES,
    SMALL_FLOATS,
    from_bytes,
    from_producer,
    share,
    small_floats_capsule,
    to_bytes,
)


class CpuRuntime:
    """Values are ``numpy.ndarray``; nobody writes to one after it was made."""

    def __init__(self) -> None:
        """Tell BLAS the number of threads where the environment does."""
        if threads() is not None:
            use_blas_threads(NATIVE.threads)

    def device_count(self) -> int:
        """Return 1."""
        return 1

    def properties(self, index: int) -> DeviceProperties:
        """Describe the processor and the machine's memory."""
        return DeviceProperties(
            name=_model() or platform.processor() or platform.machine(),
            vendor=platform.system(),
            driver=f"NumPy {np.__version__}",
            memory=physical_memory(),
            compute_units=cores(),
            dtypes=frozenset(DTYPES),
            extra={"threads": NATIVE.threads, **NATIVE.describe()},
        )

    def from_host(self, data: memoryview, shape: tuple[int, ...], dtype: DType, index: int) -> Any:
        """Copy bytes into a new array."""
        return from_bytes(data, shape, dtype)

    def to_host(self, value: Any, dtype: DType, index: int) -> memoryview:
        """Return the array's bytes, without a copy where it lies packed."""
        return to_bytes(value)

    def synchronize(self, index: int) -> None:
        """Return at once: nothing is pending."""

    def memory_stats(self, index: int) -> MemoryStats:
        """Return what the process holds: host memory is shared with everything else in it."""
        resident, peak = _process_memory()
        reserved = NATIVE.working.runtime.tb_reserved() if NATIVE.working is not None else 0
        return MemoryStats(
            allocated=max(resident - reserved, 0), peak=peak, reserved=reserved, total=physical_memory(),
            scope="process",
        )  # fmt: skip

    def empty_cache(self, index: int) -> None:
        """Give freed blocks back to the system."""
        if NATIVE.working is not None:
            NATIVE.working.runtime.tb_empty_cache()

    def num_threads(self, index: int) -> int:
        """Return how many threads kernels use."""
        return NATIVE.threads

    def set_num_threads(self, count: int, index: int) -> None:
        """Use up to ``count`` threads from now on, in BLAS as well."""
        NATIVE.use_threads(count)
        use_blas_threads(count)

    def compile_kernel(self, call: SourceCall, index: int) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
        """Return what runs a kernel that a user wrote in C."""
        from .user_kernels import compile_kernel

        return compile_kernel(call)

    def reset_peak_memory_stats(self, index: int) -> None:
        """Make the kernel forget the process's peak, where it can (Linux)."""
        try:
            Path("/proc/self/clear_refs").write_text("5")
        except OSError:
            return

    def raises_at_once(self, index: int) -> bool:
        """Return that nothing is queued whose errors a read would raise."""
        return True

    def to_numpy(self, value: Any) -> Any:
        """Return a read-only view: writing to it would change a tensor behind its back."""
        view = value.view()
        view.flags.writeable = False
        return view

    def is_own(self, value: Any) -> bool:
        """Return whether nothing but ``value`` refers to its memory."""
        return is_own(value)

    def copied(self, value: Any) -> Any:
        """Return a packed copy."""
        return share(value, NAMES[value.dtype], True)

    def shares(self, value: Any, other: Any) -> bool:
        """Return whether the bounds of two arrays overlap."""
        return np.may_share_memory(value, other)

    def lend(self, value: Any, whole: Any) -> Any:
        """Return a view, which is writable where its memory is that of ``whole``."""
        view = value.view()
        owner = whole.base if isinstance(whole.base, np.ndarray) else whole
        if value is not whole and value.base is not owner:
            view.flags.writeable = False
        return view

    def overwrite(self, value: Any, new: Any) -> None:
        """Write in place."""
        value[...] = new

    def from_numpy(self, array: Any, dtype: DType, copy: bool) -> Any:
        """Return the array in native byte order; over its own memory where ``copy`` is false."""
        return share(array, dtype, copy)

    def from_memory(self, data: memoryview, shape: tuple[int, ...], dtype: DType, index: int) -> Any:
        """Return an array over memory that somebody else allocated, and that it keeps."""
        return np.frombuffer(data, np.uint8).view(DTYPES[dtype]).reshape(shape)

    def to_dlpack(self, value: Any, index: int, **options: Any) -> Any:
        """Export the array, read-only; a copy for consumers of the protocol before 1.0, which has no such.

        With ``copy=False`` they get the array itself, and may not write to it. One that is ``lent`` may be
        written to, and is exported as it is.
        """
        if value.dtype in SMALL_FLOATS:
            return small_floats_capsule(value, **options)
        version = options.get("max_version")
        if options.pop("lent", False) and not options.get("copy"):
            if version is None or tuple(version) < (1, 0):
                return value.__dlpack__(stream=options.get("stream"))
            return value.__dlpack__(**options)
        if version is not None and tuple(version) >= (1, 0):
            return self.to_numpy(value).__dlpack__(**options)
        if options.get("copy") is False:
            return value.__dlpack__(stream=options.get("stream"))
        return value.copy().__dlpack__(
            **{k: v for k, v in options.items() if k not in ("max_version", "copy")}
        )

    def dlpack_device(self, value: Any, index: int) -> tuple[int, int]:
        """Return ``kDLCPU`` and 0."""
        return (1, 0)

    def from_dlpack(self, producer: Any, index: int, *, copy: bool | None) -> tuple[Any, DType]:
        """Return an array over the producer's memory, or a copy."""
        return from_producer(producer, copy)


def _model() -> str:
    for line in _lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return ""


def _lines(path: str) -> Iterator[str]:
    try:
        with open(path) as file:
            yield from file
    except OSError:
        return


def _process_memory() -> tuple[int, int]:
    """Return the resident bytes of the process and their peak."""
    sizes = {
        name: int(rest.split()[0]) * 1024
        for name, _, rest in (line.partition(":") for line in _lines("/proc/self/status"))
        if name in ("VmRSS", "VmHWM")
    }
    if len(sizes) == 2:
        return sizes["VmRSS"], sizes["VmHWM"]
    try:
        import resource
    except ModuleNotFoundError:
        return _working_set()
    unit = 1 if platform.system() == "Darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return peak, peak


def _working_set() -> tuple[int, int]:
    """Return the same two on Windows: see ``PROCESS_MEMORY_COUNTERS`` in its documentation."""
    import ctypes

    kernel: Any = ctypes.CDLL("kernel32")
    kernel.GetCurrentProcess.restype = ctypes.c_void_p
    sizes = (ctypes.c_size_t * 9)(ctypes.sizeof(ctypes.c_size_t) * 9)
    kernel.K32GetProcessMemoryInfo(ctypes.c_void_p(kernel.GetCurrentProcess()), sizes, ctypes.sizeof(sizes))
    return sizes[2], sizes[1]
