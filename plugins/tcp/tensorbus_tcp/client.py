"""The ``Store`` that ranks use: one connection a thread, requests and answers in turn."""

from __future__ import annotations

import hmac
import os
import socket
import threading
import time
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit
from weakref import ref

from tensorbus.backend_api import store_amount, store_key, store_keys, store_pairs, store_seconds, store_value
from tensorbus.errors import ArgumentError, DistributedError, DistributedTimeoutError

from .frames import CHALLENGE, DIGEST, LENGTH, MAX_FRAME, packed, proof, read, secret, unpacked
from .server import Server

_DEFAULT_TIMEOUT: Final = 300.0
_GRACE: Final = 30.0
"""Seconds beyond a request's own limit after which the server counts as gone."""


_SILENT: Final = 10.0
"""Seconds after which a rank that waits for the server says so."""
_PATIENCE: Final = 5.0
"""Seconds that a server which has answered before, and is gone, gets to come back."""


class Factory:
    """Opens ``tcp://host:port``; the rank that serves starts the server."""

    def open(self, url: str, *, serve: bool, timeout: float) -> TcpStore:
        """Return the store. Raises ``DistributedError`` where nobody answers within ``timeout`` seconds."""
        parts = urlsplit(url)
        try:
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise ArgumentError(f"distributed: {url!r}: {error}.") from None
        if not host or port is None:
            raise ArgumentError(f"distributed: a store's URL is tcp://host:port, got {url!r}.")
        if port == 0 and not serve:
            raise ArgumentError(
                f"distributed: {url!r} is a store at any free port, which only who serves it knows: name the"
                f" port, which the url of the served store says."
            )
        server = Server(host, port) if serve else None
        return TcpStore(host, server.port if server else port, timeout=timeout, server=server)


class _Held:
    """A connection that is closed when its thread has ended, or its store is gone.

    By a callback of C alone, ``next(map(close, [connection]), watch)``: a Ctrl-C that arrives in a
    ``__del__`` is lost.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        close = partial(next, map(socket.SocketType.close, [connection]))
        for watch in [watch for watch in list(_watches) if watch() is None]:
            _watches.discard(watch)
        _watches.add(ref(self, close))


_watches: Final[set[ref[_Held]]] = set()
"""Of the connections that are held, and of some that are closed."""


class TcpStore:
    """A client of the server at ``host:port``; ``url`` names it."""

    def __init__(
        self, host: str, port: int, *, timeout: float = _DEFAULT_TIMEOUT, server: Server | None = None
    ) -> None:
        self._address, self._timeout, self._server = (host, port), timeout, server
        self._local = threading.local()
        self._is_known = False
        """Whether the server has answered once: then it is not waited for as one that still has to start."""
        self.url = f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"
        self.check([])  # the server is there, and takes the secret
        self._is_known = True

    def set(self, key: str, value: bytes, ttl: float | None = None) -> None:
        """Put ``value`` under ``key``; for ``ttl`` seconds where they are given."""
        self._ask("set", store_key(key), store_value(value), None if ttl is None else store_seconds(ttl, 0))

    def get(self, key: str, timeout: float | None = None) -> bytes:
        """Wait for ``key`` and return its value. Raises ``DistributedTimeoutError``."""
        limit = self._limit(timeout)
        value = self._ask("get", store_key(key), limit, wait=limit)
        if value is None:
            raise DistributedTimeoutError(f"store {self.url}: nobody set {key!r} within {limit:g} seconds.")
        return bytes(value)

    def add(self, key: str, amount: int) -> int:
        """Add to the number under ``key`` and return the sum."""
        return int(self._ask("add", store_key(key), store_amount(amount)))

    def wait(self, keys: Sequence[str], timeout: float | None = None) -> None:
        """Wait for all keys. Raises ``DistributedTimeoutError``."""
        limit = self._limit(timeout)
        missing = self._ask("wait", store_keys(keys), limit, wait=limit)
        if missing:
            names = ", ".join(map(repr, missing))
            raise DistributedTimeoutError(f"store {self.url}: nobody set {names} within {limit:g} seconds.")

    def check(self, keys: Sequence[str]) -> bool:
        """Return whether all keys are there."""
        return bool(self._ask("check", store_keys(keys)))

    def compare_set(self, key: str, expected: bytes, value: bytes) -> bytes:
        """Put ``value`` where ``expected`` is there (b"": nothing is); return what is there then."""
        return bytes(self._ask("compare_set", store_key(key), store_value(expected), store_value(value)))

    def delete_key(self, key: str) -> bool:
        """Take the key out; return whether it was there."""
        return bool(self._ask("delete_key", store_key(key)))

    def multi_get(self, keys: Sequence[str]) -> list[bytes | None]:
        """Return several values as they are now, None where there is none: one request."""
        return list(self._ask("multi_get", store_keys(keys)))

    def multi_set(self, keys: Sequence[str], values: Sequence[bytes]) -> None:
        """Put several values: one request."""
        self._ask("multi_set", *store_pairs(keys, values))

    def list_keys(self, prefix: str = "") -> list[str]:
        """Return the keys that begin with ``prefix``, in order."""
        return list(self._ask("list_keys", store_key(prefix)))

    def num_keys(self) -> int:
        """Return how many keys there are."""
        return int(self._ask("num_keys"))

    def append(self, key: str, value: bytes) -> None:
        """Put ``value`` behind what is under ``key``."""
        self._ask("append", store_key(key), store_value(value))

    def queue_push(self, key: str, value: bytes) -> int:
        """Put a value at the end of the queue ``key``; return how many it holds."""
        return int(self._ask("queue_push", store_key(key), store_value(value)))

    def queue_pop(self, key: str, timeout: float | None = None) -> bytes:
        """Wait for the first value of the queue ``key`` and take it. Raises ``DistributedTimeoutError``."""
        limit = self._limit(timeout)
        value = self._ask("queue_pop", store_key(key), limit, wait=limit)
        if value is None:
            raise DistributedTimeoutError(
                f"store {self.url}: queue {key!r} stayed empty for {limit:g} seconds."
            )
        return bytes(value)

    def queue_len(self, key: str) -> int:
        """Return how many values the queue ``key`` holds."""
        return int(self._ask("queue_len", store_key(key)))

    def set_on_loss(self, key: str, value: bytes) -> None:
        """Have the server put ``value`` under ``key`` once the connection of this thread has ended.

        So others hear of a process that ends without a word.
        """
        self._ask("set_on_loss", store_key(key), store_value(value))
        self._local.on_loss = {**getattr(self._local, "on_loss", {}), key: value}

    def close(self, reason: str = "") -> None:
        """Leave; the rank that serves ends the server."""
        self._hang_up()
        if self._server is not None:
            self._server.close()

    def _limit(self, timeout: float | None) -> float:
        return store_seconds(timeout, self._timeout)

    def _ask(self, *request: Any, wait: float = 0.0) -> Any:
        try:
            frame = packed(request)
        except (ValueError, OverflowError, TypeError) as error:
            raise ArgumentError(
                f"store {self.url}: {request[0]}: {error}. Put less under a key, or in one request; stores of"
                f" file:// and redis:// take more."
            ) from None
        try:
            connection = self._connection()
            connection.settimeout(min(max(wait, 0.0) + _GRACE, threading.TIMEOUT_MAX))
            connection.sendall(frame)
            (length,) = LENGTH.unpack(read(connection, LENGTH.size))
            if length > MAX_FRAME:
                raise ConnectionError(f"an answer of {length} bytes is none of a store")
            right, answer = _answer_in(read(connection, length))
        except OSError as error:
            self._hang_up()
            raise DistributedError(
                f"store {self.url}: the rank that serves it is gone, or cannot be reached: {error}."
            ) from error
        except BaseException:  # an interrupt: what comes later on this connection answers this request
            self._hang_up()
            raise
        if not right:
            raise DistributedError(f"store {self.url}: {answer}.")
        return answer

    def _connection(self) -> socket.socket:
        if getattr(self._local, "process", None) != os.getpid():
            self._local.held, self._local.process = _Held(self._connect()), os.getpid()
            for key, value in getattr(self._local, "on_loss", {}).items():
                self._ask("set_on_loss", key, value)
        connection: socket.socket = self._local.held.connection
        return connection

    def _connect(self) -> socket.socket:
        """Connect, waiting for a server that is not there yet, and prove to know the secret."""
        patience = min(self._timeout, _PATIENCE) if self._is_known else self._timeout
        begin, pause, is_told = time.monotonic(), 0.01, False
        end = begin + patience
        while True:
            try:
                connection = socket.create_connection(self._address, timeout=_GRACE)
                break
            except OSError as error:
                if isinstance(error, socket.gaierror) or time.monotonic() + pause > end:
                    raise
            if not is_told and time.monotonic() - begin > _SILENT:
                is_told = True
                warnings.warn(
                    f"store {self.url}: nothing answers there yet; waiting for the rank that serves it, for"
                    f" up to {patience:g} seconds.",
                    RuntimeWarning,
                    stacklevel=2,
                )
            time.sleep(pause)
            pause = min(pause * 2, 1.0)
        try:
            self._prove(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prove(self, connection: socket.socket) -> None:
        """Prove to know the secret, and have the other side prove it."""
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        challenge = os.urandom(CHALLENGE)
        try:
            asked = self._challenge_of(connection)
            connection.sendall(proof(secret(), asked, b"client") + challenge)
            answer = read(connection, DIGEST)
        except TimeoutError:
            raise ConnectionError(
                f"what listens there said nothing for {_GRACE:g} seconds, and so is no store: choose another"
                f" port"
            ) from None
        if not hmac.compare_digest(answer, proof(secret(), challenge, b"server")):
            raise DistributedError(
                f"store {self.url}: TENSORBUS_STORE_SECRET is not the same here and there, or what answers is"
                f" no store."
            )

    def _challenge_of(self, connection: socket.socket) -> bytes:
        try:
            return read(connection, CHALLENGE)
        except ConnectionError as error:
            raise ConnectionError(
                f"{error} before it said a word, so what listens there is no store, or has no room for more"
                f" connections: `ulimit -n` shows and raises it where the store is served"
            ) from error

    def _hang_up(self) -> None:
        if getattr(self._local, "process", None) == os.getpid():
            self._local.held.connection.close()
        self._local.process = None


def _answer_in(body: bytes) -> tuple[bool, Any]:
    """Return what a frame answers. Raises ``ConnectionError`` for what no store says."""
    try:
        right, answer = unpacked(body)
    except (ValueError, TypeError) as error:
        raise ConnectionError(f"its answer is none of a store: {error}") from error
    return right, answer
