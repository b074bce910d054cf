"""What stores take and refuse is the same for all kinds; where a program's store cannot be is refused."""

from __future__ import annotations

import math
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tensorbus import distributed as dist
from tensorbus.errors import ArgumentError, DistributedError, DistributedTimeoutError

from store_kinds import KINDS, opened

KEYS = ["", " ", "a\0b", "é", "e\u0301", "ключ 🗝", "a/b/../c", "%s{}*?[x]", "k" * 100_000]
VALUES = [b"", b"\0", bytes(range(256)) * 4096, bytearray(b"ab"), memoryview(b"abc")[1:]]


@pytest.fixture(params=[*KINDS, "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    with opened(request.param, tmp_path) as (store, _):
        yield store


def test_any_text_is_a_key_of_its_own_and_any_bytes_a_value(store: Any) -> None:
    for number, key in enumerate(KEYS):
        assert not store.check([key]), key
        store.set(key, str(number).encode())
    assert [store.get(key, 0) for key in KEYS] == [str(number).encode() for number in range(len(KEYS))]
    store.wait([*KEYS, *KEYS], 0)
    for value in VALUES:
        store.set("v", value)
        assert store.get("v", 0) == bytes(value)
        assert store.compare_set("v", value, b"next") == b"next"
    assert all(store.delete_key(key) for key in KEYS)
    store.wait([], 0)
    assert store.check([])


WRONG: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "a key that is no text": (lambda s: s.set(5, b""), ArgumentError, "a key is a str, got 5 of int"),
    "a key of bytes": (lambda s: s.get(b"k", 0), ArgumentError, "a key is a str, got b'k'"),
    "a key without UTF-8": (lambda s: s.add("\ud800", 1), ArgumentError, "UTF-8 can encode"),
    "a text for several keys": (lambda s: s.wait("ab", 0), ArgumentError, r"write \['ab'\]"),
    "a text for keys": (lambda s: s.check("ab"), ArgumentError, r"write \['ab'\]"),
    "a value that is text": (lambda s: s.set("k", "v"), ArgumentError, r"write 'v'\.encode\(\)"),
    "a value that is a number": (lambda s: s.set("k", 3), ArgumentError, "a value is bytes, got 3"),
    "nothing as value": (lambda s: s.compare_set("k", b"", None), ArgumentError, "got None"),
    "nothing expected": (lambda s: s.compare_set("k", None, b""), ArgumentError, "got None"),
    "a limit that is no number": (lambda s: s.get("k", math.nan), ArgumentError, "seconds, got nan"),
    "a limit that is text": (lambda s: s.wait(["k"], "1"), ArgumentError, "seconds, got '1'"),
    "a limit in the past": (lambda s: s.get("k", -1), DistributedTimeoutError, "within -1 seconds"),
    "half an amount": (lambda s: s.add("k", 0.5), ArgumentError, "64 bits, got 0.5"),
    "a long amount": (lambda s: s.add("k", 1 << 63), ArgumentError, "64 bits, got 9223372036854775808"),
    "a sum that is too long": (
        lambda s: (s.add("n", (1 << 63) - 1), s.add("n", 1)), DistributedError, "more than 64 bits",
    ),
    "a sum with text": (
        lambda s: (s.set("t", b"1_0"), s.add("t", 1)), DistributedError, "holds b'1_0', which is no number",
    ),
    "a sum with a long text": (
        lambda s: (s.set("t", b"1" * 5000), s.add("t", 1)), DistributedError, "more than 64 bits",
    ),
    "a sum with zeros before it": (
        lambda s: (s.set("t", b"007"), s.add("t", 1)), DistributedError, "not as add writes it",
    ),
    "nothing but a sign": (lambda s: (s.set("t", b"-0"), s.add("t", 1)), DistributedError, "no number"),
    "for ever in the past": (lambda s: s.get("k", -math.inf), DistributedTimeoutError, "nobody set"),
    "a sum with nothing": (
        lambda s: (s.set("t", b""), s.add("t", 1)), DistributedError, "holds b'', which is no number",
    ),
}  # fmt: skip


def test_a_store_closes_without_a_reason(store: Any) -> None:
    store.set("k", b"v")
    store.close()
    store.close()


def test_what_makes_no_sense_is_refused_by_the_same_errors(store: Any) -> None:
    for name, (call, kind, text) in WRONG.items():
        with pytest.raises(kind, match=text):
            call(store)
        assert not store.check(["k"]), name
    assert store.add("n", -1) == (1 << 63) - 2


def test_without_end_is_a_limit(store: Any) -> None:
    timer = threading.Timer(0.05, store.set, ["late", b"1"])
    timer.start()
    assert store.get("late", math.inf) == b"1"
    timer.join()


def test_a_sum_lasts_as_long_as_its_key_was_to_last(tmp_path: Path) -> None:
    for kind in ("tcp", "redis", "memory"):
        with opened(kind, tmp_path) as (store, _):
            store.set("n", b"4", ttl=0.2)
            assert store.add("n", 1) == 5
            store.set("stays", b"4", ttl=0.2)
            store.set("stays", b"4")
            with pytest.raises(DistributedTimeoutError):
                store.queue_pop("q", 0.4)
            assert store.list_keys() == ["stays"]
            for wrong in (math.nan, "1"):
                with pytest.raises(ArgumentError, match="seconds"):
                    store.set("k", b"", ttl=wrong)


def test_what_a_store_does_not_have_is_named(tmp_path: Path) -> None:
    part = dist.PrefixStore("a/", dist.FileStore(str(tmp_path / "store")))
    for call in (
        lambda: part.set("k", b"", ttl=1), lambda: part.queue_pop("q"), part.list_keys,
        lambda: part.multi_get(["k"]),
    ):  # fmt: skip
        with pytest.raises(ArgumentError, match=r"FileStore has no \w+; those of tcp://, redis:// and mem"):
            call()
    part.close()


FILES = {
    "file://host/store": "with three slashes", "file://relative": "three slashes", "file:": "three slashes",
    "file:///": "three slashes", "file:///a?b": "three slashes", "file:///a#b": "three slashes",
}  # fmt: skip


def test_a_store_is_named_by_a_text() -> None:
    with pytest.raises(ArgumentError, match=r"a store's URL is a str, as 'tcp://host:port', got 5\."):
        dist.open_store(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("url", FILES)
def test_a_url_of_no_file_is_refused(url: str) -> None:
    with pytest.raises(ArgumentError, match=FILES[url]):
        dist.open_store(url)


def test_a_path_is_spelled_as_in_any_url(tmp_path: Path) -> None:
    path = tmp_path / "a b%20#é?"
    path.mkdir()
    dist.open_store((path / "ranks").as_uri()).set("k", b"1")
    assert [file.name for file in path.iterdir()] == ["ranks"]


FULL = """
import sys
from tensorbus import distributed as dist
store = dist.open_store(sys.argv[1])
store.set("small", b"1")
try:
    store.set("large", bytes(1 << 20))
except dist.DistributedError as error:
    print(error)
print(store.get("small", 0), store.check(["large"]), store.add("n", 1))
"""


def test_a_disk_that_is_full_is_told_and_what_was_there_stays(tmp_path: Path) -> None:
    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 18, 1 << 18))

    url = (tmp_path / "ranks").as_uri()
    done = subprocess.run(
        [sys.executable, "-c", FULL, url], preexec_fn=bound, capture_output=True, text=True, timeout=60
    )
    error, rest = done.stdout.splitlines()
    assert error.startswith(f"store {tmp_path}/ranks: ")
    assert rest == "b'1' False 1"


def test_a_file_that_may_not_be_written_is_named(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none" / "ranks", Path("/proc/version")):
        with pytest.raises(DistributedError, match=f"store {path}: .*all ranks may write to"):
            dist.open_store(path.as_uri())
    if os.geteuid():
        locked = tmp_path / "locked"
        locked.mkdir(0o500)
        with pytest.raises(DistributedError, match="all ranks may write to"):
            dist.open_store((locked / "ranks").as_uri())
