"""Stores keep one contract, whatever they are made of."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tensorbus import distributed as dist

from store_kinds import KINDS, opened, redis_server


@pytest.fixture(params=[*KINDS, "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    with opened(request.param, tmp_path) as (store, _):
        yield store


@pytest.fixture(params=["tcp", "redis", "prefix", "memory"])
def server_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    part = request.param == "prefix"
    with opened("tcp" if part else request.param, tmp_path) as (store, _):
        yield dist.PrefixStore("run7/", store) if part else store


def test_what_is_set_is_there(store: Any) -> None:
    assert not store.check(["a"])
    store.set("a", b"1\x00")
    assert store.get("a") == b"1\x00"
    store.set("a", b"")
    assert store.get("a") == b""
    assert store.check(["a"])
    assert not store.check(["a", "b"])
    assert store.delete_key("a")
    assert not store.delete_key("a")
    assert not store.check(["a"])


def test_a_value_is_swapped_where_it_is_the_expected_one(store: Any) -> None:
    assert store.compare_set("k", b"", b"1") == b"1"
    assert store.compare_set("k", b"", b"2") == b"1"
    assert store.compare_set("k", b"1", b"3") == b"3"
    assert store.get("k") == b"3"


def test_sums_of_many_threads_lose_nothing(store: Any) -> None:
    def work() -> None:
        for _ in range(20):
            store.add("n", 2)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.add("n", 0) == 160
    assert store.get("n") == b"160"


def test_waiting_ends_when_another_thread_sets_it(store: Any) -> None:
    seen: list[bytes] = []
    thread = threading.Thread(target=lambda: seen.append(store.get("late", 60)))
    thread.start()
    store.set("late", b"x")
    thread.join()
    assert seen == [b"x"]
    store.wait(["late"], 0)


def test_waiting_has_a_limit_and_names_what_is_missing(store: Any) -> None:
    store.set("a", b"")
    with pytest.raises(
        dist.DistributedTimeoutError, match=r"nobody set '(run7/)?b', '(run7/)?c' within 0\.01 seconds"
    ):
        store.wait(["a", "b", "c"], 0.01)
    with pytest.raises(TimeoutError, match="d'"):
        store.get("d", 0)


def test_two_handles_of_a_file_see_each_other(tmp_path: Path) -> None:
    one, two = (dist.open_store(f"file://{tmp_path}/ranks") for _ in range(2))
    one.set("a", b"1")
    assert two.get("a") == b"1"
    assert two.add("n", 1) + one.add("n", 1) == 3


def test_queues_are_first_in_first_out_for_all_clients(server_store: Any) -> None:
    store = server_store
    url = getattr(store, "url", "")
    other = dist.open_store(url, timeout=30) if url.startswith("tcp") else store
    assert [store.queue_push("q", b"1"), other.queue_push("q", b"2")] == [1, 2]
    taken: list[bytes] = []
    threads = [threading.Thread(target=lambda: taken.append(other.queue_pop("q", 30))) for _ in range(3)]
    for thread in threads:
        thread.start()
    store.queue_push("q", b"3")
    for thread in threads:
        thread.join()
    assert sorted(taken) == [b"1", b"2", b"3"]
    store.queue_push("full", b"")
    assert [store.queue_len(key) for key in ("full", "q")] == [1, 0]
    with pytest.raises(
        dist.DistributedTimeoutError, match=r"queue '(run7/)?q' stayed empty for 0\.01 seconds"
    ):
        store.queue_pop("q", 0.01)


def test_several_keys_take_one_request(server_store: Any) -> None:
    store = server_store
    store.multi_set(["a/1", "a/2", "b"], [b"1", b"2", b"3"])
    assert store.multi_get(["b", "none", "a/1"]) == [b"3", None, b"1"]
    assert store.list_keys("a/") == ["a/1", "a/2"]
    for value in (b"one", b" more"):
        store.append("text", value)
    assert (store.get("text"), store.num_keys()) == (b"one more", 4)
    waiting = threading.Thread(target=store.wait, args=(["appended"], timedelta(seconds=30)))
    waiting.start()
    store.append("appended", b"")
    waiting.join()
    with pytest.raises(dist.DistributedError.__mro__[1], match="2 keys and 1 values"):
        store.multi_set(["a", "b"], [b""])


def test_a_value_for_a_time_is_gone_after_it(server_store: Any) -> None:
    store = server_store
    store.set("long", b"x", ttl=1000)
    store.set("short", b"x", ttl=0)
    assert store.check(["long"])
    assert not store.check(["short"])
    assert (store.list_keys(), store.num_keys()) == (["long"], 1)


def test_what_is_no_number_is_not_added_to(server_store: Any) -> None:
    store = server_store
    store.set("text", b"x")
    with pytest.raises(dist.DistributedError, match="holds b'x', which is no number"):
        store.add("text", 1)
    assert store.get("text") == b"x"


def test_a_redis_server_that_is_missing_refuses_or_dies_is_named(tmp_path: Path) -> None:
    server, url = redis_server(tmp_path)
    public = url.replace(":a%20secret@", "")
    try:
        one = dist.open_store(f"{url}?prefix=one", timeout=30)
        other: Any = dist.open_store(f"{url}?prefix=other", timeout=30)
        one.set("a", b"1")
        assert other.list_keys() == []
        for wrong in (public, url.replace("a%20secret", "wrong")):
            with pytest.raises(dist.DistributedError, match=f"{public}.*refuses") as refusal:
                dist.open_store(wrong, timeout=30)
            assert "wrong@" not in str(refusal.value)
    finally:
        server.kill()
        server.wait()
    with pytest.raises(dist.DistributedError, match=f"{public}.*the Redis server is gone"):
        one.get("a")
    with pytest.raises(dist.DistributedError, match=r"no Redis server answered within 0\.05 seconds"):
        dist.open_store(url, timeout=0.05)
    for wrong in ("redis://", "redis://host:x", "redis://host/name", "redis://host?other=1"):
        with pytest.raises(dist.DistributedError.__mro__[1], match="redis://"):
            dist.open_store(wrong)


@pytest.mark.parametrize(
    ("url", "text"),
    [("nowhere://x", "begins with file://, memory://.*'nowhere://x'"), ("", "begins with")],
)
def test_a_url_of_no_store_is_refused(url: str, text: str) -> None:
    with pytest.raises(dist.DistributedError.__mro__[1], match=text):
        dist.open_store(url)


def test_a_file_that_is_no_store_is_named(tmp_path: Path) -> None:
    (tmp_path / "ranks").write_text("a text that is no store, and is longer than a header " * 10)
    with pytest.raises(dist.DistributedError, match="made for this program alone"):
        dist.open_store(f"file://{tmp_path}/ranks")


def test_threads_and_processes_that_write_to_a_file_at_a_time_all_come_to_it(tmp_path: Path) -> None:
    store = dist.open_store((tmp_path / "ranks").as_uri())
    script = (
        "import sys; from tensorbus import distributed as dist; s = dist.open_store(sys.argv[1]);"
        "[s.add('n', 1) for _ in range(200)]"
    )
    others = [
        subprocess.Popen([sys.executable, "-c", script, (tmp_path / "ranks").as_uri()]) for _ in range(3)
    ]
    failures: list[BaseException] = []

    def write() -> None:
        try:
            for _ in range(200):
                store.add("n", 1)
                assert store.check(["n"])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [other.wait(60) for other in others] == [0, 0, 0]
    assert not failures
    assert store.add("n", 0) == 9 * 200
