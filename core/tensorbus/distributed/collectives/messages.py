"""Messages between two ranks, with the names and arguments of PyTorch's.

Between two ranks those of one tag arrive in the order in which they were sent. On devices whose work
communicators queue, a group's calls are made one after the other: ranks that send to each other at once do so
by ``batch_isend_irecv``, whatever connects them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

from ...errors import ArgumentError, DistributedError
from ...tensor.tensor import Tensor
from ..process_group.group import ProcessGroup
from ..process_group.membership import by_members
from ..process_group.work import Work
from .calls import group_or_all, place_of, put
from .functional import check_tensors


def send(
    tensor: Tensor, dst: int | None = None, group: ProcessGroup | None = None, tag: int = 0,
    group_dst: int | None = None,
) -> None:  # fmt: skip
    """Send ``tensor`` to rank ``dst``, which calls ``recv`` with the tag; it may be changed afterwards.

    ``group_dst`` is the rank's place in the group, in the place of ``dst``. Raises ``ArgumentError`` for no
    other rank of the group, ``DistributedError`` and ``DistributedTimeoutError``.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank() -> list[float]:
    ...     x = tb.full((2,), 1.0 - dist.get_rank(), device="cpu")
    ...     dist.recv(x, src=0) if dist.get_rank() else dist.send(x, dst=1)
    ...     return x.tolist()
    >>> dist.run_ranks(rank, 2)
    [[1.0, 1.0], [1.0, 1.0]]
    """
    work = isend(tensor, dst, group, tag, group_dst)
    if work is not None:  # of a rank of the group
        work.wait()


def recv(
    tensor: Tensor, src: int | None = None, group: ProcessGroup | None = None, tag: int = 0,
    group_src: int | None = None,
) -> int:  # fmt: skip
    """Put what rank ``src``, None for any, sends next with the tag into ``tensor``; return the sender.

    ``tensor`` has its shape and dtype. Of messages of several ranks the first to arrive is taken.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank():
    ...     x = tb.full((2,), dist.get_rank(), device="cpu")
    ...     if dist.get_rank():
    ...         return dist.send(x, dst=0, tag=7)
    ...     return sorted((dist.recv(x, tag=7), x.tolist()) for _ in range(2))
    >>> dist.run_ranks(rank, 3)[0]
    [(1, [1, 1]), (2, [2, 2])]
    """
    work = irecv(tensor, src, group, tag, group_src)
    sender: int = -1 if work is None else work.wait()
    return sender


@by_members
def isend(
    tensor: Tensor, dst: int | None = None, group: ProcessGroup | None = None, tag: int = 0,
    group_dst: int | None = None,
) -> Work:  # fmt: skip
    """Send ``tensor`` to rank ``dst`` beside the program; it is not changed before ``wait()`` returns.

    ``group_dst`` is the rank's place in the group, in the place of ``dst``. Raises as ``send`` does, in
    ``wait()`` what comes later.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank() -> float:
    ...     mine, other = tb.ones((), device="cpu") * dist.get_rank(), tb.zeros((), device="cpu")
    ...     sent = dist.isend(mine, 1 - dist.get_rank())
    ...     dist.irecv(other, 1 - dist.get_rank()).wait()
    ...     sent.wait()
    ...     return other.item()
    >>> dist.run_ranks(rank, 2)
    [1.0, 0.0]
    """
    message = _message("send", tensor, dst, group_dst, group, tag)
    assert message.peer is not None
    return group_or_all(group).submit("send", [message.x], message.send, needs=[message.peer])


@by_members
def irecv(
    tensor: Tensor, src: int | None = None, group: ProcessGroup | None = None, tag: int = 0,
    group_src: int | None = None,
) -> Work:  # fmt: skip
    """Receive from rank ``src``, None for any, beside the program.

    ``wait()`` puts it into ``tensor``, and returns the sender. ``group_src`` is the rank's place in the
    group, in the place of ``src``. Messages are given to those who ask in the order in which these asked.
    Raises as ``isend`` does.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank() -> tuple[int, float]:
    ...     x = tb.ones((), device="cpu")
    ...     if dist.get_rank():
    ...         return dist.send(x, dst=0)
    ...     work = dist.irecv(x, src=None)
    ...     return work.wait(), x.item()
    >>> dist.run_ranks(rank, 2)[0]
    (1, 1.0)
    """
    message, ranks = _message("recv", tensor, src, group_src, group, tag), group_or_all(group)
    source = message.peer
    others = [place for place in range(ranks.size) if place != ranks.rank]

    def finish(received: tuple[Tensor, int]) -> int:
        put(tensor, received[0])
        return ranks.ranks[received[1]]

    return ranks.submit(
        "recv", [message.x], message.receive, finish, needs=others if source is None else [source],
        peers=[("recv", source, message.tag)], post=message.post, needs_one=source is None,
    )  # fmt: skip


class _Message:
    """A message of this rank: the place of the other one, None for any, and what was posted for it."""

    def __init__(self, x: Tensor, peer: int | None, tag: int) -> None:
        self.x, self.peer, self.tag = x, peer, tag
        self._posted: Any = None

    def send(self, communicator: Any) -> None:
        """Send it; its memory may be changed then."""
        if self.tag:
            _check_posts(communicator, "a tag")
            communicator.send(self.x, self.peer, self.tag)
        else:
            communicator.send(self.x, self.peer)

    def post(self, communicator: Any) -> None:
        """Ask for it, and wait for nobody."""
        if self._posted is None and _posts(communicator):
            self._posted = communicator.post_receive(self.peer, self.tag)

    def receive(self, communicator: Any) -> tuple[Tensor, int]:
        """Wait for it; return it with the place of its sender."""
        self.post(communicator)
        if self._posted is not None:
            received: tuple[Tensor, int] = communicator.complete_receive(self._posted, self.x)
            return received
        if self.peer is None or self.tag:
            _check_posts(communicator, "a tag" if self.tag else "any rank as its source")
        assert self.peer is not None
        return communicator.receive(self.x, self.peer), self.peer


def _posts(communicator: Any) -> bool:
    return getattr(communicator, "post_receive", None) is not None


def _check_posts(communicator: Any, what: str) -> None:
    if not _posts(communicator):
        raise DistributedError(
            f"distributed: a message with {what} was asked for, but what connects the tensors' device,"
            f" {communicator.name}, matches messages by their sender and their order alone. Name the source"
            f" and leave the tag out, or send a tensor in the host's memory."
        )


def _message(
    name: str, tensor: Tensor, rank: int | None, place: int | None, group: ProcessGroup | None, tag: int
) -> _Message:
    check_tensors(name, tensor)
    ranks = group_or_all(group)
    try:
        number = index(tag)
    except TypeError:
        number = -1
    if not 0 <= number < 1 << 31:
        raise ArgumentError(f"{name}: tag must be an int, 0 to 2**31 - 1, got {tag!r}.")
    if rank is None and place is None and name == "recv":
        if ranks.size == 1:
            raise ArgumentError("recv: the group has no other rank that could send.")
        return _Message(tensor.detach(), None, number)
    if rank is None and place is None:
        raise ArgumentError(f"{name}: the other rank is needed, by its number or by its place in the group.")
    other = place_of(name, ranks, rank, place)
    if other == ranks.rank:
        raise ArgumentError(f"{name}: rank {ranks.ranks[other]} would send to itself.")
    return _Message(tensor.detach(), other, number)


@dataclass(frozen=True, slots=True)
class P2POp:
    """A message for ``batch_isend_irecv``: ``op`` is ``isend`` or ``irecv``, of ``tensor``, and ``peer``.

    ``group_peer`` is the place of the peer in the group, in the place of ``peer``. Raises ``ArgumentError``
    for any other ``op``, and for no tensor.

    >>> import tensorbus as tb
    >>> message = P2POp(isend, tb.ones(2, device="cpu"), 1, tag=7)
    >>> message.peer, message.tag
    (1, 7)
    """

    op: Callable[..., Work]
    tensor: Tensor
    peer: int | None = None
    group: ProcessGroup | None = None
    tag: int = 0
    group_peer: int | None = None

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
    messages = [_message("batch_isend_irecv", x.tensor, x.peer, x.group_peer, group, x.tag) for x in ops]
    sends = [message for message, op in zip(messages, ops, strict=True) if op.op is isend]
    receives = [message for message, op in zip(messages, ops, strict=True) if op.op is irecv]
    targets = [op.tensor for op in ops if op.op is irecv]

    def post(communicator: Any) -> None:
        for message in receives:
            message.post(communicator)

    def finish(values: Sequence[Tensor]) -> None:
        for target, value in zip(targets, values, strict=True):
            put(target, value)

    peers = [("send", message.peer, 0) for message in sends]
    peers += [("recv", message.peer, message.tag) for message in receives]
    return [group.submit(
        "batch_isend_irecv", [message.x for message in (*sends, *receives)],
        lambda c: _exchange(c, group.rank, sends, receives), finish,
        needs=sorted({message.peer for message in messages if message.peer is not None}), peers=peers,
        post=post,
    )]  # fmt: skip


def _exchange(
    communicator: Any, here: int, sends: Sequence[_Message], receives: Sequence[_Message]
) -> list[Tensor]:
    """Send and receive at once what a communicator does so; else one after the other.

    Then each rank goes in one order of all pairs of ranks, so that none waits for ever, even where a message
    waits for its receiver: of all messages that are left, both ranks of the first one are at it.
    """
    if _posts(communicator):
        for message in receives:
            message.post(communicator)
        for message in sends:
            message.send(communicator)
        return [message.receive(communicator)[0] for message in receives]
    if any(message.tag for message in (*sends, *receives)):
        _check_posts(communicator, "a tag")
    at_once = getattr(communicator, "exchange", None)
    if at_once is not None:
        pairs = [[(message.x, message.peer) for message in each] for each in (sends, receives)]
        values: list[Tensor] = at_once(*pairs)
        return values

    def step(message: _Message, is_send: bool) -> tuple[int, int, bool]:
        """Return which ranks a message is between, and whether from the upper one."""
        assert message.peer is not None
        lower, upper = sorted((here, message.peer))
        return lower, upper, (here > message.peer) == is_send

    steps = [(step(message, True), k, True) for k, message in enumerate(sends)]
    steps += [(step(message, False), k, False) for k, message in enumerate(receives)]
    received: dict[int, Tensor] = {}
    for _, place, is_send in sorted(steps):
        if is_send:
            sends[place].send(communicator)
        else:
            received[place] = receives[place].receive(communicator)[0]
    return [received[place] for place in range(len(receives))]
