"""Collectives of threads, by the tensors' own operations: so on every device, and between devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import tensorbus as tb
from tensorbus.backend_api import PostedReceive, Rendezvous, SupportsStreams, combined, copied
from tensorbus.errors import DistributedError, DistributedTimeoutError

from .meeting import Meeting, meeting_of

Shape = tuple[int, ...]
C = TypeVar("C")
"""What a rank brings."""
R = TypeVar("R")
"""What a rank gets."""


class Factory:
    """Connects threads, whatever their device."""

    def verdict(self, device_type: str, rendezvous: Rendezvous) -> bool | str:
        """Return True for threads of one process."""
        return rendezvous.threads or "its ranks are threads of one process"

    def connect(self, rendezvous: Rendezvous) -> Communicator:
        """Return a rank's end."""
        return Communicator(meeting_of(rendezvous), rendezvous.rank, rendezvous.size)


class Communicator:
    """One thread's end of a group."""

    def __init__(self, meeting: Meeting, rank: int, size: int) -> None:
        self._meeting, self._rank, self._size = meeting, rank, size
        self._mailbox, self._is_closed = meeting.mailboxes[rank], False
        self._label = ""

    def expect(self, label: str) -> None:
        """Let the next collective of each rank communicate the same."""
        self._label = label

    def all_reduce(self, x: tb.Tensor, reduction: str) -> tb.Tensor:
        """Combine in order of rank, so that the result is the same in every run."""

        def combine(xs: list[tb.Tensor]) -> list[tb.Tensor]:
            total = combined(xs, reduction)
            return [_own(total, y) for y in xs]

        asked = self._asked(f"all_reduce {reduction} of {_spec(x)}")
        return self._exchange(asked, [x], x, combine)

    def all_gather(self, x: tb.Tensor, shapes: Sequence[Shape]) -> list[tb.Tensor]:
        """Copy every rank's tensor."""
        asked = self._asked(f"all_gather of {x.dtype} in shapes {[*shapes]}")
        return self._exchange(asked, [x], (x, shapes), _gathered)

    def reduce_scatter(self, xs: Sequence[tb.Tensor], reduction: str) -> tb.Tensor:
        """Combine place by place."""

        def combine(contributed: list[Sequence[tb.Tensor]]) -> list[tb.Tensor]:
            return [
                _own(combined([parts[rank] for parts in contributed], reduction), contributed[rank][rank])
                for rank in range(self._size)
            ]

        asked = self._asked(f"reduce_scatter {reduction} of {', '.join(map(_spec, xs))}")
        return self._exchange(asked, xs, xs, combine)

    def all_to_all(self, xs: Sequence[tb.Tensor], shapes: Sequence[Shape]) -> list[tb.Tensor]:
        """Transpose the ranks' lists."""

        def combine(
            contributed: list[tuple[Sequence[tb.Tensor], Sequence[Shape]]],
        ) -> list[list[tb.Tensor]]:
            results = []
            for rank in range(self._size):
                parts = [others[rank] for others, _ in contributed]
                _check_shapes(rank, parts, contributed[rank][1])
                results.append([_own(part, contributed[rank][0][0]) for part in parts])
            return results

        asked = self._asked(f"all_to_all of {xs[0].dtype}")
        return self._exchange(asked, xs, (xs, shapes), combine)

    def broadcast(self, x: tb.Tensor, root: int) -> tb.Tensor:
        """Copy the root's tensor."""
        asked = self._asked(f"broadcast of {_spec(x)} from place {root}")
        return self._exchange(asked, [x], x, lambda xs: [_own(xs[root], y) for y in xs])

    def send(self, x: tb.Tensor, to: int, tag: int = 0) -> None:
        """Leave a copy."""
        own = copied(x)
        self._meeting.check("send")
        self._meeting.mailboxes[to].put(self._rank, tag, (own, _events([own.device])))

    def receive(self, like: tb.Tensor, source: int) -> tb.Tensor:
        """Take what the other left."""
        return self.complete_receive(self.post_receive(source, 0), like)[0]

    def post_receive(self, source: int | None, tag: int) -> PostedReceive:
        """Ask for what others leave."""
        return self._mailbox.post(source, tag)

    def complete_receive(self, posted: PostedReceive, like: tb.Tensor) -> tuple[tb.Tensor, int]:
        """Wait until it is there."""
        meeting = self._meeting
        try:
            (x, behind), sender = self._mailbox.wait(posted, "recv", meeting.timeout, self._check_receive)
        except DistributedTimeoutError as error:
            meeting.end(str(error).partition(". ")[0], DistributedTimeoutError)
            raise
        _follow(behind)
        if (x.shape, x.dtype) != (like.shape, like.dtype):
            raise DistributedError(f"recv: {_spec(like)} was asked for, but what was sent is {_spec(x)}.")
        return x.to(like.device), sender

    def _check_receive(self) -> None:
        self._meeting.check("recv")
        if self._is_closed:
            raise DistributedError("recv: the group was closed before the message came.")

    def barrier(self) -> None:
        """Wait for all."""
        self._meeting.exchange(self._rank, "barrier", None, lambda contributed: contributed)

    def _exchange(
        self, asked: str, xs: Sequence[tb.Tensor], mine: C,
        combine: Callable[[list[C]], Sequence[R]],
    ) -> R:  # fmt: skip
        """Bring something, and return this rank's place of what ``combine`` makes of everybody's.

        One rank combines, in the streams of its thread: these follow the ranks', and are followed by them.
        """

        def in_order(contributed: list[tuple[C, list[tb.Event]]]) -> list[tuple[R, list[tb.Event]]]:
            behind = [event for _, events in contributed for event in events]
            _follow(behind)
            results = combine([each for each, _ in contributed])
            done = _events(event.device for event in behind)
            return [(result, done) for result in results]

        own = mine, _events(x.device for x in xs)
        result, done = self._meeting.exchange(self._rank, asked, own, in_order)
        _follow(done)
        return result

    def abort(self, reason: str) -> None:
        """End who waits."""
        self._meeting.end(reason)

    def close(self) -> None:
        """End receives that wait still."""
        self._is_closed = True
        self._mailbox.wake()

    def _asked(self, text: str) -> str:
        """Return what the ranks have to ask for alike, with what is communicated."""
        label, self._label = self._label, ""
        return f"{text}, {label}" if label else text


_has_streams: dict[type[Any], bool] = {}
"""By class of runtime: asking a protocol is slow."""


def _events(devices: Iterable[tb.Device]) -> list[tb.Event]:
    """Return an event behind the work now in the current stream of each device that has streams."""
    events = []
    for device in set(devices):
        kind = type(device.runtime)
        if kind not in _has_streams:
            _has_streams[kind] = isinstance(device.runtime, SupportsStreams)
        if _has_streams[kind]:
            events.append(tb.Event(device))
            events[-1].record()
    return events


def _follow(events: Sequence[tb.Event]) -> None:
    """Let later work of this thread follow the events, in the current stream of each one's device."""
    for event in events:
        event.wait()


def _spec(x: tb.Tensor) -> str:
    return f"{x.dtype}{[*x.shape]}"


def _own(x: tb.Tensor, like: tb.Tensor) -> tb.Tensor:
    """Return a copy on the device of ``like``."""
    return copied(x) if x.device == like.device else x.to(like.device)


def _gathered(contributed: list[tuple[tb.Tensor, Sequence[Shape]]]) -> list[list[tb.Tensor]]:
    _check_shapes(0, [x for x, _ in contributed], contributed[0][1])
    return [[_own(x, like) for x, _ in contributed] for like, _ in contributed]


def _check_shapes(rank: int, xs: Sequence[tb.Tensor], shapes: Sequence[Shape]) -> None:
    all_shapes = [x.shape for x in xs]
    if all_shapes != [*map(tuple, shapes)]:
        raise DistributedError(f"the ranks bring shapes {all_shapes}, but place {rank} was told {[*shapes]}.")
