"""Communicators and stores whose calls never return: the rank says which and where, and ends."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus.distributed.process_group import unreturned_calls

from thread_communicators import thread_communicators

SCRIPT = """
import ctypes, sys, threading, time
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus.backend_api import hookimpl
from tensorbus.distributed.process_group import unreturned_calls as calls

calls._MARGIN, calls._AFTER_FAILURE, calls._AFTER_WORDS = 1.0, 1.0, 1.0
kind, place = sys.argv[1:]

def never(*args, **kwargs):
    threading.Event().wait() if kind == "async" else time.sleep(1000)

class End:
    all_reduce = all_gather = reduce_scatter = all_to_all = broadcast = send = receive = barrier = never
    abort = close = print

class Deaf:
    priority = 100
    @hookimpl
    def tensorbus_communicator(self, name):
        return self
    def verdict(self, device_type, rendezvous):
        return True
    def connect(self, rendezvous):
        return never() if kind == "connect" else End()

class Store(dist.FileStore):
    get = never

dist.register_communicator("deaf", Deaf())
store = dist.FileStore(place)
dist.init(timeout=LIMIT, prefer="deaf", store=Store(place) if kind == "store" else store)
store.set(str(dist.get_rank()), b"here")
store.wait(["0", "1"], 300)
dist.all_reduce(tb.ones((2,), device="cpu"), async_op=kind == "async").wait()
""".replace("LIMIT", "4.0")
NEVER = r"has not returned for \d+ seconds"
CALL = rf"rank 0: communicator 'deaf' {NEVER} from all_reduce sum of float32\[2\] on cpu:0, call 1 of group"
WORDS = {
    "call": rf"{CALL}.*At 9 seconds its group fails.*{CALL}.*this rank ends\..*The call:.*in never",
    "async": rf"{CALL}.*{CALL}.*this rank ends\..*The call:.*in never",
    "connect": rf"'deaf': connect of rank 0 in group 'world:0' {NEVER}, though its limit is 4: this",
    "store": rf"rank 0: store Store: get of '.*' {NEVER}, though its limit is 0.25: this rank ends\.",
}
"""By what does not return: what rank 0 says."""


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind == "call" else pytest.mark.full) for kind in WORDS]
)
def test_a_process_says_what_does_not_return_and_ends(kind: str, tmp_path: Path) -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, kind, str(tmp_path / "store")],
            stderr=subprocess.PIPE, text=True, env={**os.environ, "WORLD_SIZE": "2", "RANK": str(rank)},
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        words = [rank.communicate()[1] for rank in ranks]
        assert [rank.returncode for rank in ranks] == [1, 1], words
        assert re.search(WORDS[kind], words[0], re.DOTALL), words[0]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
            assert rank.stderr is not None
            rank.stderr.close()


@pytest.mark.parametrize("async_op", [False, True])
def test_threads_whose_calls_do_not_return_are_left_behind(
    monkeypatch: pytest.MonkeyPatch, async_op: bool
) -> None:
    for name in ("_MARGIN", "_AFTER_FAILURE"):
        monkeypatch.setattr(unreturned_calls, name, 0.5)
    over = threading.Event()

    def change(end: Any, meeting: Any) -> Any:
        def all_reduce(x: tb.Tensor, reduction: str) -> tb.Tensor:
            over.wait()
            return x

        if meeting.rank == 1:
            end.all_reduce = all_reduce
        return end

    def rank() -> None:
        work = dist.all_reduce(tb.ones((2,), device="cpu"), async_op=async_op)
        if work is not None:
            work.wait()

    what = r"rank 1: communicator 'deaf' has not returned for \d+ seconds from all_reduce sum of float32\[2\]"
    with thread_communicators("deaf", change):
        try:
            with pytest.raises(dist.DistributedTimeoutError, match=f"{what}.*this rank ends") as raised:
                dist.run_ranks(rank, 2, prefer="deaf", timeout=0.5)
        finally:
            over.set()
    assert "in all_reduce" in "".join(raised.value.__notes__)
