"""NCCL's end of a group on one GPU: its stream, the wait for what is queued there, and a watch over both."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Final

import numpy as np
from tensorbus.backend_api import Rendezvous
from tensorbus.errors import DistributedError, DistributedTimeoutError

STAMP: Final = 16
_GLANCE: Final = 0.1
"""Seconds between two looks of the watch."""
_SPIN: Final = 0.002
_PAUSE: Final = 50e-6
_NOT_READY: Final = 600
"""``cudaErrorNotReady``."""


class Session:
    """One rank's NCCL communicator on one GPU.

    NCCL's calls may wait for other ranks, on the host too, so a thread watches them: at the end of the time
    that a collective has, or of the group, it aborts the communicator, which ends what waits.
    """

    def __init__(self, rendezvous: Rendezvous, index: int) -> None:
        """All ranks call it; raises ``DistributedTimeoutError`` where one does not come."""
        import cupy
        import cupyx
        from cupy.cuda import nccl

        self.index, self._meeting, self._nccl, self._cupy = index, rendezvous, nccl, cupy
        self._limit, self._agreements = rendezvous.timeout, 0
        self._ended, self._error = "", DistributedError
        self._deadline: float | None = None
        self._what = ""
        self._stamped: Any = None
        self._lock = threading.Lock()
        store, name, size = rendezvous.store, rendezvous.name, rendezvous.size
        keys = [f"{name}/nccl/{place}" for place in range(size)]
        if rendezvous.rank == 0:
            store.set(f"{name}/nccl/id", nccl.get_unique_id())
        store.set(keys[rendezvous.rank], b"1")
        store.wait([*keys, f"{name}/nccl/id"], self._limit)
        identity = store.get(f"{name}/nccl/id", self._limit)
        with self.device():
            self.stream = cupy.cuda.Stream(non_blocking=True)
            self.comm = nccl.NcclCommunicator(size, identity, rendezvous.rank)
            self._own = cupy.zeros(STAMP, cupy.uint8)
            self._all = cupy.zeros(STAMP * size, cupy.uint8)
            self._sent = cupyx.empty_pinned((STAMP,), cupy.uint8)
            self._seen = cupyx.empty_pinned((STAMP * size,), cupy.uint8)
            cupy.cuda.get_current_stream().synchronize()
        self._stop = threading.Event()
        threading.Thread(target=self._watch, name=f"tensorbus-nccl-{name}", daemon=True).start()

    def device(self) -> Any:
        """Return a context in which CuPy works on the GPU."""
        return self._cupy.cuda.Device(self.index)

    def number(self, name: str) -> int:
        """Return NCCL's number of a dtype."""
        return int(getattr(self._nccl, f"NCCL_{name}"))

    def agreed(self, what: str, asked: str, queue: Callable[[Any, int], None]) -> None:
        """Queue what all ranks do together, and wait for it; refuse where they ask for different things.

        ``queue`` gets NCCL's communicator and the address of the stream.
        """
        self._agreements += 1  # messages are not counted: not all ranks have the same
        stamp = blake2b(asked.encode(), digest_size=STAMP).digest()
        self._sent[:] = np.frombuffer(stamp, np.uint8)

        def queue_both(comm: Any, stream: int) -> None:
            self._own.set(self._sent, stream=self.stream)
            comm.allGather(self._own.data.ptr, self._all.data.ptr, STAMP, self._nccl.NCCL_UINT8, stream)
            self._all.get(stream=self.stream, out=self._seen, blocking=False)
            self._stamped = self.stream.record()
            queue(comm, stream)

        self.run(what, queue_both, lambda: self._compare(stamp, asked))

    def run(
        self, what: str, queue: Callable[[Any, int], None], look: Callable[[], None] | None = None
    ) -> None:
        """Queue work behind that in the current stream, and wait until it is done."""
        self._check(what)
        self._deadline = time.monotonic() + self._limit
        self._what = what
        try:
            with self.device():
                self.stream.wait_event(self._cupy.cuda.get_current_stream().record())
                queue(self.comm, self.stream.ptr)
                if look is not None:
                    self._wait(self._stamped, what)
                    look()
                self._wait(self.stream.record(), what)
        except (self._nccl.NcclError, self._cupy.cuda.runtime.CUDARuntimeError) as error:
            self._check(what)
            self.end(f"NCCL failed: {error}")
            raise DistributedError(f"{what}: NCCL failed: {error}.") from error
        finally:
            self._deadline = None

    def together(self, calls: Callable[[], None]) -> None:
        """Make NCCL's calls as one, so that their order among ranks does not matter."""
        self._nccl.groupStart()
        try:
            calls()
        finally:
            self._nccl.groupEnd()

    def end(self, reason: str, error: type[DistributedError] = DistributedError) -> None:
        """End what waits, and NCCL's communicator; later calls raise what says ``reason``."""
        with self._lock:
            if self._ended:
                return
            self._ended, self._error = reason, error
        self._stop.set()
        self.comm.abort()

    def close(self) -> None:
        """Give NCCL's communicator back, which waits for nothing here."""
        with self._lock:
            if self._ended:
                return
            self._ended = "it was closed"
        self._stop.set()
        self.comm.destroy()

    def _watch(self) -> None:
        while not self._stop.wait(_GLANCE):
            deadline = self._deadline
            if deadline is not None and time.monotonic() > deadline:
                self.end(
                    f"{self._what} waited {self._limit:g} seconds for a rank that did not come",
                    DistributedTimeoutError,
                )

    def _wait(self, event: Any, what: str) -> None:
        runtime, start = self._cupy.cuda.runtime, time.monotonic()
        while (code := runtime.eventQuery(event.ptr)) == _NOT_READY:
            self._check(what)
            if time.monotonic() - start > _SPIN:
                time.sleep(_PAUSE)
        if code:
            raise DistributedError(f"{what}: the GPU failed while NCCL ran: CUDA's error {code}.")
        self._check(what)

    def _compare(self, stamp: bytes, asked: str) -> None:
        if bytes(self._seen) == stamp * self._meeting.size:
            return
        store, name = self._meeting.store, f"{self._meeting.name}/asked/{self._agreements}"
        store.set(f"{name}/{self._meeting.rank}", asked.encode())
        texts = [store.get(f"{name}/{place}", self._limit).decode() for place in range(self._meeting.size)]
        calls = "; ".join(
            f"rank {rank}: {text}" for rank, text in zip(self._meeting.ranks, texts, strict=True)
        )
        problem = f"the ranks ask for different things: {calls}"
        self.end(problem)
        raise DistributedError(f"{problem}.")

    def _check(self, what: str) -> None:
        if self._ended:
            raise self._error(f"{what}: the group has ended: {self._ended}.")
