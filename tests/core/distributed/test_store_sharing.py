"""Stores under many processes: races, holders that are killed, servers that die, programs in turn."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tensorbus import distributed as dist
from tensorbus.distributed.stores import file_store
from tensorbus.errors import ArgumentError, DistributedError, DistributedTimeoutError

from store_kinds import free_port, opened, redis_server

SHARED = ("file", "tcp", "redis")
PROCESSES, ROUNDS = 6, 15

RACE = """
import os, sys
from tensorbus import distributed as dist
store = dist.open_store(sys.argv[1], timeout=60)
me, rounds, queues = sys.argv[2].encode(), int(sys.argv[3]), sys.argv[4]
store.add("came", 1)
store.get("go", 60)
for _ in range(rounds):
    while store.compare_set("lock", b"", me) != me:
        pass
    n = int(store.get("guarded"))  # one at a time, or sums are lost
    store.set("guarded", str(n + 1).encode())
    assert store.compare_set("lock", me, b"") == b""
    store.add("sum", 3)
    if queues:
        store.queue_push("q", me)
if queues:
    for _ in range(rounds):
        store.add("taken " + store.queue_pop("q", 60).decode(), 1)
"""


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=() if k == "tcp" else pytest.mark.full) for k in SHARED]
)
def test_processes_lose_nothing_in_a_race(kind: str, tmp_path: Path) -> None:
    with opened(kind, tmp_path) as (store, url):
        store.set("guarded", b"0")
        words = [sys.executable, "-c", RACE, url]
        queues = "yes" if hasattr(store, "queue_push") else ""
        ranks = [
            subprocess.Popen([*words, str(rank), str(ROUNDS), queues], stderr=subprocess.PIPE)
            for rank in range(PROCESSES)
        ]
        while store.add("came", 0) < PROCESSES:
            assert all(rank.poll() is None for rank in ranks)
        store.set("go", b"")
        complaints = [rank.communicate(timeout=300)[1] for rank in ranks]
        assert [rank.returncode for rank in ranks] == [0] * PROCESSES, complaints
        assert store.get("guarded") == str(PROCESSES * ROUNDS).encode()
        assert store.add("sum", 0) == 3 * PROCESSES * ROUNDS
        if queues:
            assert [store.add(f"taken {rank}", 0) for rank in range(PROCESSES)] == [ROUNDS] * PROCESSES
            with pytest.raises(DistributedTimeoutError):
                store.queue_pop("q", 0)


HOLDS = """
import os, sys, time
from tensorbus import distributed as dist
store = dist.open_store(sys.argv[1])
def hold(db):
    db.execute("UPDATE pairs SET value = 'half'")
    db.execute("PRAGMA cache_spill = 1")
    open(sys.argv[2], "w").close()
    os.kill(os.getpid(), 9) if sys.argv[3] == "dies" else time.sleep(600)
store._do(hold)
"""


def test_a_holder_of_the_file_that_is_killed_leaves_it_as_it_was(tmp_path: Path) -> None:
    url, mark = (tmp_path / "ranks").as_uri(), tmp_path / "mark"
    store = dist.open_store(url)
    store.set("k", b"whole")
    holder = subprocess.run([sys.executable, "-c", HOLDS, url, str(mark), "dies"], timeout=60)
    assert (holder.returncode, mark.exists()) == (-signal.SIGKILL, True)
    assert store.get("k", 0) == b"whole"
    assert store.add("n", 1) == 1


def test_a_holder_of_the_file_that_hangs_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url, mark = (tmp_path / "ranks").as_uri(), tmp_path / "mark"
    monkeypatch.setattr(file_store, "_BUSY_SECONDS", 0.05)
    store = dist.open_store(url)
    holder = subprocess.Popen([sys.executable, "-c", HOLDS, url, str(mark), "hangs"])
    try:
        while not mark.exists():
            assert holder.poll() is None
        with pytest.raises(DistributedError, match="database is locked"):
            store.set("k", b"")
    finally:
        holder.kill()
        holder.wait()
    store.set("k", b"")  # the lock has gone with its holder


LIVES = """
import sys, time
from tensorbus import distributed as dist
store = dist.open_store(sys.argv[1])
store.set_on_loss("lost", b"1")
part = dist.PrefixStore("part/", store)
part.set_on_loss("lost", b"2")
print("lives", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("kind", SHARED)
def test_a_process_that_is_killed_leaves_what_it_said_before(kind: str, tmp_path: Path) -> None:
    with opened(kind, tmp_path) as (store, url):
        rank = subprocess.Popen([sys.executable, "-c", LIVES, url], stdout=subprocess.PIPE)
        assert rank.stdout is not None
        try:
            assert rank.stdout.readline() == b"lives\n"
            assert not store.check(["lost"])
            assert not store.check(["part/lost"])
            store.set_on_loss("mine", b"3")
        finally:
            rank.kill()
            rank.communicate()
        store.wait(["lost"], 10)
        assert [store.get(key, 10) for key in ("lost", "part/lost")] == [b"1", b"2"]
        assert not store.check(["mine", "lost"])


SERVES = """
import sys, time
from tensorbus import distributed as dist
store = dist.open_store(sys.argv[1], serve=True)
print("serves", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("kind", ["tcp", "redis"])
def test_a_server_that_is_killed_is_named_and_used_again_when_it_is_back(kind: str, tmp_path: Path) -> None:
    url = f"tcp://127.0.0.1:{free_port()}"

    def start(port: int | None = None) -> tuple[Any, str]:
        if kind == "redis":
            return redis_server(tmp_path, port)
        server = subprocess.Popen([sys.executable, "-c", SERVES, url], stdout=subprocess.PIPE)
        assert server.stdout is not None
        assert server.stdout.readline() == b"serves\n"
        server.stdout.close()
        return server, url

    server, where = start()
    try:
        store: Any = dist.open_store(where, timeout=30)
        store.set("k", b"1")
        server.kill()
        server.wait()
        with pytest.raises(DistributedError, match=r"gone, or cannot be reached") as failure:
            store.get("k", 0)
        assert "a%20secret" not in str(failure.value)
        server, _ = start(int(where.rpartition(":")[2].split("/")[0]))
        dist.open_store(where, timeout=30).close()  # it is there
        assert not store.check(["k"])
        assert store.add("n", 1) == 1
        store.close()
    finally:
        server.kill()
        server.wait()


RANK = """
import sys, time
import tensorbus as tb
from tensorbus import distributed as dist
rank, url = int(sys.argv[1]), sys.argv[2]
for turn in range(2):
    dist.init(rank=rank, world_size=2, store=url, timeout=60)
    x = tb.ones(2, device="cpu") * (rank + 1)
    for _ in range(2):
        time.sleep(rank * turn * 1.5)  # longer than what makes the other ask where this one is
        dist.all_reduce(x)
    print(x.tolist())
    dist.shutdown()
"""


def program(url: str) -> list[tuple[str, str]]:
    """Run two ranks that leave and meet again; return what each has printed and complained of."""
    environment = {**os.environ, "TENSORBUS_STORE_SECRET": "s"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(rank), url], env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for rank in range(2)
    ]  # fmt: skip
    return [rank.communicate(timeout=120) for rank in ranks]


@pytest.mark.parametrize("kind", ["file", pytest.param("tcp", marks=pytest.mark.full)])
def test_ranks_meet_again_at_one_store_and_other_programs_do_not(kind: str, tmp_path: Path) -> None:
    url = (tmp_path / "ranks").as_uri() if kind == "file" else f"tcp://127.0.0.1:{free_port()}"
    assert program(url) == [("[6.0, 6.0]\n" * 2, "")] * 2
    after = program(url)
    if kind == "tcp":  # its server has ended with its first rank
        assert after == [("[6.0, 6.0]\n" * 2, "")] * 2
        return
    for rank, (printed, complaints) in enumerate(after):
        assert printed == ""
        assert f"rank {rank} of 2 has joined at this store already: an earlier program" in complaints


def test_processes_do_not_meet_in_the_memory_of_one() -> None:
    with pytest.raises(ArgumentError, match=r"which no other process sees.*run_ranks\(function, 2\)"):
        dist.init(rank=0, world_size=2, store="memory://")
    assert not dist.is_initialized()


def test_a_redis_server_that_does_not_answer_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library would ask it again and again, each time for as long as a request may take."""
    store = pytest.importorskip("tensorbus_redis.store", reason="tensorbus-redis is not installed")
    monkeypatch.setattr(store, "_QUEUE_WAIT", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(DistributedError, match=r"no Redis server answered within 0\.1 seconds: Timeout"):
            dist.open_store(url, timeout=0.1)
        silent.setblocking(False)
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):
            silent.accept()
