"""Collectives of MPI processes on the host's memory.

Every collective begins with an all-gather of what each rank asks for, in a few bytes: so ranks that differ
are told what each asked for, where MPI itself would hang or crash. Data then moves by MPI, from the tensors'
memory into that of the results; combinations are computed by tensorbus, in order of rank.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from itertools import accumulate, pairwise
from math import prod
from typing import Any, Final

import tensorbus as tb
from tensorbus.backend_api import (
    Mailbox,
    PostedReceive,
    Rendezvous,
    combined,
    from_memory,
    host_type,
    to_bytes,
)
from tensorbus.errors import DistributedError, DistributedTimeoutError

from .outbox import outbox
from .program import is_started_by_mpi, mpi
from .requests import wait

_ONE_STEP_MAX_BYTES: Final = 1 << 14
"""Up to so many bytes every rank gets all that there is: one step in place of two."""
_STAMP: Final = 16
_CHUNK: Final = 1 << 30
"""Bytes of one message: MPI counts in 31 bits."""
_HEADS, _BODIES, _PARTS = 1, 2, 3
"""Tags. A message may come while a collective of its group moves parts."""
_STEPS_AT_ONCE: Final = 256
_LARGEST_TAG: Final = 32767
"""What every MPI has."""
Shape = tuple[int, ...]


class Factory:
    """Connects the processes of an MPI program through the host's memory."""

    priority = 10
    """Before sockets, where both connect."""

    def verdict(self, device_type: str, rendezvous: Rendezvous) -> bool | str:
        """Return True for processes of an MPI program and tensors in the host's memory."""
        if rendezvous.threads:
            return "its ranks are processes"
        if not is_started_by_mpi():
            return "this process was not started by mpiexec"
        return device_type == host_type() or "it connects the host's memory"

    def connect(self, rendezvous: Rendezvous) -> Communicator:
        """Return a rank's end."""
        return Communicator(rendezvous)


class Communicator:
    """One process's end of a group."""

    def __init__(self, rendezvous: Rendezvous) -> None:
        self._meeting, self._rank, self._size = rendezvous, rendezvous.rank, rendezvous.size
        self._mpi, self._ended, self._calls, self._label = mpi(), "", 0, ""
        self._error: type[DistributedError] = DistributedError
        self._mailbox = Mailbox(rendezvous.ranks)
        self._sending, self._looking = threading.Lock(), threading.Lock()
        self._comm = self._connect()

    def expect(self, label: str) -> None:
        """Let the next collective of each rank communicate the same."""
        self._label = label

    def all_reduce(self, x: tb.Tensor, reduction: str) -> tb.Tensor:
        """Combine in order of rank; of what is large each rank combines a part."""
        what = f"all_reduce {reduction} of {_spec(x)}"
        self._agree(what)
        if x.nbytes <= _ONE_STEP_MAX_BYTES:
            return combined(self._gather(what, x, [x.shape] * self._size), reduction)
        flat = x.reshape((-1,))
        parts = [flat[a:b] for a, b in pairwise(flat.size * k // self._size for k in range(self._size + 1))]
        mine = combined(self._exchange(what, parts, [parts[self._rank].shape] * self._size), reduction)
        whole = self._gather(what, mine, [part.shape for part in parts], joined=True)[0]
        return whole.reshape(x.shape)

    def all_gather(self, x: tb.Tensor, shapes: Sequence[Shape]) -> list[tb.Tensor]:
        """Send it to every rank."""
        what = f"all_gather of {x.dtype} in shapes {[*map(tuple, shapes)]}"
        self._agree(what, x.shape, shapes[self._rank])
        return self._gather(what, x, shapes)

    def reduce_scatter(self, xs: Sequence[tb.Tensor], reduction: str) -> tb.Tensor:
        """Send each rank its part, and combine in order of rank."""
        what = f"reduce_scatter {reduction} of {', '.join(map(_spec, xs))}"
        self._agree(what)
        return combined(self._exchange(what, xs, [xs[self._rank].shape] * self._size), reduction)

    def all_to_all(self, xs: Sequence[tb.Tensor], shapes: Sequence[Shape]) -> list[tb.Tensor]:
        """Send each rank its part."""
        what = f"all_to_all of {xs[0].dtype}"
        self._agree(what)
        self._check_sizes(what, xs, shapes)
        return self._exchange(what, xs, shapes)

    def broadcast(self, x: tb.Tensor, root: int) -> tb.Tensor:
        """Send the root's to every rank."""
        what = f"broadcast of {_spec(x)} from place {root}"
        self._agree(what)
        data = memoryview(bytearray(to_bytes(x) if self._rank == root else x.nbytes))
        for chunk in _chunks(data):
            self._do(what, partial(self._start_broadcast, chunk, root), data)
        return from_memory(data, x.shape, x.dtype, x.device)

    def send(self, x: tb.Tensor, to: int, tag: int = 0) -> None:
        """Give MPI what it is, and a copy of its bytes; wait for nobody."""
        what, data = f"send of {_spec(x)}", memoryview(bytes(to_bytes(x)))
        head = f"{tag} {data.nbytes} {_spec(x)}".encode()
        self._check(what)
        try:
            with self._sending:  # heads and bytes arrive in one order
                requests = [self._comm.Isend([head, self._mpi.BYTE], to, _HEADS)]
                requests += [self._comm.Isend([c, self._mpi.BYTE], to, _BODIES) for c in _chunks(data)]
            outbox.add(requests, (head, data))
        except self._mpi.Exception as error:
            raise self._failed(what, error) from error

    def receive(self, like: tb.Tensor, source: int) -> tb.Tensor:
        """Wait for what the other sends."""
        return self.complete_receive(self.post_receive(source, 0), like)[0]

    def post_receive(self, source: int | None, tag: int) -> PostedReceive:
        """Ask for what others send."""
        return self._mailbox.post(source, tag)

    def complete_receive(self, posted: PostedReceive, like: tb.Tensor) -> tuple[tb.Tensor, int]:
        """Wait for what it is, then for its bytes; what is of another shape is taken as well, and refused."""
        what, limit = f"recv of {_spec(like)}", self._meeting.timeout
        try:
            (spec, data, requests), sender = self._mailbox.wait(
                posted, what, limit, partial(self._check, what), self._look_for_messages
            )
        except DistributedTimeoutError as error:
            self._end(str(error).partition(". ")[0], DistributedTimeoutError)
            raise
        except self._mpi.Exception as error:
            raise self._failed(what, error) from error
        self._do(what, lambda: requests, data, absent=[sender])
        if spec != _spec(like):
            raise DistributedError(f"recv: {_spec(like)} was asked for, but what was sent is {spec}.")
        return from_memory(data, like.shape, like.dtype, like.device), sender

    def _look_for_messages(self) -> None:
        """Put into the mailbox what has come, whoever waits for it; its bytes may be on their way."""
        byte, status = self._mpi.BYTE, self._mpi.Status()
        with self._looking:  # heads are taken, and memory for bytes given, in one order
            while (message := self._comm.Improbe(self._mpi.ANY_SOURCE, _HEADS, status)) is not None:
                head = bytearray(status.Get_count(byte))
                message.Recv([head, byte])
                tag, length, spec = head.decode().split(" ", 2)
                source, data = status.Get_source(), memoryview(bytearray(int(length)))
                requests = [self._comm.Irecv([chunk, byte], source, _BODIES) for chunk in _chunks(data)]
                self._mailbox.put(source, int(tag), (spec, data, requests))

    def barrier(self) -> None:
        """Wait for all ranks."""
        self._agree("barrier")

    def abort(self, reason: str) -> None:
        """End what waits here; the other ranks find out by their own timeouts, or end with the program."""
        self._end(reason, DistributedError)

    def close(self) -> None:
        """Give back nothing: other ranks may still be in the last collective, and MPI's own end frees all."""
        self._end("the group was closed", DistributedError)

    def _start_broadcast(self, data: memoryview, root: int) -> list[Any]:
        return [self._comm.Ibcast([data, self._mpi.BYTE], root)]

    def _connect(self) -> Any:
        """Make a communicator of MPI of the group's processes, once all of them are here."""
        meeting, world = self._meeting, self._mpi.COMM_WORLD
        keys = [f"{meeting.name}/mpi/{place}" for place in range(self._size)]
        meeting.store.set(keys[self._rank], str(world.Get_rank()).encode())
        meeting.store.wait(keys, meeting.timeout)
        ranks = [int(meeting.store.get(key, meeting.timeout)) for key in keys]
        members = world.Get_group().Incl(ranks)
        comm = world.Create_group(members, zlib.crc32(meeting.name.encode()) % _LARGEST_TAG)
        comm.Set_errhandler(self._mpi.ERRORS_RETURN)
        return comm

    def _agree(self, what: str, shape: Shape | None = None, expected: Shape | None = None) -> None:
        """Wait for all ranks, and refuse where they ask for different things."""
        label, self._label = self._label, ""
        what = asked = f"{what}, {label}" if label else what
        if shape is not None and tuple(shape) != tuple(expected or ()):
            asked = f"{what}, though its own has shape {shape}"
        stamp = blake2b(asked.encode(), digest_size=_STAMP).digest()
        stamps = bytearray(_STAMP * self._size)
        byte = self._mpi.BYTE
        self._do(what, lambda: [self._comm.Iallgather([stamp, byte], [stamps, byte])], (stamp, stamps))
        if stamps != stamp * self._size or asked != what:
            raise DistributedError(f"{asked}: the ranks ask for different things.")  # core says for what

    def _check_sizes(self, what: str, xs: Sequence[tb.Tensor], shapes: Sequence[Shape]) -> None:
        """Tell each rank the shapes that come from here, and refuse where some were told others."""
        own = b"".join(blake2b(_text(x.shape), digest_size=_STAMP).digest() for x in xs)
        due = b"".join(blake2b(_text(shape), digest_size=_STAMP).digest() for shape in shapes)
        stamps, byte = bytearray(len(own)), self._mpi.BYTE
        self._do(what, lambda: [self._comm.Ialltoall([own, byte], [stamps, byte])], (own, stamps))
        wrong = stamps != due
        flags = bytearray(self._size)
        flag = bytes([wrong])
        self._do(what, lambda: [self._comm.Iallgather([flag, byte], [flags, byte])], (flag, flags))
        if any(flags):
            places = [rank for rank, flag in zip(self._meeting.ranks, flags, strict=True) if flag]
            raise DistributedError(
                f"{what}: the shapes that rank {places} was told are not those that were sent to it;"
                f" tensorbus.distributed.records() on each rank shows what it did last."
            )

    def _gather(
        self, what: str, x: tb.Tensor, shapes: Sequence[Shape], joined: bool = False
    ) -> list[tb.Tensor]:
        """Return every rank's tensor; ``joined``: all of them as one, of one axis."""
        own, itemsize = to_bytes(x), x.dtype.itemsize
        counts = [prod(shape) * itemsize for shape in shapes]
        starts = [0, *accumulate(counts)]
        data = memoryview(bytearray(starts[-1]))
        if starts[-1] <= _CHUNK:
            byte, target = self._mpi.BYTE, [data, counts, starts[:-1], self._mpi.BYTE]
            self._do(what, lambda: [self._comm.Iallgatherv([own, byte], target)], (own, data))
        else:
            self._pairwise(what, [own] * self._size, [data[a:b] for a, b in pairwise(starts)])
        if joined:
            return [from_memory(data, (starts[-1] // itemsize,), x.dtype, x.device)]
        return [
            from_memory(memoryview(bytearray(data[a:b])), shape, x.dtype, x.device)
            for (a, b), shape in zip(pairwise(starts), shapes, strict=True)
        ]

    def _exchange(self, what: str, xs: Sequence[tb.Tensor], shapes: Sequence[Shape]) -> list[tb.Tensor]:
        """Send ``xs[k]`` to rank k, and return what all sent here, whose shapes are ``shapes``."""
        itemsize = xs[0].dtype.itemsize
        targets = [memoryview(bytearray(prod(shape) * itemsize)) for shape in shapes]
        self._pairwise(what, [to_bytes(x) for x in xs], targets)
        return [
            from_memory(data, shape, xs[0].dtype, xs[0].device)
            for data, shape in zip(targets, shapes, strict=True)
        ]

    def _pairwise(self, what: str, own: Sequence[memoryview], targets: Sequence[memoryview]) -> None:
        """Send ``own[k]`` to rank k, and fill ``targets`` with what all send here, around the ring."""
        targets[self._rank][:] = own[self._rank]
        byte = self._mpi.BYTE
        for first in range(1, self._size, _STEPS_AT_ONCE):

            def start(first: int = first) -> list[Any]:
                requests = []
                steps = range(first, min(first + _STEPS_AT_ONCE, self._size))
                for step in steps:
                    source = (self._rank - step) % self._size
                    chunks = _chunks(targets[source])
                    requests += [self._comm.Irecv([c, byte], source, _PARTS) for c in chunks]
                for step in steps:
                    to = (self._rank + step) % self._size
                    requests += [self._comm.Isend([c, byte], to, _PARTS) for c in _chunks(own[to])]
                return requests

            self._do(what, start, (own, targets))

    def _do(
        self, what: str, start: Callable[[], list[Any]], buffers: Any, absent: Sequence[int] = ()
    ) -> None:
        """Start requests and wait for them."""
        self._check(what)
        self._calls += 1
        now, limit = time.monotonic(), self._meeting.timeout
        try:
            requests = start()
            early = now + min(1.0, limit / 2)
            if wait(requests, early, lambda: self._check(what), buffers):
                return
            self._say_where(what)
            if wait(requests, now + limit, lambda: self._check(what), buffers):
                return
        except self._mpi.Exception as error:
            raise self._failed(what, error) from error
        ranks = ", ".join(map(str, [self._meeting.ranks[k] for k in absent] or self._absent())) or "some"
        self._end(f"{what} waited {limit:g} seconds for rank {ranks}", DistributedTimeoutError)
        raise DistributedTimeoutError(
            f"{what}: rank {ranks} did not come within {limit:g} seconds. It works still, waits elsewhere, or"
            f" is gone; tensorbus.distributed.records() on each rank shows what it did last."
        )

    def _failed(self, what: str, error: Exception) -> DistributedError:
        """End the group; return the error of this call."""
        self._end(f"MPI failed: {error}", DistributedError)
        return DistributedError(f"{what}: MPI failed: {error}.")

    def _say_where(self, what: str) -> None:
        """Leave in the store that this rank waits, so that others can tell who does not."""
        with suppress(DistributedError):
            key = f"{self._meeting.name}/waits/{self._rank}"
            self._meeting.store.set(key, str(self._calls).encode())

    def _absent(self) -> list[int]:
        """Return the ranks that do not wait in the collective that this one waits in."""
        store, name, here = self._meeting.store, self._meeting.name, str(self._calls).encode()
        absent = []
        with suppress(DistributedError):
            for place, rank in enumerate(self._meeting.ranks):
                key = f"{name}/waits/{place}"
                if not store.check([key]) or store.get(key, 1.0) != here:
                    absent.append(rank)
        return absent

    def _end(self, reason: str, error: type[DistributedError]) -> None:
        if not self._ended:
            self._error, self._ended = error, reason

    def _check(self, what: str) -> None:
        if self._ended:
            raise self._error(f"{what}: the group has ended: {self._ended}.")


def _spec(x: tb.Tensor) -> str:
    return f"{x.dtype}{[*x.shape]}"


def _text(shape: Sequence[int]) -> bytes:
    return str(tuple(shape)).encode()


def _chunks(data: memoryview) -> list[memoryview]:
    """Return the data in messages, none where there are no bytes."""
    return [data[k : k + _CHUNK] for k in range(0, data.nbytes, _CHUNK)]
