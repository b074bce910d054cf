"""Ranks whose tensors lie on several devices, in a group that is connected on one of them already."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus import plugins

SIZE = 3


class _Of:
    """Connects threads by tensors of one device type."""

    def __init__(self, threads: Any, device_type: str, priority: int) -> None:
        self.threads, self.device_type, self.priority = threads, device_type, priority

    def verdict(self, device_type: str, rendezvous: Any) -> bool | str:
        return device_type == self.device_type or f"it connects {self.device_type}"

    def connect(self, rendezvous: Any) -> Any:
        return self.threads.connect(rendezvous)


@pytest.fixture(autouse=True)
def _two_communicators(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = plugins.communicators()["threads"]
    both = {"host": _Of(threads, "cpu", 0), "own": _Of(threads, "refdev", 1)}
    monkeypatch.setattr(plugins, "communicators", lambda: both)


def _on_ranks(program: list[tuple[str, ...]], mode: str = "allow") -> list[tuple[list[float], set[str]]]:
    """Return what each rank has of each collective, and what it went by.

    Of each there are the devices of the ranks, for a sum, and behind them who sends to all, if one does.
    """

    def rank() -> tuple[list[float], set[str]]:
        with tb.fallback(mode):
            return _calls(dist.get_rank(), program)

    return dist.run_ranks(rank, SIZE, timeout=60)


def _calls(r: int, program: list[tuple[str, ...]]) -> tuple[list[float], set[str]]:
    results = []
    for n, kinds in enumerate(program):
        x = tb.full((1,), float(r + 1 + n), device=kinds[r])
        if len(kinds) > SIZE:
            dist.broadcast(x, int(kinds[SIZE]))
        else:
            dist.all_reduce(x)
        assert x.device.type == kinds[r]
        results.append(x.item())
    return results, {record.communicator for record in dist.records()}


def _wanted(program: list[tuple[str, ...]]) -> list[float]:
    return [
        int(kinds[SIZE]) + 1 + n if len(kinds) > SIZE else sum(r + 1 + n for r in range(SIZE))
        for n, kinds in enumerate(program)
    ]


C, R = "cpu", "refdev"
PROGRAMS = {
    "mixed later": ([(C, C, C), (R, C, C), (C, C, R), (R, R, R), (C, C, C)], {"host"}),
    "mixed by the one that sends": ([(C, C, C), (C, R, C, "1"), (R, R, C)], {"host"}),
    "a rank is ahead": ([(C, C, C), (R, C, C, "1"), (C, R, C, "1"), (C, C, R)], {"host"}),
    "in turn": ([(C, C, C), (R, R, R), (C, C, C), (R, R, R)], {"host", "own"}),
    "mixed first": ([(R, C, C), (R, R, R), (C, C, C)], {"host"}),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_ranks_on_several_devices(name: str) -> None:
    program, names = PROGRAMS[name]
    for results, communicators in _on_ranks(program):
        assert results == _wanted(program)
        assert communicators == names


@pytest.mark.full
@pytest.mark.parametrize("seed", range(12))
def test_ranks_on_several_devices_at_random(seed: int) -> None:
    draw = random.Random(seed)
    mixed = [kinds for kinds in product((C, R), repeat=SIZE) if len({*kinds}) > 1]
    program: list[tuple[str, ...]] = [(C, C, C)] * draw.randrange(3) + [draw.choice(mixed)]
    program += [tuple(draw.choice((C, R)) for _ in range(SIZE)) for _ in range(5)]
    program = [(*kinds, str(draw.randrange(SIZE))) if draw.random() < 0.6 else kinds for kinds in program]
    for results, _ in _on_ranks(program):
        assert results == _wanted(program)


def test_devices_that_have_communicators_of_their_own_do_not_mix() -> None:
    """Each rank waits by another one: no rank can know of it before its call."""
    text = (
        r"by (host|own) on rank \d, and by (host|own) on rank \d, .* make a group for such calls by new_group"
    )
    with pytest.raises(dist.DistributedError, match=text):
        _on_ranks([(C, C, C), (R, R, R), (R, C, C)])


def test_what_may_not_go_through_the_host_is_refused() -> None:
    def rank() -> None:
        with tb.fallback("error"):
            _calls(dist.get_rank(), [(C, C, C), (R, C, C)])

    with pytest.raises(
        dist.DistributedError, match=r"nothing connects 3 ranks .* on cpu, refdev: .*fallback"
    ):
        dist.run_ranks(rank, SIZE, timeout=60)


def test_messages_on_a_device_with_a_communicator_of_its_own() -> None:
    """What the collectives before them were on says nothing of them."""

    def rank() -> tuple[list[float], set[str]]:
        here, x, host = dist.get_rank(), tb.full((1,), 7.0, device=R), tb.ones(1, device=C)
        dist.all_reduce(host)
        if here == 1:
            dist.recv(x, src=0)
            work = dist.isend(x + 1, dst=2)
        else:
            work = dist.isend(x, dst=1) if here == 0 else dist.irecv(x, src=1)
        for _ in range(3):
            dist.all_reduce(host)
        work.wait()
        return [x.item(), host.item()], {record.communicator for record in dist.records()} - {""}

    wanted = [[7.0, float(SIZE**4)], [7.0, float(SIZE**4)], [8.0, float(SIZE**4)]]
    assert dist.run_ranks(rank, SIZE, timeout=60) == [(results, {"host", "own"}) for results in wanted]
