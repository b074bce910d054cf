"""Connections between the ranks of a group: messages of bytes, in order, sent while others are received."""

from __future__ import annotations

import atexit
import hmac
import os
import queue
import socket
import struct
import threading
import time
import weakref
from contextlib import suppress
from typing import Final

from tensorbus.backend_api import Mailbox, Rendezvous
from tensorbus.errors import DistributedError, DistributedTimeoutError

from .frames import CHALLENGE, DIGEST, proof, read, secret

_HEAD: Final = struct.Struct(">BqQ")
"""Of each message: a kind, a tag, and how many bytes follow."""
DATA: Final = 0
MAIL: Final = 1
"""What ``send`` sent: it goes into the mailbox, whatever collectives come before it."""
_GONE: Final = 2
_POLL: Final = 0.5
_LOOPBACK: Final = "127.0.0.1"
_LAST_SECONDS: Final = 10.0
"""How long the end of a program may wait until what it has queued is sent."""


class Peer:
    """A connection to one rank: a thread sends what is queued, another puts away what comes."""

    def __init__(self, connection: socket.socket, rank: int, place: int, mailbox: Mailbox) -> None:
        self.rank, self._place, self._mailbox = rank, place, mailbox
        self._connection = connection
        self._outbox: queue.SimpleQueue[tuple[int, int, bytes] | None] = queue.SimpleQueue()
        self._inbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        """What collectives sent."""
        self.reason = ""
        self._threads = [
            threading.Thread(target=run, name=f"tensorbus-tcp-{what}-{rank}", daemon=True)
            for what, run in (("send", self._send_all), ("receive", self._receive_all))
        ]
        for thread in self._threads:
            thread.start()
        _open.add(self)

    def put(self, data: bytes, kind: int = DATA, tag: int = 0) -> None:
        """Queue a message."""
        self._outbox.put((kind, tag, data))

    def check(self, what: str) -> None:
        """Raise where the other rank is gone."""
        if self.reason:
            raise DistributedError(f"{what}: rank {self.rank} is gone: {self.reason.removesuffix('.')}.")

    def take(self, timeout: float, what: str) -> bytes:
        """Wait for what the other's next collective sends."""
        end = time.monotonic() + timeout
        while True:
            left = end - time.monotonic()
            if left <= 0:
                raise DistributedTimeoutError(
                    f"{what}: rank {self.rank} sent nothing within {timeout:g} seconds. It works still,"
                    f" waits elsewhere, or is gone; tensorbus.distributed.records() on each rank shows what"
                    f" it did last."
                )
            with suppress(queue.Empty):  # a short wait, so that an interrupt is seen
                data = self._inbox.get(timeout=min(left, _POLL))
                if data is None:
                    self._inbox.put(None)
                    self.check(what)
                else:
                    return data

    def close(self, reason: str = "") -> None:
        """Send what is queued, then hang up; with a ``reason`` tell it, and do not wait."""
        if reason:
            self._fail(reason)
            self._outbox.put((_GONE, 0, reason.encode()))
        self._outbox.put(None)
        self._threads[0].join(1.0 if reason else 30.0)
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def flush(self, end: float) -> None:
        """Send what is queued, and nothing later; wait for that until ``end`` of ``time.monotonic``."""
        self._outbox.put(None)
        self._threads[0].join(max(end - time.monotonic(), 0))

    def _fail(self, reason: str) -> None:
        self.reason = self.reason or reason
        self._inbox.put(None)
        self._mailbox.wake()

    def _send_all(self) -> None:
        try:
            while (message := self._outbox.get()) is not None:
                kind, tag, data = message
                self._connection.sendall(_HEAD.pack(kind, tag, len(data)))
                self._connection.sendall(data)
        except OSError as error:
            self._fail(f"the connection broke ({error})")

    def _receive_all(self) -> None:
        try:
            while True:
                kind, tag, length = _HEAD.unpack(read(self._connection, _HEAD.size))
                data = read(self._connection, length)
                if kind == _GONE:
                    self._fail(data.decode("utf-8", "replace"))
                    return
                if kind == MAIL:
                    self._mailbox.put(self._place, tag, data)
                else:
                    self._inbox.put(data)
        except (OSError, MemoryError) as error:
            self._fail(f"it ended, or the connection broke ({error})")


_open: Final[weakref.WeakSet[Peer]] = weakref.WeakSet()


@atexit.register
def _flush() -> None:
    """Send what a program had queued that ends without a word: others still wait for it."""
    end = time.monotonic() + _LAST_SECONDS
    for peer in [*_open]:
        peer.flush(end)


def connect(rendezvous: Rendezvous, mailbox: Mailbox) -> dict[int, Peer]:
    """Connect this rank of the group to every other; by place in the group."""
    store, here, size = rendezvous.store, rendezvous.rank, rendezvous.size
    end = time.monotonic() + rendezvous.timeout
    address = _address()
    interface = _LOOPBACK if address == _LOOPBACK else ""  # all ranks are here: nobody else comes
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((interface, 0), family=family, backlog=size) as listener:
        port = listener.getsockname()[1]
        store.set(f"{rendezvous.name}/peer/{here}", f"{address} {port}".encode())
        connections: dict[int, socket.socket] = {}
        try:
            for place in range(here):  # the lower ones are called, the higher ones call
                host, text = (
                    store.get(f"{rendezvous.name}/peer/{place}", rendezvous.timeout).decode().split(" ")
                )
                connections[place] = _call(host, int(text), here, rendezvous)
            while len(connections) < size - 1:
                listener.settimeout(max(end - time.monotonic(), 0.001))
                try:
                    connection, _ = listener.accept()
                except TimeoutError:
                    missing = [
                        r for k, r in enumerate(rendezvous.ranks) if k != here and k not in connections
                    ]
                    raise DistributedTimeoutError(
                        f"distributed: rank {missing} did not connect within {rendezvous.timeout:g} seconds."
                    ) from None
                place_of = _answer(connection, rendezvous)
                if place_of is not None:
                    connections[place_of] = connection
        except BaseException:
            for connection in connections.values():
                connection.close()
            raise
    for connection in connections.values():
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return {
        place: Peer(connection, rendezvous.ranks[place], place, mailbox)
        for place, connection in connections.items()
    }


def _address() -> str:
    """Return the name that other ranks call: ``TENSORBUS_HOST``, Slurm's of several machines, or own."""
    named = os.environ.get("TENSORBUS_HOST", "")
    if not named and os.environ.get("SLURM_STEP_NUM_NODES", "1") != "1":
        named = os.environ.get("SLURMD_NODENAME", "")
    return named or _LOOPBACK


def _key(rendezvous: Rendezvous) -> bytes:
    """Return what ranks of the group know: the secret, and a number that only the store tells."""
    name = f"{rendezvous.name}/key"
    return secret() + rendezvous.store.compare_set(name, b"", os.urandom(32))


def _call(host: str, port: int, place: int, rendezvous: Rendezvous) -> socket.socket:
    try:
        connection = socket.create_connection((host, port), timeout=rendezvous.timeout)
        challenge = read(connection, CHALLENGE)
        connection.sendall(proof(_key(rendezvous), challenge, b"peer") + place.to_bytes(8, "big"))
    except OSError as error:
        raise DistributedError(
            f"distributed: {host}:{port} cannot be reached: {error}. Set TENSORBUS_HOST on each machine to"
            f" the name that the others call it by."
        ) from error
    return connection


def _answer(connection: socket.socket, rendezvous: Rendezvous) -> int | None:
    """Return the place of the rank that calls; None, and hang up, where it is none of the group."""
    connection.settimeout(10.0)
    challenge = os.urandom(CHALLENGE)
    try:
        connection.sendall(challenge)
        digest = read(connection, DIGEST)
        place = int.from_bytes(read(connection, 8), "big")
        if (
            hmac.compare_digest(digest, proof(_key(rendezvous), challenge, b"peer"))
            and place < rendezvous.size
        ):
            return place
    except OSError:
        pass
    connection.close()
    return None
