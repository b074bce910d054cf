"""Stores keep one contract, whatever they are made of."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tensorbus import distributed as dist

KINDS: dict[str, Callable[[Path], Any]] = {
    "memory": lambda folder: dist.MemoryStore(),
    "file": lambda folder: dist.open_store(f"file://{folder}/ranks"),
    "tcp": lambda folder: dist.open_store("tcp://127.0.0.1:0", serve=True),
}


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    store = KINDS[request.param](tmp_path)
    yield store
    if request.param == "tcp":
        store.close()


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
    with pytest.raises(dist.DistributedTimeoutError, match=r"nobody set 'b', 'c' within 0\.01 seconds"):
        store.wait(["a", "b", "c"], 0.01)
    with pytest.raises(TimeoutError, match="'d'"):
        store.get("d", 0)


def test_two_handles_of_a_file_see_each_other(tmp_path: Path) -> None:
    one, two = (dist.open_store(f"file://{tmp_path}/ranks") for _ in range(2))
    one.set("a", b"1")
    assert two.get("a") == b"1"
    assert two.add("n", 1) + one.add("n", 1) == 3


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
