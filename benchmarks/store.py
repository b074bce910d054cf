"""Ten thousand clients of one ``tcp://`` store on this machine: they join, and pass three barriers.

After the first barrier one client in twenty dies without a word; the others have to pass the rest. Clients
are connections of their own in a few processes, which speak the store's frames. Times are those of the clock,
from the start of these processes to the last answer, beside the processor time of the server and of theirs.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import resource
import sys
import time
from itertools import pairwise
from typing import Any

import uvloop
from rich.progress import Progress
from tensorbus import distributed as dist
from tensorbus_tcp.frames import CHALLENGE, DIGEST, LENGTH, packed, proof, secret, unpacked

CLIENTS, PROCESSES, BARRIERS, DYING, LIMIT = 10_000, 4, 3, 20, 10.0
AT_ONCE = 256
"""Connections that a process opens at a time."""
PATIENCE = 120.0


def _allow_connections() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class _Client(asyncio.Protocol):
    """A connection that asks one thing after the other; no stream, which would cost more than the store."""

    __slots__ = ("_answer", "_buffer", "_need", "transport")

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._buffer, self._need = b"", CHALLENGE
        self._answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the connection."""
        self.transport = transport  # type: ignore[assignment]

    def connection_lost(self, error: Exception | None) -> None:
        """Let who waits know."""
        if not self._answer.done():
            self._answer.set_exception(error or ConnectionError("the store hung up"))

    def data_received(self, data: bytes) -> None:
        """Hand over what is whole: so many bytes of the handshake, afterwards a frame."""
        self._buffer += data
        need = self._need
        if not need and len(self._buffer) >= LENGTH.size:
            need = LENGTH.size + LENGTH.unpack_from(self._buffer)[0]
        if need and len(self._buffer) >= need and not self._answer.done():
            self._answer.set_result(self._buffer[:need])
            self._buffer = self._buffer[need:]

    async def handshake(self) -> None:
        """Prove to know the secret, and let the store prove it."""
        challenge = os.urandom(CHALLENGE)
        digest = proof(secret(), await self._answer, b"client")
        if await self._exchange(digest + challenge, DIGEST) != proof(secret(), challenge, b"server"):
            raise RuntimeError("what answers does not know the secret")

    async def ask(self, *request: Any) -> Any:
        """Return the answer to a request."""
        right, answer = unpacked((await self._exchange(packed(request), 0))[LENGTH.size :])
        if not right:
            raise RuntimeError(str(answer))
        return answer

    async def _exchange(self, data: bytes, need: int) -> bytes:
        self._answer, self._need = asyncio.get_running_loop().create_future(), need
        self.transport.write(data)
        return await self._answer


async def _join(host: str, port: int) -> _Client:
    _, client = await asyncio.get_running_loop().create_connection(_Client, host, port)
    await client.handshake()
    return client


async def _take_part(client: _Client, number: int, alive: list[int]) -> int:
    """Pass the barriers, or die after the first; return how many were passed."""
    for barrier in range(BARRIERS):
        if await client.ask("add", f"came {barrier}", 1) == alive[barrier]:
            await client.ask("set", f"go {barrier}", b"1", None)
        if await client.ask("get", f"go {barrier}", PATIENCE) is None:
            return barrier
        if barrier == 0 and number % DYING == 0:
            client.transport.abort()
            return 1
    return BARRIERS


async def _clients(host: str, port: int, numbers: range, alive: list[int]) -> list[int]:
    places = asyncio.Semaphore(AT_ONCE)

    async def live(number: int) -> int:
        try:
            async with places:
                client = await _join(host, port)
            passed = await _take_part(client, number, alive)
            client.transport.close()
        except (OSError, EOFError, RuntimeError) as error:
            print(f"client {number}: {error!r}", file=sys.stderr)
            return -1
        return passed

    return await asyncio.gather(*map(live, numbers))


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _process(url: str, numbers: range, alive: list[int], answers: Any) -> None:
    _allow_connections()
    host, port = url.removeprefix("tcp://").split(":")
    answers.put(uvloop.run(_clients(host, int(port), numbers, alive)))


def _run_processes(work: Any, place: Any, clients: int, processes: int) -> dict[str, Any]:
    """Let processes bring the clients; return seconds, and how many that live missed a barrier."""
    dying = len(range(0, clients, DYING))
    alive = [clients, *[clients - dying] * (BARRIERS - 1)]
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    starts = [clients * k // processes for k in range(processes + 1)]
    workers = [
        context.Process(target=work, args=(place, range(a, b), alive, answers)) for a, b in pairwise(starts)
    ]
    start, cpu, others = time.perf_counter(), time.process_time(), _cpu_of_children()
    for worker in workers:
        worker.start()
    passed = [n for _ in workers for n in answers.get(timeout=3 * PATIENCE)]
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    for worker in workers:
        worker.join()
    return {
        "clients": clients, "processes": processes, "die": dying, "barriers": BARRIERS, "seconds": seconds,
        "cpu_seconds_of_server": cpu, "cpu_seconds_of_clients": _cpu_of_children() - others,
        "lost": clients - dying - passed.count(BARRIERS), "load": os.getloadavg()[0],
    }  # fmt: skip


def measure(clients: int, processes: int = PROCESSES) -> dict[str, Any]:
    """Let so many clients of ours meet."""
    _allow_connections()
    store: Any = dist.open_store("tcp://127.0.0.1:0", serve=True)
    row = _run_processes(_process, store.url, clients, processes)
    store.close()
    return row | {"limit_seconds": LIMIT if clients == CLIENTS else None}


def run(progress: Progress) -> list[dict[str, Any]]:
    """Measure a few numbers of clients."""
    sizes = (100, 1000, CLIENTS)
    task = progress.add_task("clients of a store", total=sum(sizes))
    rows = []
    for size in sizes:
        rows.append(measure(size))
        progress.advance(task, size)
    return rows


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]) if len(sys.argv) > 1 else CLIENTS)))
