"""Protocols that a runtime may have beyond what it owes: core asks for these, never for a device's name.

Imported when first asked for: making these classes takes a tenth of the time of ``import tensorbus``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from ..dtypes.definition import DType, Scalar

Shape = tuple[int, ...]


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
class SupportsLateErrors(Protocol):
    """Optional: a device that raises errors of others where the host waits for it or reads a value."""

    def raise_later(self, error: Exception, index: int) -> None:
        """Raise ``error`` at the next wait for the device or read of a value; called from any thread."""
        ...

    def not_later(self, error: Exception, index: int) -> None:
        """Do not raise ``error`` any more: whoever had to know does. It may have been raised."""
        ...


@runtime_checkable
class SupportsImmediateErrors(Protocol):
    """Optional: a device whose work raises when it is asked for; reading a value later raises nothing.

    Where work is queued, reads raise what failed before them: see ``SupportsReadErrors``.
    """

    def raises_at_once(self, index: int) -> bool:
        """Return whether a device is such a one."""
        ...


@runtime_checkable
class SupportsReadErrors(Protocol):
    """Optional: a device that queues its work, where a read may raise, once, what ``synchronize`` would.

    Compiled code then shows numbers behind a program that reads them in its middle, and finds out first, by
    waiting, whether eager code would have come so far. Without it each read stays where it is written.
    """

    def put_back_read_error(self, error: Exception, index: int) -> None:
        """Raise an error that ``synchronize`` raised at the next read after all, or the next wait."""
        ...


@runtime_checkable
class SupportsInterruptibleWaits(Protocol):
    """Optional: a device of ``SupportsLateErrors`` where an error ends waits for what is never done."""

    def make_waits_interruptible(self, look: Callable[[], None], index: int) -> None:
        """Wait for the device from now on such that ``interrupt_waits`` can end it.

        Behind each wait ``look`` is called, and now and then during a long one: a method whose object is not
        kept alive, which may ``raise_later``.
        """
        ...

    def interrupt_waits(self, index: int) -> None:
        """End what waits on the host for the device: it raises what is to be raised later."""
        ...


@runtime_checkable
class SupportsReadChecks(Protocol):
    """Optional: a device that lets others look at what they have given it before the host has a value."""

    def check_reads(self, check: Callable[[], None], index: int) -> None:
        """Call ``check`` behind each wait of the host from now on, before a value is handed out.

        A method whose object is not kept alive. It may wait, and it may raise, which the host is told. Values
        that have been copied to another device of the type count as those of this one.
        """
        ...


@runtime_checkable
class SupportsAddresses(Protocol):
    """Optional: a device whose memory has addresses that libraries take."""

    def address(self, value: Any, index: int) -> int | None:
        """Return the address of the first element, for work in the current stream; 0 where there is none.

        None where the elements do not lie in C order, one behind the other.
        """
        ...

    def contiguous(self, value: Any, index: int) -> Any:
        """Return ``value``, or a copy of it whose elements lie in C order, one behind the other."""
        ...

    def forget_use(self, value: Any, index: int) -> None:
        """Forget that the current stream works with a value, whose memory would wait for it before reuse.

        Whoever calls this holds the value until that work is done.
        """
        ...

    def allocate(self, shape: Shape, dtype: DType, index: int) -> Any:
        """Return a new value whose elements are whatever was there, for a library to write."""
        ...


@runtime_checkable
class SupportsWritingOver(Protocol):
    """Optional: a device that tells whether libraries may write over the memory of a value."""

    def is_alone(self, value: Any, index: int) -> bool:
        """Return whether nothing but ``value`` refers to its memory, which lies in C order.

        What is queued next in the current stream may write there: no other stream works with it.
        """
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
class SupportsLending(Protocol):
    """Optional: a device of ``SupportsHostArrays`` whose memory others may write to."""

    def is_own(self, value: Any) -> bool:
        """Return whether nothing but ``value`` refers to its memory, which is packed and writable."""
        ...

    def copied(self, value: Any) -> Any:
        """Return a value of its own memory with the same elements, packed."""
        ...

    def shares(self, value: Any, other: Any) -> bool:
        """Return whether two values may lie in the same memory."""
        ...

    def lend(self, value: Any, whole: Any) -> Any:
        """Return a ``numpy.ndarray`` over the memory of ``value``; writable where it is that of ``whole``."""
        ...

    def overwrite(self, value: Any, new: Any) -> None:
        """Write the elements of ``new`` over those of ``value``."""
        ...


@runtime_checkable
class SupportsHostViews(Protocol):
    """Optional: a device whose memory the host can read in its place; its values are no host arrays."""

    def host_view(self, value: Any, index: int) -> Any:
        """Return a ``numpy.ndarray`` over the value's memory, once the elements are there.

        Whoever holds it keeps the value as well, and nobody may write to it. Raises ``BufferError`` where
        this unit's memory is out of the host's reach.
        """
        ...


@runtime_checkable
class SupportsHostMemory(Protocol):
    """Optional: a device whose values can lie in memory of the host that somebody else allocated."""

    def from_memory(self, data: memoryview, shape: Shape, dtype: DType, index: int) -> Any:
        """Return a value over the C-ordered bytes ``data`` (format ``"B"``), which it keeps."""
        ...


@runtime_checkable
class SupportsPinnedMemory(Protocol):
    """Optional: a device that copies from and to page-locked memory of the host by itself, later.

    The copies are work of the current stream. Memory that one reads or writes is kept until it is done.
    """

    def pin(self, nbytes: int, index: int) -> memoryview:
        """Return new page-locked memory (format ``"B"``), which goes back when nobody has the view."""
        ...

    def is_pinned(self, data: memoryview, index: int) -> bool:
        """Return whether all of ``data`` is page-locked, so that ``upload`` may read it."""
        ...

    def upload(self, data: memoryview, shape: Shape, dtype: DType, index: int, *, keep: Any) -> Any:
        """Queue ``from_host`` of page-locked ``data``; ``keep`` is held until the copy is done."""
        ...

    def download(self, value: Any, dtype: DType, index: int) -> tuple[memoryview, Callable[[], None]]:
        """Queue ``to_host`` into page-locked memory; return it, and what waits for it.

        The copy comes behind the work that makes ``value``, in whatever stream. The function raises the error
        of work that failed, as ``synchronize`` does.
        """
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


@runtime_checkable
class HasNoElements(Protocol):
    """Optional: a device whose values have shapes and no elements: nothing is read from them."""

    def of_shape(self, shape: Shape, dtype: DType, index: int) -> Any:
        """Return a value of a shape: what a tensor of another device becomes here, without a copy."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCall:
    """A call of a kernel that a user wrote, all of it but the operands' values.

    ``code`` is source in the device's language, or an object that a compiler for the device made of a
    function. The arguments of the function ``name`` are the ``operands`` and the ``results``, each a packed
    array, then the ``scalars``, then the ``sizes``, integers of 64 bits. ``grid`` are the lengths of its
    parallel axes, one to three; ``group`` is not 0 where that many work-items along axis 0 share memory.
    ``constants`` are known when the code is compiled.
    """

    name: str
    code: Any
    operands: tuple[tuple[str, DType, Shape], ...]
    results: tuple[tuple[str, DType, Shape], ...]
    scalars: tuple[tuple[str, DType, Scalar], ...]
    sizes: tuple[int, ...]
    grid: tuple[int, ...]
    group: int = 0
    constants: Mapping[str, bool | int | float] = field(default_factory=dict)


@runtime_checkable
class SupportsUserKernels(Protocol):
    """Optional: a device that compiles kernels which users write in its language."""

    def compile_kernel(self, call: SourceCall, index: int) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
        """Return what takes the operands' values to the results'.

        Raises ``DeviceError`` with the compiler's text and the numbered source where it does not compile.
        """
        ...
