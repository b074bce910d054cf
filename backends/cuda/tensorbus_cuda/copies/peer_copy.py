"""Copies from one GPU to another of the same machine: straight where they reach each other's memory.

Where they do not, CUDA's driver passes through the host by itself; the copy is the same.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

import cupy
from tensorbus.backend_api import StridedArray

if TYPE_CHECKING:
    from ..unit import Unit

_ENABLED: Final = 704
"""``cudaErrorPeerAccessAlreadyEnabled``: somebody else in this process asked for it."""


def copied(value: StridedArray, source: Unit, target: Unit) -> StridedArray:
    """Queue a copy of a packed value of one GPU into a new one of another, in both GPUs' current streams.

    The target's stream waits for the value, and the value's memory for the copy; the host waits for neither.
    """
    reaches(source.index, target.index)
    block = target.pool.allocate(value.nbytes)
    stream = target.stream()
    with source.current():
        computed = value.buffer.stream.record()
    with target.current():
        stream.wait_event(computed)
        cupy.cuda.runtime.memcpyPeerAsync(
            block.ptr, target.index, value.buffer.ptr, source.index, value.nbytes, stream.ptr
        )
        done = stream.record()
    with source.current():
        value.buffer.stream.wait_event(done)
    return StridedArray.contiguous(block, value.shape, value.dtype)


@cache
def reaches(source: int, target: int) -> bool:
    """Have the GPU ``target`` read the memory of ``source`` by itself, if it can; return whether it does."""
    cuda = cupy.cuda
    if not cuda.runtime.deviceCanAccessPeer(target, source):
        return False
    try:
        with cuda.Device(target):
            cuda.runtime.deviceEnablePeerAccess(source)
    except cuda.runtime.CUDARuntimeError as error:
        return bool(getattr(error, "status", None) == _ENABLED)
    return True
