"""Collectives of processes with a GPU each, by NCCL."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate, pairwise
from math import prod
from typing import Any, Final

import tensorbus as tb
from tensorbus.backend_api import DType, Rendezvous, combined, device_address, device_contiguous, device_empty
from tensorbus.errors import DistributedError

from .arrivals import HEAD, Arrivals, head_of
from .session import Session

_NUMBERS: Final = {
    "int8": "INT8", "uint8": "UINT8", "int32": "INT32", "uint32": "UINT32", "int64": "INT64",
    "uint64": "UINT64", "float16": "FLOAT16", "bfloat16": "BFLOAT16", "float32": "FLOAT32",
    "float64": "FLOAT64",
}  # fmt: skip
"""What NCCL calls dtypes."""
_REDUCTIONS: Final = {"sum": "SUM", "product": "PROD", "min": "MIN", "max": "MAX"}
_HEADS: Final = 256
"""How many heads of messages are kept."""
Shape = tuple[int, ...]
Queue = Callable[[], None]
_Bytes = tuple[int, int, int]
"""Where bytes begin, how many they are, and the rank that they go to or come from."""


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
    """One process's end of a group. Its work goes into the stream that is current on the tensors' GPU."""

    queues = True
    is_capturable = in_place = True

    def __init__(self, rendezvous: Rendezvous) -> None:
        self._meeting, self._rank, self._size = rendezvous, rendezvous.rank, rendezvous.size
        self._session: Session | None = None
        self._ended = ""
        self._arrivals = Arrivals()
        self._heads: dict[tuple[str, int], tuple[tb.Tensor, int, Any]] = {}
        """What goes in front of messages, where it lies, and its stream: by what it says, and that stream.

        Each is made, sent and given back in one stream, whose order is enough; it is held, so that no other
        stream gets its number.
        """

    def all_reduce(self, x: tb.Tensor, reduction: str) -> tb.Tensor:
        """Let NCCL combine; or each rank a part, of what NCCL does not have."""
        session = self._on(x)
        kind = _kind(x.dtype, reduction)
        if kind is None:
            flat = x.reshape((-1,))
            parts = [
                flat[a:b] for a, b in pairwise(flat.size * k // self._size for k in range(self._size + 1))
            ]
            received = self.all_to_all(parts, [parts[self._rank].shape] * self._size)
            whole = self.all_gather(combined(received, reduction), [part.shape for part in parts])
            return tb.concat(whole).reshape(x.shape)
        own, source = _packed(x)
        result, target = _new(x, x.shape)
        if own.size:
            session.run(
                "all_reduce",
                lambda comm, stream: comm.allReduce(source, target, own.size, *kind, stream),
            )
        return result

    def all_gather(self, x: tb.Tensor, shapes: Sequence[Shape]) -> list[tb.Tensor]:
        """Send it to every rank: by NCCL's all-gather where all are of one size."""
        self._check_shape("all_gather", x, shapes)
        if len({prod(shape) for shape in shapes}) == 1:
            whole = self.all_gather_flat(x, shapes)
            return [whole[k * x.size : (k + 1) * x.size].reshape(y) for k, y in enumerate(shapes)]
        session, (_, source) = self._on(x), _packed(x)
        results, number = [_new(x, shape) for shape in shapes], session.number("UINT8")

        def queue(comm: Any, stream: int) -> None:
            for root, (result, target) in enumerate(results):
                if result.size:
                    begin = source if root == self._rank else target
                    comm.broadcast(begin, target, result.nbytes, number, root, stream)

        session.run("all_gather", queue, together=True)
        return [result for result, _ in results]

    def all_gather_flat(self, x: tb.Tensor, shapes: Sequence[Shape]) -> tb.Tensor:
        """Send it to every rank, which has all of them in one tensor."""
        self._check_shape("all_gather", x, shapes)
        if len({prod(shape) for shape in shapes}) > 1:
            return tb.concat([part.reshape((-1,)) for part in self.all_gather(x, shapes)])
        session, (own, source) = self._on(x), _packed(x)
        whole, target = _new(x, (self._size * own.size,))
        number = session.number("UINT8")
        if own.size:
            session.run(
                "all_gather", lambda comm, stream: comm.allGather(source, target, own.nbytes, number, stream)
            )
        return whole

    def reduce_scatter(self, xs: Sequence[tb.Tensor], reduction: str) -> tb.Tensor:
        """Let NCCL combine each rank's part."""
        session, mine = self._on(xs[0]), xs[self._rank]
        kind = _kind(mine.dtype, reduction)
        if kind is None:
            return combined(self.all_to_all(xs, [mine.shape] * self._size), reduction)
        if len({x.size for x in xs}) == 1:
            joined = tb.concat([x.reshape((-1,)) for x in xs])
            return self.reduce_scatter_flat(joined, reduction).reshape(mine.shape)
        result, target = _new(mine, mine.shape)
        parts = [_packed(x) for x in xs]

        def queue(comm: Any, stream: int) -> None:
            for root, (part, begin) in enumerate(parts):
                if part.size:
                    into = target if root == self._rank else begin
                    comm.reduce(begin, into, part.size, *kind, root, stream)

        session.run("reduce_scatter", queue, together=True)
        return result

    def reduce_scatter_flat(self, x: tb.Tensor, reduction: str) -> tb.Tensor:
        """Let NCCL combine each rank's part of a tensor that holds all of them."""
        session, kind, size = self._on(x), _kind(x.dtype, reduction), x.size // self._size
        if kind is None:
            flat = x.reshape((-1,))
            parts = [flat[k * size : (k + 1) * size] for k in range(self._size)]
            return combined(self.all_to_all(parts, [(size,)] * self._size), reduction)
        (own, source), (result, target) = _packed(x), _new(x, (size,))
        if own.size:
            session.run(
                "reduce_scatter",
                lambda comm, stream: comm.reduceScatter(source, target, size, *kind, stream),
            )
        return result

    def all_to_all(self, xs: Sequence[tb.Tensor], shapes: Sequence[Shape]) -> list[tb.Tensor]:
        """Send each rank its part. What stays here is copied: NCCL may hang in messages to oneself."""
        session, here, mine = self._on(xs[0]), self._rank, xs[self._rank]
        self._check_shape("all_to_all", mine, shapes)
        own = [_packed(x) for x in xs]
        results, number = [_new(xs[0], shape) for shape in shapes], session.number("UINT8")

        def queue(comm: Any, stream: int) -> None:
            for peer, ((part, source), (result, target)) in enumerate(zip(own, results, strict=True)):
                if part.size and peer != here:
                    comm.send(source, part.nbytes, number, peer, stream)
                if result.size and peer != here:
                    comm.recv(target, result.nbytes, number, peer, stream)

        session.run("all_to_all", queue, together=True)
        return [mine.clone() if peer == here else result for peer, (result, _) in enumerate(results)]

    def broadcast(self, x: tb.Tensor, root: int) -> tb.Tensor:
        """Send the root's to every rank."""
        session, (own, source), (result, target) = self._on(x), _packed(x), _new(x, x.shape)
        number = session.number("UINT8")
        if own.size:
            session.run(
                "broadcast",
                lambda comm, stream: comm.broadcast(source, target, own.nbytes, number, root, stream),
            )
        return result

    def all_reduce_into(self, x: tb.Tensor, reduction: str, out: tb.Tensor) -> Queue | None:
        """Return what lets NCCL combine."""
        kind, size = _kind(x.dtype, reduction), x.size
        return kind and self._into(
            "all_reduce",
            x,
            out,
            lambda comm, source, target, stream: comm.allReduce(source, target, size, *kind, stream),
        )

    def all_gather_into(self, x: tb.Tensor, sizes: Sequence[int], out: tb.Tensor) -> Queue | None:
        """Return what sends it to every rank; of parts of other sizes, what sends each."""
        nbytes, item = x.nbytes, x.dtype.itemsize
        if len({*sizes}) == 1:
            return self._into(
                "all_gather",
                x,
                out,
                lambda comm, source, target, stream: comm.allGather(source, target, nbytes, _bytes(), stream),
            )
        starts = [item * start for start in accumulate(sizes, initial=0)]

        def queue(comm: Any, source: int, target: int, stream: int) -> None:
            for root, (start, end) in enumerate(pairwise(starts)):
                if end > start:
                    place = target + start
                    begin = source if root == self._rank else place
                    comm.broadcast(begin, place, end - start, _bytes(), root, stream)

        return self._into("all_gather", x, out, queue, together=True)

    def reduce_scatter_into(
        self, x: tb.Tensor, reduction: str, sizes: Sequence[int], out: tb.Tensor
    ) -> Queue | None:
        """Return what lets NCCL combine each rank's part; of parts of other sizes, one by one."""
        kind, item = _kind(x.dtype, reduction), x.dtype.itemsize
        if kind is None:
            return None
        if len({*sizes}) == 1:
            return self._into(
                "reduce_scatter", x, out,
                lambda comm, source, target, stream: comm.reduceScatter(
                    source, target, sizes[0], *kind, stream
                ),
            )  # fmt: skip
        starts = [*accumulate(sizes, initial=0)]

        def queue(comm: Any, source: int, target: int, stream: int) -> None:
            for root, (start, end) in enumerate(pairwise(starts)):
                if end > start:
                    begin = source + start * item
                    into = target if root == self._rank else begin
                    comm.reduce(begin, into, end - start, *kind, root, stream)

        return self._into("reduce_scatter", x, out, queue, together=True)

    def broadcast_into(self, x: tb.Tensor, root: int, out: tb.Tensor) -> Queue | None:
        """Return what sends the root's to every rank."""
        nbytes = x.nbytes
        return self._into(
            "broadcast", x, out,
            lambda comm, source, target, stream: comm.broadcast(
                source, target, nbytes, _bytes(), root, stream
            ),
        )  # fmt: skip

    def _into(
        self, what: str, x: tb.Tensor, out: tb.Tensor, queue: Callable[..., None], together: bool = False
    ) -> Queue | None:
        """Return what gives a call on operand and result to NCCL; None where the operand is not packed.

        A rank that has no elements of its own takes part all the same.
        """
        session = self._on(x)
        source = device_address(x)
        target = source if out is x else device_address(out)
        if source is None or target is None:
            return None
        if not x.size and not out.size:
            return lambda: None
        return lambda: session.run(what, lambda comm, stream: queue(comm, source, target, stream), together)

    def send(self, x: tb.Tensor, to: int) -> None:
        """Send what it is, then its bytes."""
        self.exchange([(x, to)], [])

    def receive(self, like: tb.Tensor, source: int) -> tb.Tensor:
        """Take what it is, then its bytes. The host waits for neither.

        A message of another shape or dtype ends the group, before the host reads a value behind it.
        """
        return self.exchange([], [(like, source)])[0]

    def exchange(
        self, sends: Sequence[tuple[tb.Tensor, int]], receives: Sequence[tuple[tb.Tensor, int]]
    ) -> list[tb.Tensor]:
        """Send and receive together: what each message is, then the bytes of all.

        All memory comes first: to get some may wait for the device, which then waits for other ranks.
        """
        session = self._on((*sends, *receives)[0][0])
        own = [(_packed(x), to) for x, to in sends]
        held = [self._head(session, x) for x, _ in sends]  # the next one may push one out
        heads = [(head[1], HEAD, to) for head, (_, to) in zip(held, sends, strict=True)]
        arriving = [device_empty((HEAD,), tb.uint8, like.device) for like, _ in receives]
        starts = [device_address(head) or 0 for head in arriving]
        peers = [source for _, source in receives]
        results = [_new(like, like.shape) for like, _ in receives]
        places = [session.host_memory(HEAD) for _ in receives]
        self._together(session, heads, [(at, HEAD, source) for at, source in zip(starts, peers, strict=True)])
        for (like, _), head, at, memory in zip(receives, arriving, starts, places, strict=True):
            session.to_host(at, memory, HEAD)
            there = tb.Event(like.device)
            there.record()
            self._arrivals.expect(there, memory, _spec(like), head)
        self._together(
            session, [(source, part.nbytes, to) for (part, source), to in own],
            [(target, result.nbytes, k) for (result, target), k in zip(results, peers, strict=True)],
        )  # fmt: skip
        return [result for result, _ in results]

    def _head(self, session: Session, x: tb.Tensor) -> tuple[tb.Tensor, int, Any]:
        """Return the bytes that say what a message is, where they lie, and their stream."""
        spec, current = _spec(x), session.stream()
        head = self._heads.get((spec, current.ptr))
        if head is None:
            if len(self._heads) >= _HEADS:
                self._heads.clear()
            says = tb.tensor(list(head_of(spec)), dtype="uint8", device=x.device)
            head = self._heads[spec, current.ptr] = *_packed(says), current
        return head

    def _together(self, session: Session, sends: Sequence[_Bytes], receives: Sequence[_Bytes]) -> None:
        """Give NCCL messages of which none waits for another; those without bytes are not sent."""
        number = session.number("UINT8")

        def queue(comm: Any, stream: int) -> None:
            for start, size, to in sends:
                if size:
                    comm.send(start, size, number, to, stream)
            for start, size, source in receives:
                if size:
                    comm.recv(start, size, number, source, stream)

        count = sum(size > 0 for _, size, _ in (*sends, *receives))
        if count:
            session.run("exchange" if sends and receives else "send" if sends else "recv", queue, count > 1)

    def prepare(self, device: tb.Device) -> None:
        """Connect NCCL on a GPU, once all ranks are here."""
        if device.type == "cuda" and self._session is None:
            self._session = Session(self._meeting, device.index)

    def barrier(self) -> None:
        """Combine a number of each rank, whatever it is; core waits for it."""
        index = self._session.index if self._session is not None else tb.device("cuda").index
        self.all_reduce(device_empty((1,), tb.int32, tb.Device("cuda", index)), "sum")

    def problem(self) -> str:
        """Return what NCCL tells has failed meanwhile, or which message was another one; "" for nothing."""
        if self._session is None or self._ended:
            return ""
        return self._arrivals.problem() or self._session.problem()

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

    def _check_shape(self, what: str, x: tb.Tensor, shapes: Sequence[Shape]) -> None:
        """Raise where the rank's own part has another shape than the ranks were told."""
        expected = tuple(shapes[self._rank])
        if x.shape != expected:
            raise DistributedError(
                f"{what}: this rank's part is {_spec(x)}, but {[*expected]} was said of it."
            )

    def _on(self, x: tb.Tensor) -> Session:
        if self._ended:
            raise DistributedError(f"the group has ended: {self._ended}.")
        if self._session is None:
            self.prepare(x.device)
        index, session = x.device.index, self._session
        if session is None or session.index != index:
            place = "no GPU" if session is None else f"cuda:{session.index}"
            raise DistributedError(
                f"this rank of group {self._meeting.name!r} communicates on {place}, and a tensor"
                f" lies on {x.device}. Move it there, or make another group by new_group for it."
            )
        return session


@cache
def _kind(dtype: DType, reduction: str) -> tuple[int, int] | None:
    """Return NCCL's numbers of the dtype and the reduction; None where it does not have them as they are."""
    from cupy.cuda import nccl

    exact = reduction in ("sum", "product") or (reduction in ("min", "max") and dtype.is_integer)
    name = f"NCCL_{_NUMBERS.get(str(dtype))}"
    if not exact or not hasattr(nccl, name):
        return None
    return getattr(nccl, name), getattr(nccl, f"NCCL_{_REDUCTIONS[reduction]}")


@cache
def _bytes() -> int:
    """Return NCCL's number of the dtype of what is moved as it is."""
    from cupy.cuda import nccl

    return int(nccl.NCCL_UINT8)


def _new(like: tb.Tensor, shape: Shape) -> tuple[tb.Tensor, int]:
    """Return a new tensor and where its elements begin."""
    result = device_empty(shape, like.dtype, like.device)
    return result, device_address(result) or 0


def _packed(x: tb.Tensor) -> tuple[tb.Tensor, int]:
    """Return a tensor with its elements in C order, and where they begin; 0 where it has none."""
    address = device_address(x)
    if address is None:
        x = device_contiguous(x)
        address = device_address(x)
    return x, address or 0


def _spec(x: tb.Tensor) -> str:
    return f"{x.dtype}{[*x.shape]}"
