"""What the store of processes has beyond the contract of all: queues, expiry, a secret, bounds, faults."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import threading
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


def test_queues_are_first_in_first_out_for_all_clients(store: Any) -> None:
    other = client(store)
    assert [store.queue_push("q", b"1"), other.queue_push("q", b"2")] == [1, 2]
    taken: list[bytes] = []
    threads = [threading.Thread(target=lambda: taken.append(other.queue_pop("q", 30))) for _ in range(3)]
    for thread in threads:
        thread.start()
    store.queue_push("q", b"3")
    for thread in threads:
        thread.join()
    assert sorted(taken) == [b"1", b"2", b"3"]
    with pytest.raises(dist.DistributedTimeoutError, match=r"queue 'q' stayed empty for 0\.01 seconds"):
        store.queue_pop("q", 0.01)


def test_several_keys_take_one_request(store: Any) -> None:
    store.multi_set(["a/1", "a/2", "b"], [b"1", b"2", b"3"])
    assert store.multi_get(["b", "none", "a/1"]) == [b"3", None, b"1"]
    assert store.list_keys("a/") == ["a/1", "a/2"]
    with pytest.raises(dist.DistributedError.__mro__[1], match="2 keys and 1 values"):
        store.multi_set(["a", "b"], [b""])


def test_a_value_for_a_time_is_gone_after_it(store: Any) -> None:
    store.set("long", b"x", ttl=1000)
    store.set("short", b"x", ttl=0)
    assert store.check(["long"])
    assert not store.check(["short"])
    assert store.list_keys() == ["long"]


def test_what_is_no_number_is_not_added_to(store: Any) -> None:
    store.set("text", b"x")
    with pytest.raises(dist.DistributedError, match="holds b'x', which is no number"):
        store.add("text", 1)
    assert store.get("text") == b"x"


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
