"""Collectives and messages of Python objects, with the names and arguments of PyTorch's.

Objects travel by ``pickle``, as tensors of bytes in the host's memory: ranks trust each other.
"""

from __future__ import annotations

import array  # not NumPy: core needs none
import pickle
from collections.abc import Sequence
from typing import Any

from ... import plugins
from ...errors import ArgumentError
from ...interchange.host_array import asarray
from ...ops.creation.creation import DeviceLike, empty
from ...tensor.tensor import Tensor
from ..process_group.group import ProcessGroup
from ..process_group.membership import by_members
from . import functional
from .calls import group_or_all, place_of
from .messages import recv, send
from .operations import gather, scatter


@by_members
def all_gather_object(object_list: list[Any], obj: Any, group: ProcessGroup | None = None) -> None:
    """Put every rank's ``obj`` into ``object_list``, whose length is the number of ranks.

    Raises ``ArgumentError`` for another length, and what ``pickle`` raises for an object that it does not
    take.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank() -> list[str]:
    ...     names = [""] * dist.get_world_size()
    ...     dist.all_gather_object(names, f"rank {dist.get_rank()}")
    ...     return names
    >>> dist.run_ranks(rank, 2)[1]
    ['rank 0', 'rank 1']
    """
    ranks = group_or_all(group)
    _check_length("all_gather_object", "object_list", object_list, ranks.size)
    data = _packed(obj)
    lengths = functional.all_gather(_length(data), group=ranks).tolist()
    joined = bytes(functional.all_gather(data, lengths=lengths, group=ranks).numpy())
    start = 0
    for place, length in enumerate(lengths):
        object_list[place] = pickle.loads(joined[start : start + length])
        start += length


@by_members
def gather_object(
    obj: Any, object_gather_list: list[Any] | None = None, dst: int | None = None,
    group: ProcessGroup | None = None, group_dst: int | None = None,
) -> None:  # fmt: skip
    """Put every rank's ``obj`` into ``object_gather_list`` of rank ``dst``; the others give none.

    Raises as ``all_gather_object`` does, and ``ArgumentError`` for a list elsewhere, or none on ``dst``.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank() -> list[int] | None:
    ...     seen = [0, 0] if dist.get_rank() == 1 else None
    ...     dist.gather_object(10 * dist.get_rank(), seen, dst=1)
    ...     return seen
    >>> dist.run_ranks(rank, 2)
    [None, [0, 10]]
    """
    ranks = group_or_all(group)
    is_root = ranks.rank == place_of("gather_object", ranks, dst, group_dst)
    if is_root == (object_gather_list is None):
        raise ArgumentError("gather_object: object_gather_list is given on rank dst, and nowhere else.")
    if object_gather_list is not None:
        _check_length("gather_object", "object_gather_list", object_gather_list, ranks.size)
    data = _packed(obj)
    lengths = functional.all_gather(_length(data), group=ranks).tolist()
    parts = [_blank(length) for length in lengths] if is_root else None
    gather(data, parts, dst, ranks, group_dst=group_dst)
    if object_gather_list is not None:
        object_gather_list[:] = [_unpacked(part) for part in parts or ()]


@by_members
def broadcast_object_list(
    object_list: list[Any], src: int | None = None, group: ProcessGroup | None = None,
    device: DeviceLike = None, group_src: int | None = None,
) -> None:  # fmt: skip
    """Put the objects of rank ``src`` into the others' ``object_list``, as long as its.

    They travel as tensors on ``device``; None: in the host's memory. Raises as ``all_gather_object`` does.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank() -> list[object]:
    ...     options = [{"lr": 0.1}, "adam"] if dist.get_rank() == 0 else [None, None]
    ...     dist.broadcast_object_list(options, src=0)
    ...     return options
    >>> dist.run_ranks(rank, 2)[1]
    [{'lr': 0.1}, 'adam']
    """
    ranks = group_or_all(group)
    root = place_of("broadcast_object_list", ranks, src, group_src)
    data = _packed(list(object_list), device) if ranks.rank == root else _blank(0, device)
    size = functional.broadcast(_length(data), root, ranks).tolist()[0]
    if ranks.rank == root:
        functional.broadcast(data, root, ranks)
        return
    objects = _unpacked(functional.broadcast(_blank(size, device), root, ranks))
    _check_length("broadcast_object_list", "object_list", object_list, len(objects))
    object_list[:] = objects


@by_members
def scatter_object_list(
    scatter_object_output_list: list[Any], scatter_object_input_list: Sequence[Any] | None = None,
    src: int | None = None, group: ProcessGroup | None = None, group_src: int | None = None,
) -> None:  # fmt: skip
    """Put the object that rank ``src`` has for this rank in front of ``scatter_object_output_list``.

    ``scatter_object_input_list`` has one for each rank; other ranks' is not looked at. Raises
    ``ArgumentError`` for another length, and for an output without a place.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank() -> list[str]:
    ...     mine = [""]
    ...     dist.scatter_object_list(mine, ["a.txt", "b.txt"], src=0)
    ...     return mine
    >>> dist.run_ranks(rank, 2)
    [['a.txt'], ['b.txt']]
    """
    ranks = group_or_all(group)
    is_root = ranks.rank == place_of("scatter_object_list", ranks, src, group_src)
    if not scatter_object_output_list:
        raise ArgumentError("scatter_object_list: scatter_object_output_list needs a place, and has none.")
    parts = None
    if is_root:
        objects = scatter_object_input_list or ()
        _check_length("scatter_object_list", "scatter_object_input_list", objects, ranks.size)
        parts = [_packed(x) for x in objects]
    length = _length(_blank(0))
    lengths = None if parts is None else [_length(part) for part in parts]
    scatter(length, lengths, src, ranks, group_src=group_src)
    data = _blank(length.tolist()[0])
    scatter(data, parts, src, ranks, group_src=group_src)
    scatter_object_output_list[0] = _unpacked(data)


@by_members
def send_object_list(
    object_list: Sequence[Any], dst: int | None = None, group: ProcessGroup | None = None,
    device: DeviceLike = None, group_dst: int | None = None,
) -> None:  # fmt: skip
    """Send objects to rank ``dst``, which calls ``recv_object_list`` with the same device.

    Raises as ``send`` does, and what ``pickle`` raises for an object that it does not take.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank() -> list[object]:
    ...     if dist.get_rank() == 0:
    ...         return dist.send_object_list(["a", 1], dst=1)
    ...     objects = [None, None]
    ...     return [dist.recv_object_list(objects, src=0), *objects]
    >>> dist.run_ranks(rank, 2)
    [None, [0, 'a', 1]]
    """
    group_or_all(group)
    data = _packed(list(object_list), device)
    send(_length(data), dst, group, group_dst=group_dst)
    send(data, dst, group, group_dst=group_dst)


@by_members
def recv_object_list(
    object_list: list[Any], src: int | None = None, group: ProcessGroup | None = None,
    device: DeviceLike = None, group_src: int | None = None,
) -> int:  # fmt: skip
    """Put the objects that rank ``src``, None for any, sends next into ``object_list``; return the sender.

    ``send_object_list`` has an example. Raises ``ArgumentError`` where the list is not as long as what comes,
    and as ``recv`` does.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank() -> list[int]:
    ...     if dist.get_rank():
    ...         return dist.send_object_list([10 * dist.get_rank()], dst=0)
    ...     numbers = [0]
    ...     return sorted((dist.recv_object_list(numbers), *numbers) for _ in range(2))
    >>> dist.run_ranks(rank, 3)[0]
    [(1, 10), (2, 20)]
    """
    group_or_all(group)
    length = _length(_blank(0, device))
    sender = recv(length, src, group, group_src=group_src)
    data = _blank(length.tolist()[0], device)
    recv(data, sender, group)
    objects = _unpacked(data)
    _check_length("recv_object_list", "object_list", object_list, len(objects))
    object_list[:] = objects
    return sender


def _packed(obj: Any, device: DeviceLike = None) -> Tensor:
    data = memoryview(array.array("B", pickle.dumps(obj)))
    return asarray(data, dtype="uint8", device=plugins.host_type() if device is None else device)


def _unpacked(data: Tensor) -> Any:
    return pickle.loads(bytes(data.numpy()))


def _length(data: Tensor) -> Tensor:
    return asarray([data.size], device=data.device)


def _blank(length: int, device: DeviceLike = None) -> Tensor:
    return empty((length,), dtype="uint8", device=plugins.host_type() if device is None else device)


def _check_length(name: str, what: str, objects: Sequence[Any], size: int) -> None:
    if len(objects) != size:
        raise ArgumentError(f"{name}: {what} needs {size} places, got {len(objects)}.")
