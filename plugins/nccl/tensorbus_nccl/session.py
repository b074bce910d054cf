"""NCCL's end of a group on one GPU."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any, Final

from tensorbus.backend_api import Rendezvous
from tensorbus.errors import DistributedError

_PENDING: Final = 7
"""``ncclInProgress``: no error."""
_TELL_SECONDS: Final = 5.0
"""How long a rank waits to hear which GPU another one has."""
_CALL_SECONDS: Final = 0.5
"""How long an abort waits for calls of other threads."""


class Session:
    """One rank's NCCL communicator on one GPU. What it is given runs in the stream that is current there."""

    def __init__(self, rendezvous: Rendezvous, index: int) -> None:
        """Connect NCCL, where all ranks do.

        Raises ``DistributedTimeoutError`` where one does not come, and ``DistributedError`` where NCCL does
        not connect them, as ranks that share a GPU.
        """
        import cupy
        from cupy.cuda import nccl

        # Connected as a whole at once: connecting at the first use of each algorithm would wait on the host,
        # in the middle of calls whose order among groups differs from rank to rank.
        os.environ.setdefault("NCCL_RUNTIME_CONNECT", "0")
        # What a rank records is its own affair: registering memory for it would wait for the other ranks.
        os.environ.setdefault("NCCL_GRAPH_REGISTER", "0")
        self.index, self.nccl, self._cupy = index, nccl, cupy
        self._ended, self._lock, self._calls = "", threading.Lock(), threading.RLock()
        store, name, size = rendezvous.store, rendezvous.name, rendezvous.size
        keys = [f"{name}/nccl/{place}" for place in range(size)]
        if rendezvous.rank == 0:
            store.set(f"{name}/nccl/id", nccl.get_unique_id())
        store.set(keys[rendezvous.rank], b"1")
        store.wait([*keys, f"{name}/nccl/id"], rendezvous.timeout)
        identity = store.get(f"{name}/nccl/id", rendezvous.timeout)
        try:
            with self.device():
                self.comm = nccl.NcclCommunicator(size, identity, rendezvous.rank)
        except nccl.NcclError as error:
            why = f"group {name!r}: NCCL does not connect its {size} ranks: {error}."
            raise DistributedError(why + self._shared_gpu(rendezvous)) from error

    def _shared_gpu(self, rendezvous: Rendezvous) -> str:
        """Return which ranks have one GPU, which NCCL refuses, and what to do; "" where none has."""
        store, rank = rendezvous.store, rendezvous.rank
        key = f"{rendezvous.name}/nccl/gpu/"
        with suppress(DistributedError):  # of ranks that failed otherwise
            place = self._cupy.cuda.runtime.deviceGetPCIBusId(self.index)
            store.set(f"{key}{rank}", f"{socket.gethostname()} {place}".encode())
            for other in range(rendezvous.size):
                if other != rank and store.get(f"{key}{other}", _TELL_SECONDS) == store.get(f"{key}{rank}"):
                    pair = sorted(rendezvous.ranks[k] for k in (rank, other))
                    return (
                        f" Ranks {pair[0]} and {pair[1]} share the GPU {place}, here cuda:{self.index}; each"
                        f" needs its own: once init() is called, tensorbus.device('cuda') is the one of this"
                        f" rank's number on its machine."
                    )
        return ""

    def device(self) -> AbstractContextManager[Any]:
        """Return a context in which CuPy works on the GPU."""
        device: AbstractContextManager[Any] = self._cupy.cuda.Device(self.index)
        return device

    def stream(self) -> Any:
        """Return the stream that is current on the GPU."""
        return self._cupy.cuda.get_current_stream(self.index)

    def number(self, name: str) -> int:
        """Return NCCL's number of a dtype."""
        return int(getattr(self.nccl, f"NCCL_{name}"))

    def run(self, what: str, queue: Callable[[Any, int], None], together: bool = False) -> None:
        """Give work to NCCL: ``queue`` gets its communicator and the address of the current stream.

        ``together``: it makes several calls, whose order among ranks does not matter.
        """
        try:
            with self._calls:  # NCCL takes one thread's calls at a time, and none on what was given back
                self.check(what)
                if self._cupy.cuda.runtime.getDevice() == self.index:  # to enter it takes long
                    self._queue(queue, together)
                else:
                    with self.device():
                        self._queue(queue, together)
        except (self.nccl.NcclError, self._cupy.cuda.runtime.CUDARuntimeError) as error:
            self.check(what)
            self.end(f"NCCL failed: {error}")
            raise DistributedError(f"{what}: NCCL failed: {error}.") from error

    def _queue(self, queue: Callable[[Any, int], None], together: bool) -> None:
        stream = self.stream().ptr
        if not together:
            queue(self.comm, stream)
            return
        self.nccl.groupStart()
        try:
            queue(self.comm, stream)
        finally:
            self.nccl.groupEnd()

    def host_memory(self, nbytes: int) -> Any:
        """Return memory of the host that the GPU can write to."""
        with self.device():
            return self._cupy.cuda.alloc_pinned_memory(nbytes)

    def to_host(self, address: int, memory: Any, nbytes: int) -> None:
        """Queue a copy to memory of the host."""
        runtime = self._cupy.cuda.runtime
        with self.device():
            kind = runtime.memcpyDeviceToHost
            runtime.memcpyAsync(memory.ptr, address, nbytes, kind, self.stream().ptr)

    def problem(self) -> str:
        """Return what NCCL tells has failed meanwhile, "" for nothing."""
        with self._lock:
            if self._ended:
                return ""
            try:
                self.comm.check_async_error()
            except self.nccl.NcclError as error:
                return "" if getattr(error, "status", None) == _PENDING else str(error)
        return ""

    def end(self, reason: str) -> None:
        """End what waits, and NCCL's communicator; later calls raise what says ``reason``."""
        with self._lock:
            if self._ended:
                return
            self._ended = reason
        # A call that only queues is over soon. One that waits in NCCL itself is ended by this.
        is_alone = self._calls.acquire(timeout=_CALL_SECONDS)
        try:
            with suppress(self.nccl.NcclError):  # of the collective that it ends
                self.comm.abort()
        finally:
            if is_alone:
                self._calls.release()

    def close(self) -> None:
        """Give NCCL's communicator back, once what was given to it is done.

        NCCL waits there for the end of all graphs that hold its work, of which CUDA tells it late, and for
        the other ranks.
        """
        with self._lock:
            if self._ended:
                return
            self._ended = "the group was closed"
        with suppress(self.nccl.NcclError, self._cupy.cuda.runtime.CUDARuntimeError), self.device():
            self._cupy.cuda.runtime.deviceSynchronize()  # CUDA lets go of graphs that are given back
            self.comm.destroy()

    def check(self, what: str) -> None:
        """Raise where the group has ended."""
        if self._ended:
            raise DistributedError(f"{what}: the group has ended: {self._ended}.")
