"""What the store of processes has beyond the contract of all: queues, expiry, a secret, bounds, faults."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tensorbus import distributed as dist
from tensorbus_tcp import client as client_module
from tensorbus_tcp.frames import CHALLENGE, DIGEST, LENGTH, packed, proof, read, unpacked

from store_kinds import free_port


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


def test_a_rank_that_waits_for_the_server_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_SILENT", 0.05)
    with (
        pytest.warns(RuntimeWarning, match="nothing answers there yet; waiting for the rank that serves it"),
        pytest.raises(dist.DistributedError, match="cannot be reached"),
    ):
        dist.open_store(f"tcp://127.0.0.1:{free_port()}", timeout=0.3)


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


def connection(store: Any) -> socket.socket:
    """Return a connection whose frames are the test's."""
    host, port = store.url.removeprefix("tcp://").split(":")
    raw = socket.create_connection((host, int(port)))
    secret, challenge = os.environ.get("TENSORBUS_STORE_SECRET", "").encode(), bytes(CHALLENGE)
    raw.sendall(proof(secret, read(raw, CHALLENGE), b"client") + challenge)
    assert read(raw, DIGEST) == proof(secret, challenge, b"server")
    return raw


def answers(raw: socket.socket, count: int) -> list[Any]:
    return [unpacked(read(raw, *LENGTH.unpack(read(raw, LENGTH.size)))) for _ in range(count)]


NONSENSE = {
    "no message": b"", "no msgpack": b"\xc1", "deep": b"\x91" * 5000, "no list": packed(5)[4:],
    "nothing in it": packed([])[4:], "no such operation": packed(["__init__"])[4:],
    "no name of one": packed([["set"], 1])[4:], "too few arguments": packed(["set"])[4:],
    "no limit": packed(["get", "k", None])[4:], "no keys": packed(["wait", 5, 1.0])[4:],
    "no number": packed(["add", "n", "one"])[4:], "no text as key": packed(["set", 5, b"", None])[4:],
    "no bytes as value": packed(["set", "k", "v", None])[4:], "a map": packed({"set": 1})[4:],
    "a text for keys": packed(["check", "ab"])[4:], "no bytes": packed(["multi_set", ["a"], [1]])[4:],
    "an endless list": b"\xdd\xff\xff\xff\xff", "no UTF-8": b"\xd9\x02\xff\xfe",
    "a queue of numbers": packed(["queue_push", "q", 5])[4:],
    "a word as limit": packed(["get", "k", "x"])[4:],
}  # fmt: skip


def test_nonsense_is_answered_by_an_error_and_requests_go_on(store: Any) -> None:
    with connection(store) as raw:
        for name, body in NONSENSE.items():
            raw.sendall(LENGTH.pack(len(body)) + body)
            ((right, text),) = answers(raw, 1)
            assert (right, "Error: " in text) == (False, True), name
        raw.sendall(packed(["add", "n", 1]))
        assert answers(raw, 1) == [[True, 1]]
    assert store.list_keys() == ["n"]


def test_requests_behind_one_that_waits_are_answered_in_order(store: Any) -> None:
    with connection(store) as raw:
        frames = b"".join(
            map(packed, (["get", "a", 60.0], ["add", "n", 1], ["wait", ["b", "c"], 60.0], ["add", "n", 1]))
        )
        for part in (frames[:50], frames[50:]):
            raw.sendall(part)
        store.set("b", b"")
        store.set("a", b"A")
        store.set("c", b"")
        assert answers(raw, 4) == [[True, b"A"], [True, 1], [True, []], [True, 2]]


def test_who_dies_waiting_for_a_queue_takes_no_value(store: Any) -> None:
    with connection(store) as dead, connection(store) as alive:
        for raw in (dead, alive):
            raw.sendall(packed(["queue_pop", "q", 60.0]))
        dead.shutdown(socket.SHUT_RDWR)
        assert dead.recv(1) == b""
        while len(store._server.clients) > 2:  # this store's own, and the one that lives
            store.add("n", 1)
        store.queue_push("q", b"1")
        assert answers(alive, 1) == [[True, b"1"]]


def test_who_reads_no_answers_is_answered_no_more(store: Any) -> None:
    store.set("large", bytes(8 << 20))
    with connection(store) as raw:
        raw.sendall(packed(["get", "large", 1.0]) * 100)
        while not (full := [client for client in store._server.clients if client._full]):
            store.add("n", 1)
        assert full[0]._transport.get_write_buffer_size() <= 2 * (8 << 20)


def test_a_frame_that_is_too_long_is_refused_before_it_is_sent(store: Any) -> None:
    with pytest.raises(dist.DistributedError.__mro__[1], match="more than the 67108864"):
        store.set("k", bytes(70 << 20))
    assert not store.check(["k"])


def test_a_server_that_is_gone_is_named(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    other = client(store)
    url = store.url
    store.close()
    with pytest.raises(dist.DistributedError, match=f"{url}: the rank that serves it is gone"):
        other.check(["a"])
    monkeypatch.setattr("tensorbus_tcp.client._PATIENCE", 0.05)
    with pytest.raises(dist.DistributedError, match=f"{url}: the rank that serves it is gone"):
        other.check(["a"])  # and nobody waits long for it to come back
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


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(200), b"", None])
def test_what_is_no_store_is_named(answer: bytes | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorbus_tcp.client._GRACE", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        held = []

        def serve() -> None:
            connection, _ = listener.accept()
            if answer is not None:
                with connection:
                    connection.sendall(answer)
            held.append(connection)  # one that says nothing stays open

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(dist.DistributedError, match=r"is no store"):
            dist.open_store(f"tcp://127.0.0.1:{listener.getsockname()[1]}", timeout=5)
        thread.join()
        held[0].close()


def test_a_port_that_only_the_server_knows_is_refused() -> None:
    with pytest.raises(
        dist.DistributedError.__mro__[1], match="any free port, which only who serves it knows"
    ):
        dist.open_store("tcp://127.0.0.1:0")


def test_an_address_of_the_newer_protocol_has_brackets() -> None:
    if not socket.has_ipv6:
        pytest.skip("this system has no IPv6")
    served: Any = dist.open_store("tcp://[::1]:0", serve=True, timeout=5)
    try:
        assert served.url.startswith("tcp://[::1]:")
        client = dist.open_store(served.url, timeout=5)
        client.set("key", b"value")
        assert served.get("key", 5) == b"value"
    finally:
        served.close()


def test_who_leaves_without_a_word_leaves_what_it_said_before(store: Any) -> None:
    """So does one that leaves behind another connection, by which it had said so again."""
    client = dist.open_store(store.url, timeout=5)
    client.set_on_loss("lost", b"1")
    part = dist.PrefixStore("part/", client)
    part.set_on_loss("lost", b"2")
    client._hang_up()
    store.wait(["lost", "part/lost"], 5)
    assert store.multi_get(["lost", "part/lost"]) == [b"1", b"2"]
    for key in ("lost", "part/lost"):
        store.delete_key(key)
    client.check([])
    client._hang_up()
    store.wait(["lost", "part/lost"], 5)
    assert not hasattr(dist.PrefixStore("part/", dist.MemoryStore()), "set_on_loss")


def test_an_address_of_another_machine_is_not_served() -> None:
    with pytest.raises(dist.DistributedError, match=r"cannot be served: .* Name an address of this machine"):
        dist.open_store("tcp://192.0.2.1:0", serve=True)  # one that documents use, and no machine has


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_uses_a_store_and_ends_no_server(store: Any) -> None:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            store.set("child", b"1")
            store.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.get("child", 0) == b"1"


SERVES = """
import resource, sys
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (128, most))
from tensorbus import distributed as dist
store = dist.open_store("tcp://127.0.0.1:0", serve=True)
print(store.url, flush=True)
sys.stdin.read()
"""


def test_a_server_takes_more_clients_than_programs_are_lent_descriptors() -> None:
    pytest.importorskip("resource", reason="this system has no such limit")
    program = subprocess.Popen(
        [sys.executable, "-c", SERVES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    url = program.stdout.readline().strip()
    stores: list[Any] = []
    try:
        for number in range(300):
            stores.append(dist.open_store(url, timeout=30))
            assert stores[-1].add("n", 1) == number + 1
    finally:
        for each in stores:
            each.close()
        program.communicate()
    assert program.returncode == 0
