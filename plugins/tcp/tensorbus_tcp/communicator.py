"""Collectives of processes over sockets, on the host's memory: nothing but this package is needed."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Final

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
from tensorbus.errors import DistributedError

from .peers import MAIL, Peer, connect

_ONE_STEP_MAX_BYTES: Final = 1 << 15
"""Up to so many bytes every rank sends all that it has to every other: one step in place of two."""
_TEXT: Final = 160
"""Bytes of the text of a call that go before what it sends, behind a checksum of all of it."""
Shape = tuple[int, ...]


class Factory:
    """Connects processes through the host's memory."""

    def verdict(self, device_type: str, rendezvous: Rendezvous) -> bool | str:
        """Return True for processes and tensors in the host's memory."""
        if rendezvous.threads:
            return "its ranks are processes"
        return device_type == host_type() or "it connects the host's memory"

    def connect(self, rendezvous: Rendezvous) -> Communicator:
        """Return a rank's end."""
        mailbox = Mailbox(rendezvous.ranks)
        return Communicator(rendezvous, connect(rendezvous, mailbox), mailbox)


class Communicator:
    """One process's end of a group."""

    def __init__(self, rendezvous: Rendezvous, peers: dict[int, Peer], mailbox: Mailbox) -> None:
        self._rank, self._size, self._timeout = rendezvous.rank, rendezvous.size, rendezvous.timeout
        self._peers, self._mailbox, self._label = peers, mailbox, ""

    def expect(self, label: str) -> None:
        """Let the next collective of each rank communicate the same."""
        self._label = label

    def all_reduce(self, x: tb.Tensor, reduction: str) -> tb.Tensor:
        """Combine in order of rank: the same on every rank. Each rank combines a part of what is large."""
        what = self._asked(f"all_reduce {reduction} of {_spec(x)}")
        if x.nbytes <= _ONE_STEP_MAX_BYTES or self._size == 1:
            return combined(self._exchange(what, [x] * self._size, [x.shape] * self._size), reduction)
        flat = x.reshape((-1,))
        bounds = [flat.size * k // self._size for k in range(self._size + 1)]
        parts = [flat[a:b] for a, b in pairwise(bounds)]
        mine = combined(self._exchange(what, parts, [parts[self._rank].shape] * self._size), reduction)
        whole = self._exchange(what, [mine] * self._size, [part.shape for part in parts])
        return tb.concat(whole).reshape(x.shape)

    def all_gather(self, x: tb.Tensor, shapes: Sequence[Shape]) -> list[tb.Tensor]:
        """Send it to every rank."""
        what = self._asked(f"all_gather of {x.dtype} in shapes {[*shapes]}")
        return self._exchange(what, [x] * self._size, shapes)

    def reduce_scatter(self, xs: Sequence[tb.Tensor], reduction: str) -> tb.Tensor:
        """Send each rank its part, and combine in order of rank."""
        what = self._asked(f"reduce_scatter {reduction} of {', '.join(map(_spec, xs))}")
        return combined(self._exchange(what, xs, [xs[self._rank].shape] * self._size), reduction)

    def all_to_all(self, xs: Sequence[tb.Tensor], shapes: Sequence[Shape]) -> list[tb.Tensor]:
        """Send each rank its part."""
        return self._exchange(self._asked(f"all_to_all of {xs[0].dtype}"), xs, shapes)

    def broadcast(self, x: tb.Tensor, root: int) -> tb.Tensor:
        """Send the root's to every rank."""
        what = self._asked(f"broadcast of {_spec(x)} from place {root}")
        if self._rank == root:
            for peer in self._peers.values():
                peer.put(_stamped(what, x))
            return x.clone()
        return self._take(self._peers[root], what, x, x.shape)

    def send(self, x: tb.Tensor, to: int, tag: int = 0) -> None:
        """Queue it."""
        self._peers[to].put(_stamped(_spec(x), x), MAIL, tag)

    def receive(self, like: tb.Tensor, source: int) -> tb.Tensor:
        """Wait for what the other queued."""
        return self.complete_receive(self.post_receive(source, 0), like)[0]

    def post_receive(self, source: int | None, tag: int) -> PostedReceive:
        """Ask for what others queue."""
        return self._mailbox.post(source, tag)

    def complete_receive(self, posted: PostedReceive, like: tb.Tensor) -> tuple[tb.Tensor, int]:
        """Wait until it is there; one that any rank may send, until all are gone."""
        what = f"recv of {_spec(like)}"
        peers = [*self._peers.values()] if posted.source is None else [self._peers[posted.source]]

        def check() -> None:
            if all(peer.reason for peer in peers):
                peers[0].check(what)

        data, sender = self._mailbox.wait(posted, what, self._timeout, check)
        return _opened(data, self._peers[sender].rank, what, like, like.shape, _spec(like)), sender

    def barrier(self) -> None:
        """Send every rank a message, and wait for its."""
        self._exchange("barrier", [tb.zeros((0,), device=host_type())] * self._size, [(0,)] * self._size)

    def abort(self, reason: str) -> None:
        """Hang up, saying why."""
        for peer in self._peers.values():
            peer.close(reason)

    def close(self) -> None:
        """Hang up once everything is sent."""
        for peer in self._peers.values():
            peer.close()

    def _asked(self, text: str) -> str:
        """Return what the ranks have to ask for alike, with what is communicated."""
        label, self._label = self._label, ""
        return f"{text}, {label}" if label else text

    def _exchange(self, what: str, xs: Sequence[tb.Tensor], shapes: Sequence[Shape]) -> list[tb.Tensor]:
        """Send ``xs[k]`` to rank k, and return what all sent here, whose shapes are ``shapes``."""
        for place, peer in self._peers.items():
            peer.put(_stamped(what, xs[place]))
        results = []
        for place in range(self._size):
            x = xs[self._rank]
            if place == self._rank:
                if x.shape != tuple(shapes[place]):
                    raise DistributedError(
                        f"{what}: this rank's part is {_spec(x)}, but {[*shapes[place]]} was said of it."
                    )
                results.append(x.clone())
            else:
                results.append(self._take(self._peers[place], what, x, shapes[place]))
        return results

    def _take(self, peer: Peer, what: str, like: tb.Tensor, shape: Shape) -> tb.Tensor:
        return _opened(peer.take(self._timeout, what), peer.rank, what, like, shape, what)


def _opened(data: bytes, rank: int, what: str, like: tb.Tensor, shape: Shape, asked: str) -> tb.Tensor:
    """Return what a rank sent, where it is what was asked for."""
    expected, start = _stamp(asked), 5 + data[4]
    stamp, body = data[:start], data[start:]
    nbytes = like.dtype.itemsize * prod(shape)
    if stamp != expected or len(body) != nbytes:
        other = bytes(stamp[5:]).decode(errors="replace")
        sent = f"{len(body)} bytes" if len(body) == nbytes else f"{len(body)} bytes, not {nbytes},"
        raise DistributedError(
            f"{what}: rank {rank} does something else, or with other shapes: it sent {sent} of"
            f" {other}; tensorbus.distributed.records() on each rank shows what it did last."
        )
    return from_memory(memoryview(bytearray(body)), shape, like.dtype, like.device)


def _stamp(what: str) -> bytes:
    text = what.encode()
    return zlib.crc32(text).to_bytes(4, "big") + bytes([min(len(text), _TEXT)]) + text[:_TEXT]


def _stamped(what: str, x: tb.Tensor) -> bytes:
    return _stamp(what) + bytes(to_bytes(x))


def _spec(x: tb.Tensor) -> str:
    return f"{x.dtype}{[*x.shape]}"
