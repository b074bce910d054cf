"""The Apple GPU: the probe, and the runtime over MLX. On the host, where that is asked for, for tests."""

from __future__ import annotations

import importlib.util
import platform
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from tensorbus.backend_api import (
    DeviceProperties,
    DeviceUnavailableError,
    DType,
    MemoryStats,
    Reports,
    SourceCall,
    StridedArray,
    UnsupportedDtypeError,
    WeakSet,
    from_source,
    metal_host,
    pack,
)

if TYPE_CHECKING:
    from .memory import Block

_PENDING: Final = 256


def why_unavailable() -> str | None:
    """Return the first thing that is missing: macOS, MLX, a Metal GPU. None where nothing is.

    On the host (``TENSORBUS_METAL_HOST=1``) MLX alone is needed, of any system.
    """
    system = platform.system()
    host = metal_host()
    if system != "Darwin" and not host:
        return f"Metal is part of macOS, and this machine runs {system or 'an unknown system'}"
    if system == "Darwin" and platform.machine() != "arm64":
        return f"MLX needs Apple silicon and a Python built for it, and this one runs on {platform.machine()}"
    if importlib.util.find_spec("mlx") is None:
        return "MLX is not installed"
    if host:
        return None
    import mlx.core

    if not mlx.core.metal.is_available():
        return "MLX is installed but finds no Metal GPU"
    return None


class MetalRuntime:
    """The T0 functions of the one GPU that a Mac has, with streams.

    What MLX queues is ordered by the values that it needs, in whatever streams they are made. It has no
    events: to record one waits for the stream.
    """

    def __init__(self) -> None:
        reason = why_unavailable()
        if reason is not None:
            raise DeviceUnavailableError(reason)
        import mlx.core as mx

        from .compiler import MetalCompiler
        from .memory import Pool

        self.host = metal_host()
        self.about = {} if self.host else mx.device_info()
        about = self.about
        self.model = f"{platform.machine()} host" if self.host else str(about.get("device_name", "Apple GPU"))
        self.name = f"metal:0 ({self.model})"
        self._unit = mx.cpu if self.host else mx.gpu
        self._local = threading.local()
        self._started: WeakSet[Block] = WeakSet()
        self.pool = Pool(self.name)
        self.reports = Reports()
        self.compiler = MetalCompiler(self)
        self._reports: list[Block] = []
        self._late: list[Exception] = []
        """Errors that were taken and put back."""
        self._lock = threading.Lock()

    def device_count(self) -> int:
        """Return 1."""
        return 1

    def properties(self, index: int) -> DeviceProperties:
        """Describe the GPU, or the host that stands in for it."""
        from importlib.metadata import version

        return DeviceProperties(
            name=self.model,
            vendor="" if self.host else "Apple",
            driver=f"MLX {version('mlx')}",
            memory=self.pool.total,
            dtypes=frozenset(self.compiler.dialect(index).types),
            extra={"host": self.host, **self.about},
        )

    @property
    def stream(self) -> Any:
        """This thread's current stream, or the unit, which stands for its default stream."""
        return getattr(self._local, "stream", None) or self._unit

    def start(self, blocks: Iterable[Block]) -> None:
        """Let MLX begin to compute blocks; ``synchronize`` waits for those that are still there."""
        import mlx.core as mx

        listed = list(blocks)
        start: Any = mx.async_eval  # its annotations are incomplete
        start(*(block.array for block in listed))
        with self._lock:
            self._started.update(listed)

    def wait(self) -> None:
        """Wait for what was started, in all streams of all threads."""
        import mlx.core as mx

        with self._lock:
            started = list(self._started)
        wait: Any = mx.eval
        wait(*(block.array for block in started))
        with self._lock:
            for block in started:
                self._started.discard(block)

    def from_host(self, data: memoryview, shape: tuple[int, ...], dtype: DType, index: int) -> StridedArray:
        """Copy C-ordered bytes into a new value."""
        known = self.compiler.dialect(index).types
        if dtype not in known:
            names = ", ".join(d.name for d in known)
            raise UnsupportedDtypeError(
                f"{self.name} has no {dtype}; it has {names}. Cast it before it is moved there."
            )
        block = self.pool.copied(data) if data.nbytes else None
        return StridedArray.contiguous(block, shape, dtype)

    def to_host(self, value: StridedArray, dtype: DType, index: int) -> memoryview:
        """Return the elements as C-ordered bytes, waiting for them."""
        if value.size == 0:
            self.check()
            return memoryview(b"")
        block = pack(self.compiler, value, index).buffer
        data = bytes(block.content[: value.nbytes])
        self.check()
        return memoryview(data)

    def error_block(self) -> Block:
        """Return a new block of zeros for the errors of one launch; it is looked at when waiting."""
        with self._lock:
            full = len(self._reports) >= _PENDING
        if full:
            self.check()
        block = self.pool.filled(24) if self.host else self.pool.block(None, 24)
        with self._lock:
            self._reports.append(block)
        return block

    def check(self) -> None:
        """Raise the first error that a kernel reported since the last look, and forget it."""
        error = next(iter(self._late), None)
        if error is not None:
            self._late = [x for x in self._late if x is not error]
            raise error.with_traceback(None)
        with self._lock:
            reports, self._reports = self._reports, []
        for block in reports:
            if block.array is None:  # its launch was never queued
                continue
            report = block.content[:24].cast("q").tolist()
            if report[0]:
                raise self.reports.error(self.name, *report)

    def compile_kernel(
        self, call: SourceCall, index: int
    ) -> Callable[[Sequence[Any]], tuple[StridedArray, ...]]:
        """Return what queues a kernel that a user wrote in the Metal Shading Language."""
        return from_source(self.compiler, call, index)

    def synchronize(self, index: int) -> None:
        """Wait for the work in all streams of all threads; raise what a kernel reported."""
        self.wait()
        self.synchronize_stream(None, index)

    def put_back_read_error(self, error: Exception, index: int) -> None:
        """Raise an error that was taken at the next read after all."""
        self._late.append(error)

    def memory_stats(self, index: int) -> MemoryStats:
        """Return the memory statistics."""
        return self.pool.stats()

    def reset_peak_memory_stats(self, index: int) -> None:
        """Make the peak equal to what is allocated now."""
        self.pool.used.reset_peak()

    def empty_cache(self, index: int) -> None:
        """Give what MLX keeps for reuse back to the system."""
        import mlx.core as mx

        mx.clear_cache()

    def create_stream(self, index: int) -> Any:
        """Return a new queue: one of MLX's in each thread that uses it."""
        import mlx.core as mx

        return mx.new_thread_local_stream(self._unit)

    def use_stream(self, stream: Any, index: int) -> Any:
        """Make ``stream`` current for this thread; return the one it replaces."""
        replaced = getattr(self._local, "stream", None)
        self._local.stream = stream
        return replaced

    def synchronize_stream(self, stream: Any, index: int) -> None:
        """Wait for the work that this thread put into ``stream``."""
        import mlx.core as mx

        mx.synchronize(stream or self.stream)
        self.check()

    def record_event(self, stream: Any, index: int) -> float:
        """Wait for ``stream``; return the time."""
        self.synchronize_stream(stream, index)
        return time.perf_counter()

    def wait_event(self, event: float, stream: Any, index: int) -> None:
        """Do nothing: an event that was recorded has been reached."""

    def synchronize_event(self, event: float, index: int) -> None:
        """Do nothing, for the same reason."""

    def event_done(self, event: float, index: int) -> bool:
        """Return True."""
        return True

    def elapsed_time(self, start: float, end: float, index: int) -> float:
        """Return the milliseconds between two events, by the host's clock."""
        return 1000.0 * (end - start)


@cache
def runtime() -> MetalRuntime:
    """Return the runtime: one for the process."""
    return MetalRuntime()


def elements(owner: MetalRuntime, value: StridedArray, kind: Any) -> Any:
    """Return an MLX array of dtype ``kind`` over the memory of a value that is not empty."""
    import mlx.core as mx

    if min(value.strides, default=0) < 0:
        value = pack(owner.compiler, value, 0)
    whole = mx.view(value.buffer.array, kind, stream=owner.stream)
    return mx.as_strided(whole, value.shape, value.strides, value.offset, stream=owner.stream)
