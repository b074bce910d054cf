"""A device that captures whole programs takes their collectives along, with what core does around each run.

The device is OpenCL with a stand-in for graphs: what a program's calls ask for is kept, and done at each run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import pyopencl as cl
import pytest
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus.backend_api import StreamCapture, capturing
from tensorbus.devices.stream_capture import active_capture
from tensorbus.distributed.process_group.group import get_group

from thread_communicators import thread_communicators

OPENCL, RANKS = "opencl", 2
reduce, gather, scatter = (
    dist.functional.all_reduce,
    dist.functional.all_gather,
    dist.functional.reduce_scatter,
)


def _put(out: tb.Tensor, value: tb.Tensor) -> None:
    """Fill memory that is there, as a library does that is given addresses."""
    target, source = out._value.buffer, value._value
    offset, nbytes = source.offset * value.dtype.itemsize, value.nbytes
    unit = tb.Device(OPENCL).runtime.units[0]
    copy = cl.enqueue_copy(
        unit.queue(), target.memory, source.buffer.memory, src_offset=offset, byte_count=nbytes
    )  # fmt: skip
    copy.wait()


class _Capturable:
    """One rank's end of threads, whose calls may be captured: they are made later then."""

    queues = is_capturable = True

    def __init__(self, inner: Any, meeting: Any) -> None:
        self.inner, self.size = inner, meeting.size

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def _later(self, out: tb.Tensor, compute: Callable[[], tb.Tensor]) -> Callable[[], None]:
        def give() -> None:
            capture = active_capture()
            if capture is None:
                _put(out, compute())
            else:
                capture.held.append(lambda: _put(out, compute()))

        return give

    def all_reduce_into(self, x: tb.Tensor, reduction: str, out: tb.Tensor) -> Any:
        return self._later(out, lambda: self.inner.all_reduce(x, reduction))

    def all_gather_into(self, x: tb.Tensor, sizes: Sequence[int], out: tb.Tensor) -> Any:
        assert len(sizes) == self.size
        shapes = [(n // max(prod(x.shape[1:]), 1), *x.shape[1:]) for n in sizes]
        return self._later(out, lambda: tb.concat(self.inner.all_gather(x, shapes)))

    def reduce_scatter_into(self, x: tb.Tensor, reduction: str, sizes: Sequence[int], out: tb.Tensor) -> Any:
        first = sizes[0] // max(prod(x.shape[1:]), 1)
        return self._later(out, lambda: self.inner.reduce_scatter([x[:first], x[first:]], reduction))

    def broadcast_into(self, x: tb.Tensor, root: int, out: tb.Tensor) -> Any:
        return self._later(out, lambda: self.inner.broadcast(x, root))


class _Graph:
    """Plays a program from its second run on; the memory of all that it makes stays where it is."""

    def __init__(self, compiler: Any, script: Any) -> None:
        self.compiler, self.script = compiler, script
        self.capture, self.runs = StreamCapture(), 0
        self.buffers: dict[int, Any] = {}

    def play(self, values: Sequence[Any], buffers: list[Any]) -> bool:
        if not any(step.ordered for step in self.script.steps):
            return False
        self.runs += 1
        if self.runs == 1:
            return False
        first = not self.buffers
        for slot, nbytes in self.script.nbytes.items():
            self.buffers.setdefault(slot, self.compiler.allocate(nbytes, 0))
            buffers[slot] = self.buffers[slot]
        if first:
            for step in self.script.steps:
                if step.ordered:
                    with capturing(self.capture):
                        assert step.call(values, buffers)
        self.capture.begin()
        calls = iter(self.capture.held)
        for step in self.script.steps:
            if step.ordered:
                next(calls)()
            else:
                step.launch([buffers[s] for s in step.slots], [read(values) for read in step.late])
        self.capture.end()
        return True


@pytest.fixture(autouse=True)
def captured(monkeypatch: pytest.MonkeyPatch) -> Any:
    graphs: list[_Graph] = []

    def player(compiler: Any, script: Any) -> _Graph:
        graphs.append(_Graph(compiler, script))
        return graphs[-1]

    monkeypatch.setattr("tensorbus_opencl.compiler.OpenclCompiler.player", player)
    with thread_communicators("capturable", _Capturable):
        yield graphs


def _each(x: tb.Tensor) -> tuple[tb.Tensor, ...]:
    """Every collective that is captured, of values that no kernel leaves in C order by itself."""
    y = reduce((x * 2).T, "average")
    z = gather(y + 1, 1)
    lengths = [z.shape[1] - 1, 1]
    part = scatter(z * 2, "sum", 1, lengths)
    return y * 3, z - 1, part + 1, dist.functional.broadcast(z.sum(0) + dist.get_rank(), 1) * 2


def test_programs_are_played_with_their_collectives(captured: list[_Graph]) -> None:
    def rank() -> Any:
        group, here = get_group(), dist.get_rank()
        run = tb.compile(_each, fullgraph=True)
        dist.all_reduce(tb.ones((), device=OPENCL))  # connects the ranks
        rows = []
        for k in range(4):
            x = tb.arange(6.0, device=OPENCL).reshape((2, 3)) + here + k
            expected = [y.tolist() for y in _each(x)]
            before = len(dist.records())
            results = [y.tolist() for y in run(x)]
            rows.append((results == expected, dist.records()[before:]))
        (connection,) = group.connections()
        counts = [[record.count for record in records] for _, records in rows]
        last = rows[-1][1][-1]
        asked = [text for _, _, text in connection.latest(4)]
        dist.barrier()
        held = list(connection.captures)
        group.close()
        return (
            [same for same, _ in rows], counts, str(last), last.state, asked[-1] == last.asked,
            connection.sequence, [len(capture.held) for capture in held],
        )  # fmt: skip

    for same, counts, text, state, is_last, sequence, held in dist.run_ranks(
        rank, RANKS, prefer="capturable"
    ):
        assert same == [True] * 4
        assert counts == [[1] * 4, [4], [4], [4]]  # the first run is step by step
        assert "a program with 4 collectives" in text
        assert state == "done"
        assert is_last
        assert sequence == 1 + 4 * (4 + 4) + 1
        assert held == [0]  # given back before the communicator is closed
    assert len([graph for graph in captured if graph.runs]) == RANKS


def test_a_program_and_its_calls_one_by_one_are_the_same_to_other_ranks(captured: list[_Graph]) -> None:
    def rank() -> Any:
        run = tb.compile(_each, fullgraph=True) if dist.get_rank() else _each
        dist.all_reduce(tb.ones((), device=OPENCL))
        for _ in range(3):
            run(tb.ones((2, 3), device=OPENCL))
        dist.barrier()  # compares what was asked for
        (connection,) = get_group().connections()
        return connection.sequence, connection.fingerprint

    first, second = dist.run_ranks(rank, RANKS, prefer="capturable")
    assert first == second


def test_a_group_that_has_failed_runs_no_program(captured: list[_Graph]) -> None:
    def rank() -> Any:
        run = tb.compile(_each, fullgraph=True)
        dist.all_reduce(tb.ones((), device=OPENCL))
        x = tb.ones((2, 3), device=OPENCL)
        for _ in range(3):
            run(x)
        dist.barrier()
        (connection,) = get_group().connections()
        connection.fail(dist.DistributedError("for the test"))
        before = len(dist.records())
        with pytest.raises(dist.DistributedError, match="for the test"):
            run(x)
        return len(dist.records()) - before, [[*capture.held] for capture in connection.captures]

    assert dist.run_ranks(rank, RANKS, prefer="capturable") == [(0, [[]])] * RANKS


class _InPlace(_Capturable):
    in_place = True


def _held(x: tb.Tensor) -> tb.Tensor:
    return x.detach()


def _shown(x: tb.Tensor) -> tb.Tensor:
    return x[1:]


def _saved(x: tb.Tensor) -> tb.Tensor:
    return tb.ones((4,), device=OPENCL).requires_grad_() * x


@pytest.mark.parametrize(
    ("other", "op", "is_in_place"),
    [
        (None, "sum", True), (None, "max", True), (None, "average", False), (_held, "sum", False),
        (_shown, "sum", False), (_saved, "sum", False),
    ],
)  # fmt: skip
def test_an_all_reduce_writes_over_what_nobody_else_holds(other: Any, op: str, is_in_place: bool) -> None:
    """Elsewhere it makes a value of its own; who sees the tensor's elements sees the same both ways."""

    def rank() -> Any:
        dist.all_reduce(tb.ones((), device=OPENCL))  # connects the ranks
        x = tb.arange(4.0, device=OPENCL) * (1 + dist.get_rank())
        y = None if other is None else other(x)
        before, version = id(x._value.buffer), len(dist.records())
        dist.all_reduce(x, op)
        same = id(x._value.buffer) == before
        if other is _saved:
            with pytest.raises(tb.AutogradError, match="a collective"):
                y.sum().backward()
        return x.tolist(), None if y is None else y.tolist(), same, len(dist.records()) - version

    with thread_communicators("in place", _InPlace):
        results = dist.run_ranks(rank, RANKS, prefer="in place")
    factor = {"sum": 3, "max": 2, "average": 1.5}[op]
    for place, (x, y, same, calls) in enumerate(results):
        assert x == [factor * k for k in range(4)]
        assert (same, calls) == (is_in_place, 1)
        own = [k * (1 + place) for k in range(4)]
        assert y == {None: None, _shown: x[1:], _held: x, _saved: own}[other]
