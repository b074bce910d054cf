"""What a runtime may have beyond what it owes: core asks for these, never for a device's name.

Imported when first asked for: making these classes takes a tenth of the time of ``import tensorbus``.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from .dtypes import DType


@runtime_checkable
class SupportsStreams(Protocol):
    """Optional: a device whose work can be ordered in several queues. Others have one implicit stream."""

    def create_stream(self, index: int) -> Any:
        """Return a new queue."""
        ...

    def use_stream(self, stream: Any, index: int) -> Any:
        """Make ``stream`` (None: the default one) current for this thread; return the one it replaces."""
        ...

    def synchronize_stream(self, stream: Any, index: int) -> None:
        """Wait for the work in ``stream``."""
        ...

    def record_event(self, stream: Any, index: int) -> Any:
        """Return a marker behind the work now in ``stream`` (None: the current one)."""
        ...

    def wait_event(self, event: Any, stream: Any, index: int) -> None:
        """Make later work in ``stream`` wait for ``event``."""
        ...

    def synchronize_event(self, event: Any, index: int) -> None:
        """Block until ``event`` has been reached."""
        ...

    def event_done(self, event: Any, index: int) -> bool:
        """Return whether ``event`` has been reached."""
        ...

    def elapsed_time(self, start: Any, end: Any, index: int) -> float:
        """Return the milliseconds between two events that have been reached."""
        ...


@runtime_checkable
class SupportsHostArrays(Protocol):
    """Optional: a device whose values live in host memory and can be NumPy arrays without a copy."""

    def to_numpy(self, value: Any) -> Any:
        """Return a read-only ``numpy.ndarray`` over the same memory."""
        ...

    def from_numpy(self, array: Any, dtype: DType, copy: bool) -> Any:
        """Return a value with the array's elements, over the same memory where ``copy`` is false."""
        ...


@runtime_checkable
class SupportsDLPack(Protocol):
    """Optional: exchange without a copy, by the DLPack protocol of the array API standard 2025.12."""

    def to_dlpack(self, value: Any, index: int, **options: Any) -> Any:
        """Return the capsule for ``__dlpack__(**options)``."""
        ...

    def dlpack_device(self, value: Any, index: int) -> tuple[int, int]:
        """Return what ``__dlpack_device__()`` answers."""
        ...

    def from_dlpack(self, producer: Any, index: int, *, copy: bool | None) -> Any:
        """Return a value over the memory of ``producer``."""
        ...


@runtime_checkable
class SupportsThreads(Protocol):
    """Optional: a device that computes with threads of the host."""

    def num_threads(self, index: int) -> int:
        """Return how many threads a kernel may use."""
        ...

    def set_num_threads(self, count: int, index: int) -> None:
        """Use up to ``count`` threads from now on."""
        ...


@runtime_checkable
class SupportsCache(Protocol):
    """Optional: a device that keeps freed memory for reuse."""

    def empty_cache(self, index: int) -> None:
        """Give what is kept back to the system."""
        ...


@runtime_checkable
class SupportsPeerCopy(Protocol):
    """Optional: copies between two units of this device type that do not pass through the host."""

    def copy_across(self, value: Any, source: int, target: int) -> Any:
        """Return a copy of ``value`` of unit ``source`` on unit ``target``."""
        ...
