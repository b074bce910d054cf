"""Ranks that do not come: what those that wait for them are told, by processes and by signs of life."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus.distributed.process_group.roll_call import LOST, SILENT
from tensorbus.distributed.process_group.world import World, in_world

from store_kinds import opened

SCRIPT = """
import sys, time
import tensorbus as tb
import tensorbus as tb
from tensorbus import distributed as dist
dist.init(timeout=3600)  # far more than the test waits for: an answer is not that of the timeout
if dist.get_rank() == 0:
    try:
        dist.all_reduce(tb.ones(2, device="cpu"))
    except dist.DistributedError as error:
        print(error)
        sys.exit(0)
{end}
"""
ENDS = {
    "the end of its program": ("", "rank 1 will not come: its program has ended"),
    "an exception": ("raise ValueError('mine')", "rank 1 will not come: it raised ValueError: mine"),
    **{
        f"an end without a word at {kind}://": (
            "import os; time.sleep(2); os._exit(0)", "rank 1 has left the store without a word: it was ended",
        ) for kind in ("tcp", "file", "redis")
    },
    "shutdown": (
        "dist.shutdown(); time.sleep(3600)",
        "rank 1 will not come: it called tensorbus.distributed.shutdown()",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "an exception" else [pytest.mark.full]) for name in ENDS]
)
def test_a_process_that_leaves(name: str, tmp_path: Path) -> None:
    end, text = ENDS[name]
    kind = name.rpartition(" ")[2].removesuffix("://")
    with opened(kind if kind in ("tcp", "redis") else "file", tmp_path) as (_, url):
        _check_words_of_the_other(end, text, tmp_path, {"WORLD_SIZE": "2", "TENSORBUS_STORE": url})


def _check_words_of_the_other(end: str, text: str, folder: Path, variables: dict[str, str]) -> None:
    (folder / "script.py").write_text(SCRIPT.format(end=end))
    environment = {**os.environ, "TENSORBUS_STORE_SERVED": "1", **variables}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(folder / "script.py")], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env={**environment, "RANK": str(rank)},
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        answer, complaints = ranks[0].communicate()
        assert ranks[0].returncode == 0, complaints
        assert answer.startswith(f"all_reduce sum of float32[2] on cpu:0, call 1 of group 'world': {text}")
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


def test_a_process_that_gives_no_sign_of_life() -> None:
    store = dist.MemoryStore()
    here, other = World(0, 2, store), World(1, 2, store)
    now = 1000.0
    other.roll_call.look([], now)
    for seconds, silence in ((0.0, ""), (SILENT - 1, ""), (SILENT + 1, "has shown no sign of life")):
        assert here.roll_call._silence(1, now + seconds)[:25] == silence
    other.roll_call.look([], now + SILENT + 2)
    assert not here.roll_call._silence(1, now + SILENT + 3)
    assert not World(0, 3, store).roll_call._silence(2, now)  # it has not come to init yet
    store.set("lost/1", b"1")  # its connection has ended; it has another one, or not
    for seconds, silence in ((LOST, ""), (LOST + 1, "has left the store withou")):
        assert here.roll_call._silence(1, now + SILENT + 3 + seconds)[:25] == silence


def test_what_is_wrong_is_told_before_ranks_meet() -> None:
    for call, text in (
        (lambda: dist.init(prefer="none such"), "no communicator is called 'none such'"),
        (lambda: dist.run_ranks(dist.get_rank, 2, prefer="none such"), "no communicator is called 'none"),
        (lambda: dist.run_ranks(3, 2), "a function is needed, which each rank calls, got 3"),  # type: ignore[arg-type]
    ):
        with pytest.raises(tb.ArgumentError, match=text):
            call()
        assert not dist.is_initialized()


def test_a_rank_that_comes_after_the_end_is_told_at_once() -> None:
    world = World(0, 2, dist.MemoryStore(), timeout=3600, threads=True)
    world.close("rank 1 raised ValueError: mine")
    with in_world(world):
        for call in (lambda: dist.all_reduce(tb.ones(2)), dist.barrier, lambda: dist.new_group([0, 1])):
            with pytest.raises(dist.DistributedError, match="ended: rank 1 raised ValueError: mine"):
                call()


def test_a_rank_that_is_a_thread_makes_its_process_none() -> None:
    with pytest.raises(
        dist.DistributedError, match=r"this thread is rank [01] of 2 already, .*init\(\) is for"
    ):
        dist.run_ranks(dist.init, 2)
    assert not dist.is_initialized()
