"""Collectives of processes with a GPU each, by NCCL."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import tensorbus as tb
from tensorbus.backend_api import Rendezvous, combined, from_capsule
from tensorbus.errors import DistributedError

from .session import Session

_NUMBERS: Final = {
    "int8": "INT8", "uint8": "UINT8", "int32": "INT32", "uint32": "UINT32", "int64": "INT64",
    "uint64": "UINT64", "float16": "FLOAT16", "bfloat16": "BFLOAT16", "float32": "FLOAT32",
    "float64": "FLOAT64",
}  # fmt: skip
"""What NCCL calls dtypes."""
_REDUCTIONS: Final = {"sum": "SUM", "product": "PROD", "min": "MIN", "max": "MAX"}
_HEAD: Final = 64
_DEFAULT: Final = 1
"""CUDA's default stream, as DLPack counts streams."""
Shape = tuple[int, ...]


class Factory:
    """Connects processes on NVIDIA GPUs."""

    priority = 20

    def verdict(self, device_type: str, rendezvous: Rendezvous) -> bool | str:
        """Return True for processes and tensors of GPUs, where CuPy finds NCCL."""
        if rendezvous.threads:
            return "its ranks are processes"
        if device_type != "cuda":
            return "it connects the memory of NVIDIA GPUs"
        if importlib.util.find_spec("cupy") is None:
            return "CuPy is not installed"
        try:
            from cupy.cuda import nccl

            nccl.get_version()
        except Exception as error:  # what the loader of libraries raises
            return f"CuPy does not find NCCL: {error}"
        return True

    def connect(self, rendezvous: Rendezvous) -> Communicator:
        """Return a rank's end. NCCL itself is connected at the first collective, on its tensor's GPU."""
        return Communicator(rendezvous)


class Communicator:
    """One process's end of a group."""

    def __init__(self, rendezvous: Rendezvous) -> None:
        self._meeting, self._rank, self._size = rendezvous, rendezvous.rank, rendezvous.size
        self._session: Session | None = None
        self._ended = ""

    def all_reduce(self, x: tb.Tensor, reduction: str) -> tb.Tensor:
        """Let NCCL combine; or each rank a part, of what NCCL does not have."""
        what, session = f"all_reduce {reduction} of {_spec(x)}", self._on(x)
        kind = _kinds(x, reduction)
        if kind is None:
            flat = x.reshape((-1,))
            parts = [
                flat[a:b] for a, b in pairwise(flat.size * k // self._size for k in range(self._size + 1))
            ]
            received = self._exchange(what, what, parts, [parts[self._rank].shape] * self._size)
            whole = self._gather(what, what, combined(received, reduction), [part.shape for part in parts])
            return tb.concat(whole).reshape(x.shape)
        own, result = x.contiguous(), _empty(x, x.shape)
        source, target = _address(own), _address(result)

        def queue(comm: Any, stream: int) -> None:
            if own.size:
                comm.allReduce(source, target, own.size, *kind, stream)

        session.agreed(what, what, queue)
        return result

    def all_gather(self, x: tb.Tensor, shapes: Sequence[Shape]) -> list[tb.Tensor]:
        """Send it to every rank."""
        what = asked = f"all_gather of {x.dtype} in shapes {[*map(tuple, shapes)]}"
        if tuple(x.shape) != tuple(shapes[self._rank]):
            asked = f"{what}, though its own has shape {x.shape}"
        return self._gather(what, asked, x, shapes)

    def reduce_scatter(self, xs: Sequence[tb.Tensor], reduction: str) -> tb.Tensor:
        """Let NCCL combine each rank's part."""
        what = f"reduce_scatter {reduction} of {', '.join(map(_spec, xs))}"
        session, mine = self._on(xs[0]), xs[self._rank]
        kind = _kinds(mine, reduction)
        if kind is None:
            return combined(self._exchange(what, what, xs, [mine.shape] * self._size), reduction)
        result = _empty(mine, mine.shape)
        target = _address(result)
        if len({x.size for x in xs}) == 1:
            joined = tb.concat([x.reshape((-1,)) for x in xs])
            source = _address(joined)

            def queue(comm: Any, stream: int) -> None:
                if mine.size:
                    comm.reduceScatter(source, target, mine.size, *kind, stream)
        else:
            parts = [x.contiguous() for x in xs]
            sources = [_address(part) for part in parts]

            def queue(comm: Any, stream: int) -> None:
                def reduce_all() -> None:
                    for root, part in enumerate(parts):
                        if part.size:
                            into = target if root == self._rank else sources[root]
                            comm.reduce(sources[root], into, part.size, *kind, root, stream)

                session.together(reduce_all)

        session.agreed(what, what, queue)
        return result

    def all_to_all(self, xs: Sequence[tb.Tensor], shapes: Sequence[Shape]) -> list[tb.Tensor]:
        """Send each rank its part, once all have said what they send."""
        what = f"all_to_all of {xs[0].dtype}"
        table = [list(x.shape) for x in xs]
        axes = max(len(shape) for shape in [*table, *shapes, (0,)]) + 1
        rows = [[len(shape), *shape] + [0] * (axes - 1 - len(shape)) for shape in table]
        sizes = tb.tensor(rows, dtype="int64", device=xs[0].device)
        session = self._on(xs[0])
        everyone = _empty(sizes, (self._size, self._size, axes))
        source, target, number = _address(sizes), _address(everyone), session.number("INT64")
        asked = f"{what} of up to {axes - 1} axes"
        session.agreed(
            what, asked, lambda comm, stream: comm.allGather(source, target, sizes.size, number, stream)
        )
        sent = [tuple(row[self._rank][1 : 1 + row[self._rank][0]]) for row in everyone.tolist()]
        fits = [*map(tuple, shapes)] == sent
        told = (
            "as was said" if fits else f"rank {self._rank} was told {[*map(tuple, shapes)]} and gets {sent}"
        )
        session.agreed(what, f"{what}, {told}", lambda comm, stream: None)
        return self._exchange(what, what, xs, shapes)

    def broadcast(self, x: tb.Tensor, root: int) -> tb.Tensor:
        """Send the root's to every rank."""
        what, session = f"broadcast of {_spec(x)} from place {root}", self._on(x)
        own, result = x.contiguous(), _empty(x, x.shape)
        source, target, number = _address(own), _address(result), session.number("UINT8")

        def queue(comm: Any, stream: int) -> None:
            if own.size:
                comm.broadcast(source, target, own.nbytes, number, root, stream)

        session.agreed(what, what, queue)
        return result

    def send(self, x: tb.Tensor, to: int) -> None:
        """Send what it is, then its bytes."""
        what, session, own = f"send of {_spec(x)}", self._on(x), x.contiguous()
        text = f"{_spec(x)} {x.nbytes}".encode().ljust(_HEAD)
        head = tb.tensor(list(text), dtype="uint8", device=x.device)
        number = session.number("UINT8")

        def give(part: tb.Tensor) -> None:
            source = _address(part)
            session.run(what, lambda comm, stream: comm.send(source, part.nbytes, number, to, stream))

        give(head)
        if own.size:
            give(own)

    def receive(self, like: tb.Tensor, source: int) -> tb.Tensor:
        """Wait for what it is, then for its bytes; what is of another shape is taken as well, and refused."""
        what, session = f"recv of {_spec(like)}", self._on(like)
        number = session.number("UINT8")

        def take(into: tb.Tensor) -> None:
            target = _address(into)
            session.run(what, lambda comm, stream: comm.recv(target, into.nbytes, number, source, stream))

        head = tb.empty((_HEAD,), dtype="uint8", device=like.device)
        take(head)
        spec, _, length = bytes(head.tolist()).decode().strip().rpartition(" ")
        if spec != _spec(like):
            if int(length):
                take(tb.empty((int(length),), dtype="uint8", device=like.device))
            raise DistributedError(f"recv: {_spec(like)} was asked for, but what was sent is {spec}.")
        result = _empty(like, like.shape)
        if result.size:
            take(result)
        return result

    def barrier(self) -> None:
        """Wait for all ranks."""
        session = self._session or self._at(tb.Device("cuda").index)
        session.agreed("barrier", "barrier", lambda comm, stream: None)

    def abort(self, reason: str) -> None:
        """End what waits, on the GPU too."""
        self._ended = self._ended or reason
        if self._session is not None:
            self._session.end(reason)

    def close(self) -> None:
        """Give NCCL's communicator back."""
        self._ended = self._ended or "the group was closed"
        if self._session is not None:
            self._session.close()

    def _on(self, x: tb.Tensor) -> Session:
        return self._at(x.device.index)

    def _at(self, index: int) -> Session:
        if self._ended:
            raise DistributedError(f"the group has ended: {self._ended}.")
        if self._session is None:
            self._session = Session(self._meeting, index)
        if self._session.index != index:
            raise DistributedError(
                f"this rank of group {self._meeting.name!r} communicates on cuda:{self._session.index}, and a"
                f" tensor lies on cuda:{index}. Move it there, or make another group by new_group for it."
            )
        return self._session

    def _gather(self, what: str, asked: str, x: tb.Tensor, shapes: Sequence[Shape]) -> list[tb.Tensor]:
        """Return every rank's tensor: each rank's is sent to all."""
        session, own = self._on(x), x.contiguous()
        results = [_empty(x, shape) for shape in shapes]
        source, targets, number = _address(own), [_address(y) for y in results], session.number("UINT8")

        def queue(comm: Any, stream: int) -> None:
            def send_all() -> None:
                for root, result in enumerate(results):
                    if result.size:
                        begin = source if root == self._rank else targets[root]
                        comm.broadcast(begin, targets[root], result.nbytes, number, root, stream)

            if asked == what:
                session.together(send_all)

        session.agreed(what, asked, queue)
        return results

    def _exchange(
        self, what: str, asked: str, xs: Sequence[tb.Tensor], shapes: Sequence[Shape]
    ) -> list[tb.Tensor]:
        """Send ``xs[k]`` to rank k, and return what all sent here, whose shapes are ``shapes``."""
        session, own = self._on(xs[0]), [x.contiguous() for x in xs]
        results = [_empty(xs[0], shape) for shape in shapes]
        sources, targets = [_address(x) for x in own], [_address(y) for y in results]
        number = session.number("UINT8")

        def queue(comm: Any, stream: int) -> None:
            def send_all() -> None:
                for peer in range(self._size):
                    if own[peer].size:
                        comm.send(sources[peer], own[peer].nbytes, number, peer, stream)
                    if results[peer].size:
                        comm.recv(targets[peer], results[peer].nbytes, number, peer, stream)

            session.together(send_all)

        session.agreed(what, asked, queue)
        return results


def _kinds(x: tb.Tensor, reduction: str) -> tuple[int, int] | None:
    """Return NCCL's numbers of the dtype and the reduction; None where it does not have them as they are."""
    from cupy.cuda import nccl

    name = str(x.dtype)
    exact = reduction in ("sum", "product") or (reduction in ("min", "max") and x.dtype.is_integer)
    if not exact or not hasattr(nccl, f"NCCL_{_NUMBERS.get(name)}"):
        return None
    return getattr(nccl, f"NCCL_{_NUMBERS[name]}"), getattr(nccl, f"NCCL_{_REDUCTIONS[reduction]}")


def _empty(like: tb.Tensor, shape: Shape) -> tb.Tensor:
    return tb.empty(tuple(shape), dtype=like.dtype, device=like.device)


def _address(x: tb.Tensor) -> int:
    """Return where the elements of a contiguous tensor begin; 0 where it has none."""
    import cupy

    if not x.size:
        return 0
    with cupy.cuda.Device(x.device.index):
        stream = cupy.cuda.get_current_stream().ptr or _DEFAULT
    capsule = from_capsule(x, frozenset({x.dtype}), stream=stream)
    return int(capsule.address or 0) + capsule.offset * x.dtype.itemsize


def _spec(x: tb.Tensor) -> str:
    return f"{x.dtype}{[*x.shape]}"
