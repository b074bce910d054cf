"""Memory of the metal device: bytes that MLX holds, counted."""

from __future__ import annotations

import os
from math import gcd
from typing import Any, Final

import mlx.core as mx
import numpy as np
from tensorbus.backend_api import HandleCounter, MemoryStats, OutOfMemoryError

MIN_BYTES: Final = 16
"""Bytes of the smallest block. MLX passes arrays of less than 8 elements to kernels in another way."""
LONGEST = 2**31 - 1
"""The longest axis that MLX has: more bytes lie in rows of ``ROW``."""
ROW: Final = 2**20


def room(nbytes: int) -> tuple[int, ...]:
    """Return the shape of an array of ``nbytes``, or of a few more."""
    return (nbytes,) if nbytes <= LONGEST else (-(-nbytes // ROW), ROW)


class Block:
    """Some bytes: an MLX array of uint8 of any shape, or None before the first kernel has written there."""

    __slots__ = ("__weakref__", "array", "nbytes")

    def __init__(self, array: Any, nbytes: int) -> None:
        self.array = array
        self.nbytes = nbytes

    @property
    def content(self) -> memoryview:
        """The bytes in the host's memory; they are computed first."""
        return memoryview(self.array).cast("B")

    @property
    def address(self) -> int:
        """The address of the bytes in the host's memory; they are computed first."""
        return int(np.asarray(self.content).ctypes.data)


class Pool:
    """The counter of blocks. Safe in many threads; MLX itself keeps freed memory for reuse."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self.used = HandleCounter()

    def block(self, array: Any, nbytes: int) -> Block:
        """Return a block of ``nbytes`` over ``array``. Raises ``OutOfMemoryError``."""
        with self.used.lock:
            if self.used.allocated + nbytes > self.total:
                raise self.full(nbytes)
            block = Block(array, nbytes)
            self.used.add(block, nbytes)
        return block

    def filled(self, nbytes: int) -> Block:
        """Return a block that has its memory already, zeros."""
        if self.used.allocated + nbytes > self.total:
            raise self.full(nbytes)
        try:
            array = mx.zeros(room(max(nbytes, MIN_BYTES)), mx.uint8)
            mx.eval(array)
        except RuntimeError as error:
            raise self.full(nbytes) from error
        return self.block(array, max(nbytes, MIN_BYTES))

    def copied(self, data: memoryview) -> Block:
        """Return a block with the bytes of ``data`` at its start."""
        block = self.filled(data.nbytes)
        np.asarray(block.content)[: data.nbytes] = np.frombuffer(data, np.uint8)
        return block

    def of(self, array: Any, stream: Any) -> Block:
        """Return a block over the elements of any MLX array, in C order, made in ``stream``."""
        shape = (-1,) if array.nbytes <= LONGEST else (-1, gcd(array.size, ROW))
        held = mx.view(mx.reshape(array, shape, stream=stream), mx.uint8, stream=stream)
        if held.size < MIN_BYTES:
            held = mx.pad(held, (0, MIN_BYTES - held.size), stream=stream)
        return self.block(mx.contiguous(held, stream=stream), held.size)

    def stats(self) -> MemoryStats:
        """Return the bytes of values, and what MLX keeps for reuse."""
        with self.used.lock:
            allocated = self.used.allocated
            return MemoryStats(
                allocated=allocated, peak=self.used.peak, reserved=mx.get_cache_memory(), total=self.total
            )

    def full(self, nbytes: int) -> OutOfMemoryError:
        """Return the error for a request that there is no room for."""
        return OutOfMemoryError(
            f"{self.name}: no room for {nbytes:,} bytes: {self.used.allocated:,} of {self.total:,} are in"
            f" use by tensors. Free tensors, or work in smaller pieces."
        )
