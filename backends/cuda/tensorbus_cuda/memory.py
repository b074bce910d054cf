"""Device memory: blocks of CuPy's pool, counted, and an error that says so when there is no room.

Freed memory goes to the next value of the same stream at once, which is right as long as that stream alone
used it. A block that others used makes its stream wait for them before it goes back. Blocks of the default
stream are kept here by size, up to a share of all memory: asking CuPy takes as long as a small kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import cupy
from tensorbus.backend_api import DeviceError, HandleCounter, Life, MemoryStats, OutOfMemoryError

if TYPE_CHECKING:
    from .unit import Unit

_STEP: Final = 512
"""Blocks are multiples of so many bytes, as CuPy's are; an empty value has none."""
_POOLED_MAX_BYTES: Final = 1 << 26
"""The largest block that is kept: a step of training asks for the same sizes again."""
_MAX_FREED_BLOCKS: Final = 256
"""How many freed blocks of one size are kept."""
_KEPT_SHARE: Final = 16
"""Which part of all memory the freed blocks may take that are kept; CuPy's pool joins those that are not."""


class Block:
    """Memory of one unit. It goes back when the last value over it is gone.

    ``stream`` is the one it was allocated in; ``users`` are the others that were given work with it.
    ``own`` says that it comes from the pool, and is not memory of somebody else's array; ``life`` is what
    counts it. ``queued``: its elements come from the host, in its stream, and nobody has waited for them.
    """

    __slots__ = ("__weakref__", "life", "memory", "nbytes", "own", "pool", "ptr", "queued", "stream", "users")
    life: Life

    def __init__(
        self, memory: Any, ptr: int, nbytes: int, pool: Pool | _Parts, stream: Any, own: bool = True
    ) -> None:
        self.memory = memory
        self.ptr = ptr
        self.nbytes = nbytes
        self.pool = pool
        self.stream = stream
        self.own = own
        self.queued = False
        self.users: tuple[Any, ...] = ()

    def used_by(self, stream: Any) -> None:
        """Note that ``stream``, which is not the block's own, is given work with it."""
        if self.queued:  # a copy from the host is there for all streams
            self.pool.wait(self.stream)
            self.queued = False
        if stream not in self.users and not self.pool.ignores(stream):
            self.users = (*self.users, stream)
            if self.life.memory is None:
                self.life.memory = self.memory, self.ptr, None, self.stream
            self.life.users = self.users

    def not_used_by(self, stream: Any) -> None:
        """Forget a stream of ``used_by``: whoever holds the block does so until its work is done."""
        if self.users:
            self.users = self.life.users = tuple(user for user in self.users if user is not stream)

    def part(self, start: int, nbytes: int) -> Block:
        """Return a part of this memory, which keeps the whole alive and is not counted again."""
        return Block(self, self.ptr + start, nbytes, _PARTS, self.stream, own=False)


class _Parts:
    """The pool of parts of blocks, and of what is not counted: the block itself is freed behind the last."""

    def ignores(self, stream: Any) -> bool:
        """Return True: nobody waits for a part."""
        return True

    def wait(self, stream: Any) -> None:
        """Do nothing: nobody copies from the host into a part."""


_PARTS: Final = _Parts()


class Pool:
    """The memory of one unit: CuPy's own pool, so that arrays of CuPy in the same program share it."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self._stream, self._default = unit.stream, unit.default
        self._free_blocks: dict[int, list[tuple[Any, int, Any, Any]]] = {}
        self._free_bytes, self._max_free_bytes = 0, unit.total // _KEPT_SHARE
        self.used = HandleCounter(self._take_back)

    def allocate(self, nbytes: int) -> Block:
        """Return a block of at least ``nbytes`` for the current stream.

        Raises ``OutOfMemoryError``; every value stays valid.
        """
        return self.allocate_in(nbytes, self._stream())

    def allocate_in(self, nbytes: int, stream: Any) -> Block:
        """Return what ``allocate`` does where ``stream`` is the current one."""
        used = self.used
        with used.lock:
            if used.gone:
                used.collect()
            return self._block(nbytes, stream)

    def allocate_several(self, sizes: Sequence[int]) -> list[Block]:
        """Return what ``allocate`` does, for each size."""
        stream, used = self._stream(), self.used
        with used.lock:
            if used.gone:
                used.collect()
            return [self._block(nbytes, stream) for nbytes in sizes]

    def _block(self, nbytes: int, stream: Any) -> Block:
        """Return a new block; the lock is held."""
        size = (nbytes + _STEP - 1) & -_STEP or _STEP
        if size <= _POOLED_MAX_BYTES and stream is self._default:
            home = self._free_blocks.get(size)
            if home:
                known = home.pop()
                self._free_bytes -= size
            else:
                if home is None:
                    home = self._free_blocks.setdefault(size, [])
                memory = self._from_cupy(size)
                known = memory, memory.ptr, home, stream
            block = Block(known[0], known[1], size, self, stream)
            block.life = self.used.add(block, size, known)
        else:
            memory = self._from_cupy(size)
            block = Block(memory, memory.ptr, size, self, stream)
            block.life = self.used.add(block, size)
        return block

    def _from_cupy(self, size: int) -> Any:
        full = cupy.cuda.memory.OutOfMemoryError
        with self.unit.current():
            try:
                return cupy.cuda.alloc(size)
            except full:
                self.trim()  # what is kept in pieces may be enough as a whole
            try:
                return cupy.cuda.alloc(size)
            except full as error:
                raise self._full(size) from error

    def zeros(self, size: int) -> Block:
        """Return new memory that is 0 for what is queued next in the current stream. It is not counted."""
        memory, stream = self._from_cupy(size), self._stream()
        with self.unit.current():
            memory.memset_async(0, size, stream)
        return Block(memory, memory.ptr, size, _PARTS, stream, own=False)

    def within(self, compute: Callable[[], Any]) -> Any:
        """Return what CuPy computes in memory of its pool. Raises ``OutOfMemoryError`` where that is full."""
        full = cupy.cuda.memory.OutOfMemoryError
        try:
            return compute()
        except full:
            self.trim()
        try:
            return compute()
        except full as error:
            raise self._full(getattr(error, "_size", 0)) from error

    def take(self, array: Any) -> Block | None:
        """Return a block over the memory of a new array of CuPy; None where it has no elements."""
        if not array.size:
            return None
        return self.counted(array.data, array.data.ptr, array.nbytes)

    def adopt(self, owner: Any, address: int, nbytes: int) -> Block:
        """Return a block over memory that somebody else made, and keep its owner."""
        memory = cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(address, nbytes, owner, self.unit.index), 0)
        return self.counted(memory, address, nbytes)

    def counted(self, memory: Any, ptr: int, nbytes: int) -> Block:
        """Return a block over memory that is not of this pool, counted while the block lives."""
        block = Block(memory, ptr, nbytes, self, self._stream(), own=False)
        with self.used.lock:
            self.used.collect()
            block.life = self.used.add(block, nbytes)
        return block

    def ignores(self, stream: Any) -> bool:
        """Return whether nothing ever runs in a stream."""
        return stream is self.unit.silent

    def wait(self, stream: Any) -> None:
        """Wait for a stream of this unit. The default one is that of the GPU that is current."""
        with self.unit.current():
            stream.synchronize()

    def _take_back(self, life: Life) -> None:
        """Take the memory of a block that is gone; its stream waits for those that used it too.

        A block that is not kept, and which no other stream used, went to CuPy's pool by itself.
        """
        if life.memory is None:
            return
        _, _, home, own_stream = life.memory
        if not life.users:
            nbytes = self._free_bytes + life.nbytes
            if home is not None and len(home) < _MAX_FREED_BLOCKS and nbytes <= self._max_free_bytes:
                home.append(life.memory)
                self._free_bytes = nbytes
        elif not self.unit.failures.lost:
            with suppress(DeviceError), self.unit.current():  # told to whoever uses the GPU next
                for stream in life.users:
                    own_stream.wait_event(stream.record())

    def trim(self) -> None:
        """Give what is kept for reuse back to the driver."""
        with self.used.lock:
            self.used.collect()
            for blocks in list(self._free_blocks.values()):
                blocks.clear()
            self._free_bytes = 0
        with self.unit.current():
            cupy.get_default_memory_pool().free_all_blocks()

    def stats(self) -> MemoryStats:
        """Return the bytes of values, and what CuPy's pool holds beside them."""
        with self.unit.current():
            held = cupy.get_default_memory_pool().total_bytes()
        with self.used.lock:
            allocated = self.used.allocated
            return MemoryStats(
                allocated=allocated, peak=self.used.peak, reserved=max(held - allocated, 0),
                total=self.unit.total,
            )  # fmt: skip

    def _full(self, nbytes: int) -> OutOfMemoryError:
        with self.unit.current():
            free = int(cupy.cuda.runtime.memGetInfo()[0])
        return OutOfMemoryError(
            f"{self.unit.name}: no room for {nbytes:,} bytes: {self.used.allocated:,} of {self.unit.total:,}"
            f" are in use by tensors, and {free:,} are free. Free tensors, or work in smaller pieces; others"
            f" may use the GPU too."
        )
