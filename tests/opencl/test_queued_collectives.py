"""Communicators that give their work to a device's streams: what core does for them, by the kit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus_conformance.communication.command import VALUES, examine, settings

from thread_communicators import thread_communicators

OPENCL, RANKS = "opencl", 2


def _queued(communicator: Any, meeting: Any) -> Any:
    """Return a communicator whose results are in a stream when it returns, and not done."""
    communicator.queues, communicator.expect = True, None
    return communicator


@pytest.fixture(autouse=True)
def queued() -> Iterator[None]:
    with thread_communicators("queued", _queued):
        yield


@pytest.mark.parametrize(
    "program", [pytest.param(VALUES, marks=pytest.mark.full), "mismatched", "abort", "closed"]
)
def test_the_kit_finds_nothing(program: str) -> None:
    chosen = settings("queued", [OPENCL], ["float32"], RANKS, quick=True)
    calls, findings = examine(next(s for s in chosen if s.program == program))
    assert not findings
    assert calls >= RANKS


def test_a_handle_orders_streams_and_the_host_need_not_wait() -> None:
    def rank() -> Any:
        x = tb.ones((1000,), device=OPENCL)
        work = dist.all_reduce(x, async_op=True)
        y = tb.ones((1000,), device=OPENCL) * 2
        work.wait()
        second = dist.all_reduce(y, async_op=True)
        second.wait(60)
        assert second.is_completed()
        dist.all_reduce(y)
        dist.barrier()
        states = [record.state for record in dist.records()]
        return (x + y).sum().item(), set(states), {record.communicator for record in dist.records()}

    total = RANKS * 1.0 + RANKS * RANKS * 2.0
    right = [(total * 1000, {"done"}, {"queued"})] * RANKS
    assert dist.run_ranks(rank, RANKS, prefer="queued") == right


def test_ranks_on_cpu_and_opencl() -> None:
    """A mesh of both: tensors stay where they are, and a step of training gives what one device gives."""
    kinds = ["cpu", OPENCL]

    def rank() -> Any:
        here = kinds[dist.get_rank()]
        mesh = dist.init_device_mesh(None, (2,))
        x = tb.arange(12.0, device=here).reshape((4, 3)) / 8
        w = tb.arange(6.0, device=here).reshape((3, 2)).requires_grad_()
        whole = (x @ w).sum()
        whole.backward()
        spread = dist.distribute_tensor(x, mesh, [dist.Shard(0)])
        v = dist.distribute_tensor(w.detach(), mesh, [dist.Shard(1)]).requires_grad_()
        total = (spread @ v).sum()
        total.backward()
        gathered = v.grad.full_tensor()
        dist.all_reduce(x, async_op=True).wait()
        assert {y.device.type for y in (gathered, x, total.to_local())} == {here}
        return total.full_tensor().item() == whole.item(), gathered.tolist() == w.grad.tolist(), x[0].tolist()

    assert dist.run_ranks(rank, 2) == [(True, True, [0.0, 0.25, 0.5])] * 2  # all exact in float32
