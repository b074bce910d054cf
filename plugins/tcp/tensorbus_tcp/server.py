"""The server: a thread with an event loop of its own, in the process of the rank that serves the store."""

from __future__ import annotations

import asyncio
import errno
import hmac
import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from tensorbus.errors import DistributedError

from .descriptors import hold_standard_streams, room_for
from .frames import CHALLENGE, DIGEST, LENGTH, MAX_FRAME, packed, proof, secret, unpacked
from .requests import AT_ONCE, request_of
from .table import Table, Waiter

_FRAME_SECONDS: Final = 60.0
"""How long a client may take to send a frame that it has begun, or to prove that it knows the secret."""
_SWEEP_SECONDS: Final = 5.0
_BACKLOG: Final = 4096


class Server:
    """Serves a table on ``host:port``; port 0 takes a free one. ``port`` says which it is."""

    def __init__(self, host: str, port: int) -> None:
        self.table = Table()
        self.secret = secret()
        self.clients: set[_Client] = set()
        self._process = os.getpid()
        hold_standard_streams()
        self.loop = _new_loop()
        self._sweep: asyncio.TimerHandle | None = None
        self._thread = threading.Thread(target=self._run, name="tensorbus-tcp-store", daemon=True)
        self._thread.start()
        try:
            self._server = self._do(self._begin(host, port))
        except OSError as error:
            self._stop()
            remedy = (
                "Choose another port, or 0 for a free one."
                if error.errno == errno.EADDRINUSE
                else "Name an address of this machine, which serves it, and a port that it may listen on."
            )
            raise DistributedError(
                f"store tcp://{host}:{port} cannot be served: {error}. {remedy}"
            ) from error
        self.port: int = self._server.sockets[0].getsockname()[1]

    async def _begin(self, host: str, port: int) -> asyncio.Server:
        server = await self.loop.create_server(lambda: _Client(self), host, port, backlog=_BACKLOG)
        self._sweep = self.loop.call_later(_SWEEP_SECONDS, self._sweep_out)
        return server

    def close(self) -> None:
        """End it; clients get an error. A forked child, which has no server, ends none."""
        if self.loop.is_closed() or self._process != os.getpid():
            return
        with suppress(Exception):
            self._do(self._end())
        self._stop()

    async def _end(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
        self._server.close()
        for client in list(self.clients):
            client.hang_up()
        await asyncio.sleep(0)

    def _sweep_out(self) -> None:
        """Hang up on clients that keep a frame back, and forget values whose time is over."""
        limit = self.loop.time() - _FRAME_SECONDS
        for client in [client for client in self.clients if client.is_late(limit)]:
            client.hang_up()
        self.table.forget_expired()
        self._sweep = self.loop.call_later(_SWEEP_SECONDS, self._sweep_out)

    def _stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(5)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.close()

    def _do(self, task: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(task, self.loop).result(60)


class _Client(asyncio.Protocol):
    """A connection: frames come in, are answered one after the other, and wait while an answer waits.

    Callbacks of the loop, not coroutines: a task and a stream for each of ten thousand cost far more.
    """

    __slots__ = (
        "_begun", "_buffer", "_challenge", "_full", "_on_loss", "_paused", "_server", "_transport", "_waiter",
    )  # fmt: skip

    _transport: asyncio.Transport

    def __init__(self, server: Server) -> None:
        self._server = server
        self._buffer: bytes | bytearray = b""
        self._begun: float | None = server.loop.time()
        """When what is in the buffer began to come; None: nothing is expected."""
        self._challenge: bytes | None = os.urandom(CHALLENGE)
        """What the client has to prove the secret for; None: it has."""
        self._waiter: Waiter | None = None
        self._on_loss: dict[str, bytes] | None = None
        """What to set once the connection is lost."""
        self._full = self._paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for a proof of the secret."""
        self._transport = transport  # type: ignore[assignment]
        self._server.clients.add(self)
        room_for(len(self._server.clients))
        self._transport.write(self._challenge or b"")

    def connection_lost(self, error: Exception | None) -> None:
        """Let nobody wait who is gone: a queue's next value is another's."""
        self._server.clients.discard(self)
        self._stop_waiting()
        for key, value in (self._on_loss or {}).items():
            self._server.table.set(key, value)

    def pause_writing(self) -> None:
        """Answer nothing more until the client has read what was answered."""
        self._full = True

    def resume_writing(self) -> None:
        """Go on."""
        self._full = False
        self._go_on()

    def data_received(self, data: bytes) -> None:
        """Take what the client has sent, and answer the frames that are whole."""
        if not self._buffer:
            self._buffer = data
        elif isinstance(self._buffer, bytearray):
            self._buffer += data
        else:
            self._buffer = bytearray(self._buffer) + data
        if self._waiter is not None or self._full:
            if len(self._buffer) > MAX_FRAME and not self._paused:
                self._paused = True
                self._transport.pause_reading()  # until the answer that waits is there
            return
        if self._challenge is None or self._admit():
            self._answer_frames()

    def is_late(self, limit: float) -> bool:
        """Return whether it keeps something back since before ``limit``."""
        return self._begun is not None and self._begun < limit

    def hang_up(self) -> None:
        """End the connection."""
        self._stop_waiting()
        self._transport.close()

    def _admit(self) -> bool:
        """Return whether the client knows the secret; prove that this server does."""
        if len(self._buffer) < DIGEST + CHALLENGE:
            return False
        assert self._challenge is not None
        digest = bytes(self._buffer[:DIGEST])
        theirs = bytes(self._buffer[DIGEST : DIGEST + CHALLENGE])
        if not hmac.compare_digest(digest, proof(self._server.secret, self._challenge, b"client")):
            self._transport.write(bytes(DIGEST))
            self.hang_up()
            return False
        self._challenge, self._buffer = None, self._buffer[DIGEST + CHALLENGE :]
        self._transport.write(proof(self._server.secret, theirs, b"server"))
        return True

    def _answer_frames(self) -> None:
        buffer, at = self._buffer, 0
        while self._waiter is None and not self._full and len(buffer) >= at + LENGTH.size:
            (length,) = LENGTH.unpack_from(buffer, at)
            if length > MAX_FRAME:
                self._write([False, f"a request of {length} bytes is more than {MAX_FRAME}"])
                self.hang_up()
                return
            end = at + LENGTH.size + length
            if len(buffer) < end:
                break
            self._answer(bytes(buffer[at + LENGTH.size : end]))
            at = end
        self._buffer = buffer[at:] if at else buffer
        if self._waiter is not None or self._full or not self._buffer:
            self._begun = None
        elif at or self._begun is None:
            self._begun = self._server.loop.time()

    def _answer(self, body: bytes) -> None:
        table = self._server.table
        try:
            operation, arguments = request_of(unpacked(body))
            if operation in AT_ONCE:
                self._write([True, getattr(table, operation)(*arguments)])
            elif operation == "set_on_loss":
                key, value = arguments
                self._on_loss = {**(self._on_loss or {}), key: value}
                self._write([True, None])
            elif operation == "get":
                key, timeout = arguments
                self._wait([key], lambda: table.look(key), timeout)
            elif operation == "wait":
                keys, timeout = arguments
                self._wait(
                    keys, lambda: [] if table.check(keys) else None, timeout, lambda: table.missing(keys)
                )
            else:
                key, timeout = arguments
                self._wait([f"queue {key}"], lambda: table.queue_take(key), timeout)
        except DistributedError as error:
            self._write([False, str(error).removesuffix(".")])
        except Exception as error:  # told to the client
            self._write([False, f"{type(error).__name__}: {error}"])

    def _wait(
        self,
        names: list[str],
        ready: Callable[[], Any],
        timeout: float,
        late: Callable[[], Any] = lambda: None,
    ) -> None:
        """Answer what ``ready`` returns once that is not None; what ``late`` does after ``timeout``."""
        result = ready()
        if result is None and timeout > 0:
            timer = self._server.loop.call_later(timeout, self._give_up, late)
            self._waiter = self._server.table.wait(names, ready, self._finish, timer)
        else:
            self._write([True, late() if result is None else result])

    def _finish(self, result: Any) -> None:
        """Answer a request that has waited, and go on with those behind it."""
        self._stop_waiting()
        self._write([True, result])
        if self._buffer:
            self._server.loop.call_soon(self._go_on)  # not here: it may wake others, and they still others

    def _go_on(self) -> None:
        if self._waiter is None and not self._full and not self._transport.is_closing():
            self._answer_frames()
            if self._paused and self._waiter is None:
                self._paused = False
                self._transport.resume_reading()

    def _give_up(self, late: Callable[[], Any]) -> None:
        self._finish(late())

    def _stop_waiting(self) -> None:
        if self._waiter is not None:
            self._server.table.leave(self._waiter)
            self._waiter = None

    def _write(self, answer: list[Any]) -> None:
        try:
            frame = packed(answer)
        except Exception as error:  # a value that no frame holds: of several keys, too long together
            frame = packed([False, f"the answer is too long: {error}. Ask for fewer keys at a time"])
        self._transport.write(frame)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # Windows has none
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
