"""The server: a thread with an event loop of its own, in the process of the rank that serves the store."""

from __future__ import annotations

import asyncio
import hmac
import os
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final

from tensorbus.errors import DistributedError

from .frames import CHALLENGE, DIGEST, LENGTH, MAX_FRAME, packed, proof, secret, unpacked
from .table import Table

_FRAME_SECONDS: Final = 60.0
"""How long a client may take to send a frame that it has begun."""
_AT_ONCE: Final = frozenset(
    "set add check compare_set delete_key multi_get multi_set list_keys queue_push".split()
)
_BACKLOG: Final = 4096


class Server:
    """Serves a table on ``host:port``; port 0 takes a free one. ``port`` says which it is."""

    def __init__(self, host: str, port: int) -> None:
        self._table = Table()
        self._secret = secret()
        self._loop = _new_loop()
        self._clients: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._run, name="tensorbus-tcp-store", daemon=True)
        self._thread.start()
        try:
            self._server = self._do(asyncio.start_server(self._serve, host, port, backlog=_BACKLOG))
        except OSError as error:
            self._stop()
            raise DistributedError(
                f"store tcp://{host}:{port} cannot be served: {error}. Choose another port, or 0 for a free"
                f" one."
            ) from error
        self.port: int = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """End it; clients get an error."""
        if self._loop.is_closed():
            return
        with suppress(Exception):
            self._do(self._end())
        self._stop()

    async def _end(self) -> None:
        self._server.close()
        for task in list(self._clients):
            task.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    def _do(self, task: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(task, self._loop).result(60)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            if await self._admit(reader, writer):
                await self._answer_all(reader, writer)
        except (OSError, EOFError, TimeoutError, asyncio.CancelledError):
            pass  # the client is gone, or has been given up
        finally:
            self._clients.discard(task)
            writer.close()

    async def _admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Return whether the client knows the secret; prove that this server does."""
        challenge = os.urandom(CHALLENGE)
        writer.write(challenge)
        answer = await asyncio.wait_for(reader.readexactly(DIGEST + CHALLENGE), _FRAME_SECONDS)
        if not hmac.compare_digest(answer[:DIGEST], proof(self._secret, challenge, b"client")):
            writer.write(bytes(DIGEST))
            await writer.drain()
            return False
        writer.write(proof(self._secret, answer[DIGEST:], b"server"))
        return True

    async def _answer_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
            if length > MAX_FRAME:
                writer.write(packed([False, f"a request of {length} bytes is more than {MAX_FRAME}"]))
                await writer.drain()
                return
            async with asyncio.timeout(_FRAME_SECONDS):  # wait_for would make a task
                body = await reader.readexactly(length)
            try:
                operation, *arguments = unpacked(body)
                answer = [True, await self._answer(operation, arguments)]
            except asyncio.CancelledError:
                raise
            except Exception as error:  # told to the client
                answer = [False, f"{type(error).__name__}: {error}"]
            writer.write(packed(answer))
            await writer.drain()

    async def _answer(self, operation: str, arguments: list[Any]) -> Any:
        table = self._table
        if operation in _AT_ONCE:
            return getattr(table, operation)(*arguments)
        if operation == "get":
            key, timeout = arguments
            return await table.until([key], lambda: table.look(key), timeout)
        if operation == "wait":
            keys, timeout = arguments
            await table.until(keys, lambda: True if table.check(keys) else None, timeout)
            return [key for key in keys if table.look(key) is None]
        if operation == "queue_pop":
            key, timeout = arguments
            return await table.until([f"queue {key}"], lambda: table.queue_take(key), timeout)
        raise ValueError(f"no operation is called {operation!r}")


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # Windows has none
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
