"""Messages between two ranks, with the names and arguments of PyTorch's.

Between two ranks they arrive in the order in which they were sent. On devices whose work communicators queue,
a group's calls are made one after the other: ranks that send to each other at once do so by
``batch_isend_irecv``, whatever connects them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import ArgumentError
from ...tensor.tensor import Tensor
from ..process_group.group import ProcessGroup
from ..process_group.work import Work
from .functional import check_tensors
from .operations import group_or_all, place_of, put


def send(tensor: Tensor, dst: int, group: ProcessGroup | None = None) -> None:
    """Send ``tensor`` to rank ``dst``, which calls ``recv``; it may be changed afterwards."""
    isend(tensor, dst, group).wait()


def recv(tensor: Tensor, src: int, group: ProcessGroup | None = None) -> int:
    """Put what rank ``src`` sends next into ``tensor``, which has its shape and dtype; return ``src``."""
    irecv(tensor, src, group).wait()
    return src


def isend(tensor: Tensor, dst: int, group: ProcessGroup | None = None) -> Work:
    """Send ``tensor`` to rank ``dst`` beside the program; it is not changed before ``wait()`` returns."""
    check_tensors("send", tensor)
    ranks = group_or_all(group)
    to = _other("send", ranks, dst)
    x = tensor.detach()
    return ranks.submit("send", [x], lambda c: c.send(x, to), needs=[to])


def irecv(tensor: Tensor, src: int, group: ProcessGroup | None = None) -> Work:
    """Receive from rank ``src`` beside the program; ``wait()`` puts it into ``tensor``."""
    check_tensors("recv", tensor)
    ranks = group_or_all(group)
    source = _other("recv", ranks, src)
    x = tensor.detach()
    return ranks.submit(
        "recv", [x], lambda c: c.receive(x, source), lambda value: put(tensor, value), needs=[source]
    )


@dataclass(frozen=True, slots=True)
class P2POp:
    """A message for ``batch_isend_irecv``: ``op`` is ``isend`` or ``irecv``, of ``tensor``, and ``peer``."""

    op: Callable[..., Work]
    tensor: Tensor
    peer: int
    group: ProcessGroup | None = None

    def __post_init__(self) -> None:
        if self.op not in (isend, irecv):
            raise ArgumentError(f"P2POp: op must be distributed.isend or distributed.irecv, got {self.op!r}.")
        check_tensors("P2POp", self.tensor)


def batch_isend_irecv(p2p_op_list: Sequence[P2POp]) -> list[Work]:
    """Send and receive at once, beside the program; wait for each handle that is returned.

    Neither waits for another, so that ranks may send to each other, around a ring say, whatever they list
    first. The messages are of one group, and of tensors on one type of device. Raises ``ArgumentError`` for
    others.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank():
    ...     here, size = dist.get_rank(), dist.get_world_size()
    ...     mine, other = tb.full((2,), here, device="cpu"), tb.zeros(2, dtype="int64", device="cpu")
    ...     batch = [dist.P2POp(dist.isend, mine, (here + 1) % size)]
    ...     batch += [dist.P2POp(dist.irecv, other, (here - 1) % size)]
    ...     for work in dist.batch_isend_irecv(batch):
    ...         work.wait()
    ...     return other.tolist()
    >>> dist.run_ranks(rank, 3)
    [[2, 2], [0, 0], [1, 1]]
    """
    ops = list(p2p_op_list)
    if not ops or not all(isinstance(op, P2POp) for op in ops):
        raise ArgumentError(f"batch_isend_irecv: a list of P2POp is needed, got {p2p_op_list!r}.")
    group = group_or_all(ops[0].group)
    if any(group_or_all(op.group) is not group for op in ops):
        raise ArgumentError("batch_isend_irecv: the messages of a list are of one group; make one list each.")
    if len(kinds := sorted({op.tensor.device.type for op in ops})) > 1:
        raise ArgumentError(
            f"batch_isend_irecv: the tensors of a list lie on one type of device, got {', '.join(kinds)}."
        )
    sends, receives, targets = [], [], []
    for op in ops:
        message = op.tensor.detach(), _other("batch_isend_irecv", group, op.peer)
        if op.op is isend:
            sends.append(message)
        else:
            receives.append(message)
            targets.append(op.tensor)

    def exchange(communicator: Any) -> list[Tensor]:
        at_once = getattr(communicator, "exchange", None)
        if at_once is None:
            return _in_order(communicator, group.rank, sends, receives)
        received: list[Tensor] = at_once(sends, receives)
        return received

    def finish(values: Sequence[Tensor]) -> None:
        for target, value in zip(targets, values, strict=True):
            put(target, value)

    needs = sorted({peer for _, peer in (*sends, *receives)})
    tensors = [x for x, _ in (*sends, *receives)]
    peers = [("send", to) for _, to in sends] + [("recv", source) for _, source in receives]
    return [group.submit("batch_isend_irecv", tensors, exchange, finish, needs=needs, peers=peers)]


def _in_order(
    communicator: Any, here: int, sends: Sequence[tuple[Tensor, int]],
    receives: Sequence[tuple[Tensor, int]],
) -> list[Tensor]:  # fmt: skip
    """Send and receive one after the other, each rank in one order of all pairs of ranks.

    So none waits for ever, even where a message waits for its receiver: of all messages that are left, both
    ranks of the first one are at it.
    """
    steps = [(min(here, to), max(here, to), here > to, k, True) for k, (_, to) in enumerate(sends)]
    steps += [
        (min(here, source), max(here, source), source > here, k, False)
        for k, (_, source) in enumerate(receives)
    ]
    received: dict[int, Tensor] = {}
    for *_, place, is_send in sorted(steps):
        x, peer = sends[place] if is_send else receives[place]
        if is_send:
            communicator.send(x, peer)
        else:
            received[place] = communicator.receive(x, peer)
    return [received[place] for place in range(len(receives))]


def _other(name: str, group: ProcessGroup, rank: int) -> int:
    place = place_of(name, group, rank)
    if place == group.rank:
        raise ArgumentError(f"{name}: rank {rank} would send to itself.")
    return place
