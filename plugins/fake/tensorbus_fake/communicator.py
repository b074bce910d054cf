"""Collectives of one rank alone: results have the shapes that they would have, and each call is noted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from math import prod

import tensorbus as tb
from tensorbus.backend_api import Rendezvous

from .schedule import Call
from .store import FakeStore

Shape = tuple[int, ...]


class Factory:
    """Connects a rank with others that are not there, on every device."""

    priority = 100

    def verdict(self, device_type: str, rendezvous: Rendezvous) -> bool | str:
        """Return True for the rank of a ``FakeStore``."""
        return isinstance(rendezvous.store, FakeStore) or "its ranks meet at the store fake://"

    def connect(self, rendezvous: Rendezvous) -> Communicator:
        """Return the rank's end."""
        assert isinstance(rendezvous.store, FakeStore)
        return Communicator(rendezvous, rendezvous.store.calls)


class Communicator:
    """The rank's end of a group, whose other ranks bring what this one does; other shapes are zeros."""

    def __init__(self, rendezvous: Rendezvous, calls: list[Call]) -> None:
        self._ranks, self._rank, self._size = rendezvous.ranks, rendezvous.rank, rendezvous.size
        self._calls, self._counts = calls, Counter[str]()

    def all_reduce(self, x: tb.Tensor, reduction: str) -> tb.Tensor:
        """Combine the tensor with copies of it."""
        self._note("all_reduce", [x], 2 * (self._size - 1) * x.nbytes // self._size)
        return self._combined(x, reduction)

    def all_gather(self, x: tb.Tensor, shapes: Sequence[Shape]) -> list[tb.Tensor]:
        """Return a tensor of each rank's shape."""
        self._note("all_gather", [x], (self._size - 1) * x.nbytes)
        return [_shaped(x, shape) for shape in shapes]

    def all_gather_flat(self, x: tb.Tensor, shapes: Sequence[Shape]) -> tb.Tensor:
        """Return all ranks' elements."""
        self._note("all_gather", [x], (self._size - 1) * x.nbytes)
        parts = []
        for shape, run in groupby(shapes):
            count, size = len([*run]), prod(shape)
            part = x.reshape((1, -1)) if x.shape == tuple(shape) else _shaped(x, (1, size))
            parts.append(part.expand((count, size)).reshape((-1,)))
        return tb.concat(parts) if len(parts) > 1 else parts[0]

    def reduce_scatter(self, xs: Sequence[tb.Tensor], reduction: str) -> tb.Tensor:
        """Combine this rank's part with copies of it."""
        self._note("reduce_scatter", xs, sum(x.nbytes for x in xs) - xs[self._rank].nbytes)
        return self._combined(xs[self._rank], reduction)

    def reduce_scatter_flat(self, x: tb.Tensor, reduction: str) -> tb.Tensor:
        """Combine this rank's part with copies of it."""
        return self.reduce_scatter_uneven(x, reduction, [x.size // self._size] * self._size)

    def reduce_scatter_uneven(self, x: tb.Tensor, reduction: str, sizes: Sequence[int]) -> tb.Tensor:
        """Combine this rank's part with copies of it."""
        start = sum(sizes[: self._rank])
        part = x.reshape((-1,))[start : start + sizes[self._rank]]
        self._note("reduce_scatter", [x], x.nbytes - part.nbytes)
        return self._combined(part, reduction)

    def all_to_all(self, xs: Sequence[tb.Tensor], shapes: Sequence[Shape]) -> list[tb.Tensor]:
        """Return a tensor of each shape."""
        self._note("all_to_all", xs, sum(x.nbytes for x in xs) - xs[self._rank].nbytes)
        return [_shaped(xs[self._rank], shape) for shape in shapes]

    def broadcast(self, x: tb.Tensor, root: int) -> tb.Tensor:
        """Return the rank's own; each but the last passes it on."""
        last = (root - 1) % self._size
        self._note("broadcast", [x], 0 if self._rank == last else x.nbytes)
        return x.clone()

    def send(self, x: tb.Tensor, to: int, tag: int = 0) -> None:
        """Note it."""
        self._note("send", [x], x.nbytes, f"to {to}")

    def receive(self, like: tb.Tensor, source: int) -> tb.Tensor:
        """Return zeros."""
        self._note("recv", [like], 0, f"from {source}")
        return tb.zeros_like(like)

    def post_receive(self, source: int | None, tag: int) -> int:
        """Return the sender; of any rank, the one before."""
        return (self._rank - 1) % self._size if source is None else source

    def complete_receive(self, posted: int, like: tb.Tensor) -> tuple[tb.Tensor, int]:
        """Return zeros."""
        return self.receive(like, posted), posted

    def barrier(self) -> None:
        """Note it."""
        self._note("barrier", [], 0)

    def abort(self, reason: str) -> None:
        """Nobody waits."""

    def close(self) -> None:
        """Nothing is held."""

    def _note(self, operation: str, xs: Sequence[tb.Tensor], sent: int, between: str = "all") -> None:
        self._counts[between] += 1
        self._calls.append(
            Call(
                operation=operation,
                group=self._ranks,
                sequence=self._counts[between],
                bytes=sum(x.nbytes for x in xs),
                sent=sent,
                shapes=tuple(x.shape for x in xs),
                dtype=str(xs[0].dtype) if xs else "",
            )
        )

    def _combined(self, x: tb.Tensor, reduction: str) -> tb.Tensor:
        """Return what ``reduction`` makes of ``x`` from every rank."""
        if reduction == "sum":
            return x * self._size
        if reduction == "product":
            return x**self._size
        if reduction == "bitwise_xor" and self._size % 2 == 0:
            return tb.zeros_like(x)
        return x.clone()


def _shaped(x: tb.Tensor, shape: Shape) -> tb.Tensor:
    return x.clone() if x.shape == tuple(shape) else tb.zeros(shape, dtype=x.dtype, device=x.device)
