"""What the store of processes has beyond the contract of all: queues, expiry, a secret, bounds, faults."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tensorbus import distributed as dist


@pytest.fixture
def store() -> Iterator[Any]:
    store = dist.open_store("tcp://127.0.0.1:0", serve=True, timeout=30)
    yield store
    store.close()


def client(store: Any) -> Any:
    return dist.open_store(store.url, timeout=30)


def test_who_does_not_know_the_secret_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORBUS_STORE_SECRET", "mine")
    store: Any = dist.open_store("tcp://127.0.0.1:0", serve=True, timeout=30)
    try:
        monkeypatch.setenv("TENSORBUS_STORE_SECRET", "another")
        with pytest.raises(dist.DistributedError, match="TENSORBUS_STORE_SECRET is not the same"):
            client(store)
        monkeypatch.setenv("TENSORBUS_STORE_SECRET", "mine")
        assert client(store).add("n", 1) == 1
    finally:
        store.close()


NOISE = {
    "nothing": b"", "a few bytes": b"GET / HTTP/1.1\r\n\r\n", "a wrong proof": bytes(64),
    "a long frame": None,
}  # fmt: skip


@pytest.mark.parametrize("name", NOISE)
def test_noise_harms_nobody_else(store: Any, name: str) -> None:
    host, port = store.url.removeprefix("tcp://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as noise:
        data = NOISE[name]
        noise.sendall(bytes(64) + struct.pack(">I", 1 << 31) if data is None else data)
        assert store.add("n", 1) == 1
    assert client(store).add("n", 1) == 2


def test_a_frame_that_is_too_long_is_refused_before_it_is_sent(store: Any) -> None:
    with pytest.raises(dist.DistributedError.__mro__[1], match="more than the 67108864"):
        store.set("k", bytes(70 << 20))
    assert not store.check(["k"])


def test_a_server_that_is_gone_is_named(store: Any) -> None:
    other = client(store)
    url = store.url
    store.close()
    with pytest.raises(dist.DistributedError, match=f"{url}: the rank that serves it is gone"):
        other.check(["a"])
    with pytest.raises(dist.DistributedError, match="cannot be reached"):
        dist.open_store(url, timeout=0.05)


def test_a_connection_is_closed_with_its_store_past_interrupts(store: Any) -> None:
    others = [client(store)]
    connection = others[0]._local.held.connection
    calls: list[str] = []
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, _: calls.append(frame.f_code.co_name) if event == "call" else None)
    others.clear()
    sys.setprofile(before)
    assert connection.fileno() == -1
    assert calls == []
    assert store.add("n", 1) == 1


def test_a_port_that_is_taken_is_named(store: Any) -> None:
    with pytest.raises(dist.DistributedError, match=r"cannot be served.*Choose another port"):
        dist.open_store(store.url, serve=True)


@pytest.mark.parametrize("url", ["tcp://", "tcp://host", "tcp://host:x"])
def test_a_url_without_host_or_port_is_refused(url: str) -> None:
    with pytest.raises(dist.DistributedError.__mro__[1], match="tcp://"):
        dist.open_store(url)


def test_processes_meet_and_a_killed_one_harms_nobody(store: Any) -> None:
    script = (
        "import os, sys; from tensorbus import distributed as dist;"
        f"s = dist.open_store({store.url!r}, timeout=60); s.add('came', 1); s.get('go', 60);"
        "os._exit(9) if sys.argv[1] == '0' else s.add('went', 1)"
    )
    ranks = [subprocess.Popen([sys.executable, "-c", script, str(rank)]) for rank in range(3)]
    while store.add("came", 0) < 3:
        pass
    store.set("go", b"")
    assert sorted(rank.wait(60) for rank in ranks) == [0, 0, 9]
    assert store.add("went", 0) == 2
