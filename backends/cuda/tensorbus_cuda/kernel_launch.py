"""The launch of one kernel: its sizes, and arguments that lie where CUDA reads them, so that little is left.

Launches of whole programs as CUDA graphs are in ``graphs.cuda_graph``.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from cupy.cuda import driver
from tensorbus.backend_api import INDEX, Launch, RuntimeArg, SymInt
from tensorbus.backend_api import dtypes as dt

from .dialect import THREADS

if TYPE_CHECKING:
    from .unit import Unit

_SCALAR: Final[dict[dt.DType, Callable[[Any], Any]]] = {
    INDEX: np.int64, **{d: getattr(np, d.name) for d in (
        dt.int8, dt.int16, dt.int32, dt.int64, dt.uint8, dt.uint16, dt.uint32, dt.uint64, dt.float32,
        dt.float64, dt.complex64, dt.complex128,
    )}
}  # fmt: skip
"""How an argument that passes by value becomes one of its width."""
_CELL: Final[dict[dt.DType, Any]] = {
    INDEX: ctypes.c_int64, dt.int8: ctypes.c_int8, dt.int16: ctypes.c_int16, dt.int32: ctypes.c_int32,
    dt.int64: ctypes.c_int64, dt.uint8: ctypes.c_uint8, dt.uint16: ctypes.c_uint16,
    dt.uint32: ctypes.c_uint32, dt.uint64: ctypes.c_uint64, dt.float32: ctypes.c_float,
    dt.float64: ctypes.c_double,
}  # fmt: skip
"""What writes such an argument in its place; integers wrap, and floats beyond float32 become infinite."""
_WORDS: Final = 2
"""Words of 8 bytes for each argument by value: the widest is complex128."""
_NO_CONTEXT: Final = 201
"""``CUDA_ERROR_INVALID_CONTEXT``: this thread has not used CUDA before."""
_WARP: Final = 32
_SIDE: Final = 16
_BLOCKS: Final = (2**31 - 1, 65535, 65535)
_NOTHING: Final = (0, 0, 0)
_INDEX: Final = struct.Struct("=q")
_SHARED_UNASKED: Final = 48 << 10
_MAX_SHARED: Final = 8
"""CUDA's number for the attribute that says how much shared memory a launch of a function may ask for."""


Sized = tuple[tuple[int, ...], bytes]
"""Blocks and threads along each axis; the parameters, ``_WORDS`` words each."""


class Launcher:
    """One kernel with the sizes of one use of it; or for many sizes, where ``launch`` has symbols.

    ``blocks`` and ``threads`` are those of the grid, ``shared`` the bytes of memory that the launch gives to
    each block, ``function`` is CUDA's handle, ``arguments`` the address of the pointers to the arguments.
    ``lock`` is held from ``fill`` until CUDA has read them: threads share one.
    For many sizes see ``tensorbus.executors.program_template.LaunchTemplate``.
    """

    __slots__ = (
        "_begin", "_cells", "_current", "_holds", "_launch", "_module", "_neighbours", "_note",
        "_numbers", "_open", "_pointers", "_shape", "_stream", "_unit", "_what", "_words", "arguments",
        "blocks", "function", "lock", "name", "shared", "threads",
    )  # fmt: skip

    def __init__(self, unit: Unit, function: Any, launch: Launch) -> None:
        kernel = launch.kernel
        self.name = kernel.name
        self._unit = unit
        self._module = function  # keeps what was loaded
        self.function: int = function.ptr
        self._launch = driver.launchKernel
        self._stream = unit.stream
        self._current = None if unit.alone else unit.bare
        self._note = unit.failures.note
        self._what, self._neighbours = launch, _are_neighbours(launch)
        grid: tuple[Any, ...] = launch.grid
        is_open = any(type(n) is SymInt for n in grid)
        self.blocks, self.threads = (_NOTHING, _NOTHING) if is_open else sizes(launch)
        self.shared = kernel.group_bytes
        if self.shared > _SHARED_UNASKED:
            with unit.current():
                driver.funcSetAttribute(self.function, _MAX_SHARED, self.shared)
        self._shape = (*self.blocks, *self.threads)
        count, more = len(kernel.buffers), len(kernel.params)
        self._words = (ctypes.c_uint64 * (count + _WORDS * more))()
        start = ctypes.addressof(self._words)
        places = [start + 8 * k for k in range(count)]
        places += [start + 8 * (count + _WORDS * k) for k in range(more)]
        self._pointers = (ctypes.c_void_p * len(places))(*places)
        self.arguments = ctypes.addressof(self._pointers)
        self._cells: list[Any] = []
        self.lock = threading.Lock()
        self._open: list[tuple[int, dt.DType]] = []
        self._begin, self._holds = start + 8 * count, b""
        late: list[tuple[int, dt.DType]] = []
        numbers = bytearray(8 * _WORDS * more)
        values: Sequence[Any] = launch.values
        for k, (param, value) in enumerate(zip(kernel.params, values, strict=True)):
            at = 8 * _WORDS * k
            if isinstance(value, RuntimeArg):
                late.append((8 * count + at, param.dtype))
            elif type(value) is SymInt:
                self._open.append((at, param.dtype))
            else:
                data = scalar(param.dtype, value).tobytes()
                numbers[at : at + len(data)] = data
        self._numbers = bytes(numbers)
        ctypes.memmove(self._begin, self._numbers, len(numbers))
        self._cells += [cell(dtype, self._words, at) for at, dtype in late]

    def at(self, values: Sequence[Any], grid: tuple[int, ...]) -> Sized:
        """Return what ``queue`` needs for these values of the parameters that are symbols, and this grid."""
        numbers = self._numbers
        if values:
            changed = bytearray(numbers)
            for (at, dtype), value in zip(self._open, values, strict=True):
                if dtype is INDEX:
                    _INDEX.pack_into(changed, at, value)
                else:
                    data = scalar(dtype, value).tobytes()
                    changed[at : at + len(data)] = data
            numbers = bytes(changed)
        blocks, threads = _shape(self._what, grid, self._neighbours)
        return (*blocks, *threads), numbers

    def queue(self, buffers: Sequence[Any], values: Sequence[Any] = (), size: Sized | None = None) -> None:
        """Queue the kernel in this thread's current stream, for a ``size`` where it is one for many."""
        self._queue(self._stream(), buffers, values, size)

    def queue_new(self, place: int, nbytes: int, buffers: list[Any], values: Sequence[Any]) -> Any:
        """Queue the kernel with a new block at a place among ``buffers``; return that."""
        to = self._stream()
        block = self._unit.pool.allocate_in(nbytes, to)
        buffers.insert(place, block)
        self._queue(to, buffers, values, None)
        return block

    def _queue(self, to: Any, buffers: Sequence[Any], values: Sequence[Any], size: Sized | None) -> None:
        words = self._words
        shape: tuple[int, ...] = self._shape
        with self.lock:
            if size is not None:
                shape, numbers = size
                if numbers is not self._holds:
                    ctypes.memmove(self._begin, numbers, len(numbers))
                    self._holds = numbers
            for k, block in enumerate(buffers):
                if block is None:
                    words[k] = 0
                else:
                    words[k] = block.ptr
                    if block.stream is not to:
                        block.used_by(to)
            self._note(self.name)
            if values:
                for cell, value in zip(self._cells, values, strict=True):
                    cell.value = value
            try:
                if self._current is not None:
                    with self._current:
                        self._launch(self.function, *shape, self.shared, to.ptr, self.arguments, 0)
                else:
                    self._launch(self.function, *shape, self.shared, to.ptr, self.arguments, 0)
            except driver.CUDADriverError as error:
                self._again(to, shape, error)

    def fill(self, pointers: Sequence[int], values: Sequence[Any]) -> None:
        """Set the arguments, for a graph that reads them from ``arguments``. Whoever calls holds ``lock``."""
        for k, pointer in enumerate(pointers):
            self._words[k] = pointer
        for cell, value in zip(self._cells, values, strict=True):
            cell.value = value

    def into(self, stream: int) -> None:
        """Queue the kernel with the arguments as they are."""
        self._launch(self.function, *self._shape, self.shared, stream, self.arguments, 0)

    def read_from(self, start: int, count: int) -> tuple[tuple[int, ...], Any, list[Any]]:
        """Have CUDA read the ``count`` pointers from ``start`` on, an address that the caller writes to.

        Return the function and its size, the address of the arguments' addresses, and the cells of numbers.
        """
        self._pointers[:count] = [start + 8 * k for k in range(count)]
        return (self.function, *self._shape, self.shared), self.arguments, self._cells

    def again(self, to: Any, error: Exception) -> None:
        """Queue the kernel once more with the arguments as they are, after CUDA refused it."""
        self._again(to, self._shape, error)

    def _again(self, to: Any, shape: tuple[int, ...], error: Exception) -> None:
        """Queue once more in a thread that had no context. Raises ``DeviceError`` for everything else."""
        problem = error
        if getattr(error, "status", None) == _NO_CONTEXT:
            self._unit.enter()
            try:
                self._launch(self.function, *shape, self.shared, to.ptr, self.arguments, 0)
                return
            except driver.CUDADriverError as second:
                problem = second
        raise self._unit.failed(f"queueing {self.name}", problem) from problem


class LaunchSequence:
    """Launches of one program, queued by one call; what only they write and read lies in one block.

    ``slots`` are the buffers of each launch, ``offsets`` says of those in the block where they begin, and
    ``late`` which of a call's numbers each launch takes. The pointers of all launches lie one behind the
    other, and are written at once.
    """

    def __init__(
        self, unit: Unit, launchers: Sequence[Launcher], slots: Sequence[Sequence[int]],
        offsets: Mapping[int, int], late: Sequence[Sequence[int]],
    ) -> None:  # fmt: skip
        self._stream, self._note, self._current = unit.stream, unit.failures.note, unit.bare
        self._launch = driver.launchKernel
        self._offsets = list(offsets.items())
        self._lock = threading.Lock()
        every = [slot for own in slots for slot in own]
        self._slots = every
        self._words = (ctypes.c_uint64 * len(every))()
        self._pack = struct.Struct(f"={len(every)}Q").pack_into
        self._steps: list[tuple[Launcher, str, tuple[int, ...], Any]] = []
        self._cells: list[tuple[Any, int]] = []
        at = ctypes.addressof(self._words)
        for launcher, own, places in zip(launchers, slots, late, strict=True):
            head, arguments, cells = launcher.read_from(at, len(own))
            at += 8 * len(own)
            self._steps.append((launcher, launcher.name, head, arguments))
            self._cells += zip(cells, places, strict=True)

    def queue(self, buffers: Sequence[Any], numbers: Sequence[Any], room: Any) -> None:
        """Queue all: ``buffers`` by slot, from the end where that is negative; ``room`` is the block."""
        to = self._stream()
        pointers: list[int] = []
        add = pointers.append
        for block in buffers:
            if block is None:
                add(0)
            else:
                add(block.ptr)
                if block.stream is not to:
                    block.used_by(to)
        if room is not None:
            start = room.ptr
            for slot, offset in self._offsets:
                pointers[slot] = start + offset
        stream, note, launch = to.ptr, self._note, self._launch
        with self._lock, self._current:
            self._pack(self._words, 0, *[pointers[slot] for slot in self._slots])
            for cell, place in self._cells:
                cell.value = numbers[place]
            for launcher, name, head, arguments in self._steps:
                note(name)
                try:
                    launch(*head, stream, arguments, 0)
                except driver.CUDADriverError as error:
                    launcher.again(to, error)


class _Pair:
    """A complex argument, as its two parts."""

    def __init__(self, real: Any, imag: Any) -> None:
        self._real, self._imag = real, imag

    def _write(self, value: complex) -> None:
        self._real.value, self._imag.value = value.real, value.imag

    value = property(None, _write)


def cell(dtype: dt.DType, words: Any, at: int) -> Any:
    """Return what writes a number, its ``value``, into memory of the host that a kernel reads it from."""
    if dtype.is_complex:
        part = ctypes.c_float if dtype is dt.complex64 else ctypes.c_double
        return _Pair(part.from_buffer(words, at), part.from_buffer(words, at + ctypes.sizeof(part)))
    return _CELL[dtype].from_buffer(words, at)


def scalar(dtype: dt.DType, value: Any) -> Any:
    """Return a number as an argument of a kernel. A float beyond float32 becomes infinite, as in a cast."""
    with np.errstate(over="ignore"):
        return _SCALAR[dtype](value)


def sizes(launch: Launch) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Return how many blocks a launch has along each axis, and how many threads a block has.

    Kernels loop on by the size of the launch, so a grid beyond CUDA's limits is served by fewer blocks.
    ``tiled`` launches have square blocks; others are as long as axis 0, which neighbours in memory lie along.
    """
    return _shape(launch, launch.grid, _are_neighbours(launch))


def _are_neighbours(launch: Launch) -> bool:
    """Return whether several groups may share a block: they have nothing in common."""
    return launch.group == _WARP and bool(launch.kernel.body) and not launch.shares


def _shape(
    launch: Launch, grid: tuple[int, ...], neighbours: bool
) -> tuple[tuple[int, int, int], tuple[int, int, int]]:  # fmt: skip
    grid = (*(grid or (1,)), 1, 1)[:3]
    if neighbours:
        threads = (_WARP, THREADS // _WARP, 1)
    elif launch.group:
        threads = (launch.group, 1, 1)
    elif launch.tiled and min(grid[:2]) >= _SIDE:
        threads = (_SIDE, _SIDE, 1)
    else:
        room, sides = min(launch.most or THREADS, THREADS), []
        for axis, n in enumerate(grid):
            side = min(1 << max(n - 1, 0).bit_length(), room)
            while axis == 0 and side > _WARP and -n % side > n // 8:  # threads without work
                side //= 2
            sides.append(side)
            room //= side
        threads = (sides[0], sides[1], min(sides[2], 64))
    blocks = tuple(min(-(-n // t), most) for n, t, most in zip(grid, threads, _BLOCKS, strict=True))
    return (blocks[0], blocks[1], blocks[2]), threads
