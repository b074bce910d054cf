"""Collectives that put their results into tensors that exist, with the names and arguments of PyTorch's.

Every one is called by all ranks of ``group`` (None: all ranks of the program), in the same order; ranks in
arguments, such as ``src``, are numbers in the program. With ``async_op=True`` each returns a ``Work``, and
its results are right once ``wait()`` has returned; else None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from ...backend_interface.communication import Shape
from ...errors import ArgumentError
from ...ops.call_errors import with_signature
from ...ops.creation.creation import empty
from ...tensor.tensor import Tensor
from ..process_group.comparison import Parts
from ..process_group.group import ProcessGroup
from ..process_group.membership import by_members
from ..process_group.work import Work
from . import functional
from .calls import (
    alike_tensors,
    check_own,
    do,
    do_raw,
    group_or_all,
    is_eager,
    one_each,
    place_of,
    put,
    same_size,
)  # fmt: skip
from .functional import check_reduction, check_tensors
from .terms import spec

_REDUCTION_NAMES = {
    "avg": "average", "prod": "product", "mean": "average", "band": "bitwise_and", "bor": "bitwise_or",
    "bxor": "bitwise_xor",
}  # fmt: skip


class ReduceOp:
    """PyTorch's names of reductions, each the text that collectives take.

    >>> ReduceOp.AVG, ReduceOp.BXOR
    ('average', 'bitwise_xor')
    """

    SUM, AVG, PRODUCT, MIN, MAX = "sum", "average", "product", "min", "max"
    BAND, BOR, BXOR = "bitwise_and", "bitwise_or", "bitwise_xor"


@by_members
def all_reduce(
    tensor: Tensor, op: str = "sum", group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """Put the combination of all ranks' ``tensor`` into it: shapes and dtypes are the same.

    ``op`` is as for ``functional.all_reduce``, or one of ``ReduceOp``. Raises as that does.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank() -> list[float]:
    ...     x = tb.ones(2, device="cpu") * (dist.get_rank() + 1)
    ...     dist.all_reduce(x)
    ...     return x.tolist()
    >>> dist.run_ranks(rank, 3)[0]
    [6.0, 6.0]
    """
    op = _REDUCTION_NAMES.get(op, op)
    check_reduction("all_reduce", op, tensor)
    if not async_op and is_eager(tensor):
        ranks = group_or_all(group)
        if not functional.all_reduce_in_place(tensor, op, ranks):
            put(tensor, functional.all_reduce_now, tensor, op, ranks)
        return None
    return do(group, [tensor], lambda g: functional.all_reduce(tensor.detach(), op, g), tensor, async_op)


@by_members
def reduce(
    tensor: Tensor, dst: int | None = None, op: str = "sum", group: ProcessGroup | None = None,
    async_op: bool = False, group_dst: int | None = None,
) -> Work | None:  # fmt: skip
    """Put the combination of all ranks' ``tensor`` into that of rank ``dst``; others' stay as they are.

    ``dst`` is 0 where nothing is said, ``group_dst`` its place in the group. Raises as ``all_reduce`` does,
    and ``ArgumentError`` for a rank that is not in the group.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank() -> float:
    ...     x = tb.ones((), device="cpu")
    ...     dist.reduce(x, dst=1)
    ...     return x.item()
    >>> dist.run_ranks(rank, 2)
    [1.0, 2.0]
    """
    op = _REDUCTION_NAMES.get(op, op)
    check_reduction("reduce", op, tensor)
    ranks = group_or_all(group)
    root = place_of("reduce", ranks, dst, group_dst)
    target = tensor if ranks.rank == root else None
    return do(ranks, [tensor], lambda g: functional.all_reduce(tensor.detach(), op, g), target, async_op)


@by_members
def broadcast(
    tensor: Tensor, src: int | None = None, group: ProcessGroup | None = None, async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:  # fmt: skip
    """Put the ``tensor`` of rank ``src`` into that of every rank; shapes and dtypes are the same.

    ``src`` is 0 where nothing is said, ``group_src`` its place in the group. Raises as ``reduce`` does.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank() -> int:
    ...     x = tb.full((), dist.get_rank(), device="cpu")
    ...     dist.broadcast(x, src=1)
    ...     return x.item()
    >>> dist.run_ranks(rank, 2)
    [1, 1]
    """
    check_tensors("broadcast", tensor)
    ranks = group_or_all(group)
    root = place_of("broadcast", ranks, src, group_src)
    return do(ranks, [tensor], lambda g: functional.broadcast(tensor.detach(), root, g), tensor, async_op)


@by_members
def all_gather(
    tensor_list: Sequence[Tensor], tensor: Tensor, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """Put every rank's ``tensor`` into ``tensor_list``, whose shapes say theirs: they may differ.

    Raises ``ArgumentError`` for another number of tensors than ranks, ``DtypeError`` for several dtypes,
    ``ShapeError`` where ``tensor`` is not as its place in the list, and as ``functional.all_gather`` does.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank() -> list[list[int]]:
    ...     parts = [tb.zeros(k + 1, dtype="int64", device="cpu") for k in range(2)]
    ...     dist.all_gather(parts, tb.arange(dist.get_rank() + 1, device="cpu"))
    ...     return [part.tolist() for part in parts]
    >>> dist.run_ranks(rank, 2)
    [[[0], [0, 1]], [[0], [0, 1]]]
    """
    alike_tensors("all_gather", tensor, *tensor_list)
    ranks = group_or_all(group)
    one_each("all_gather", ranks, tensor_list)
    shapes = [x.shape for x in tensor_list]
    check_own("all_gather", ranks, tensor, tensor_list)
    terms = f"of {tensor.dtype} in shapes {shapes}"
    gather = lambda c, x: c.all_gather(x[0], shapes)  # noqa: E731
    return do_raw(ranks, "all_gather", [tensor], gather, tensor_list, async_op, terms)


@by_members
def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """Put all ranks' ``input_tensor`` into ``output_tensor``, one after the other along axis 0.

    Inputs have one shape; the output has room for all, in any shape. Raises ``ShapeError`` where it has not,
    ``DtypeError`` for two dtypes, and as ``functional.all_gather`` does.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank() -> list[int]:
    ...     out = tb.zeros(2, dtype="int64", device="cpu")
    ...     dist.all_gather_into_tensor(out, tb.full((1,), dist.get_rank(), device="cpu"))
    ...     return out.tolist()
    >>> dist.run_ranks(rank, 2)
    [[0, 1], [0, 1]]
    """
    alike_tensors("all_gather_into_tensor", output_tensor, input_tensor)
    ranks = group_or_all(group)
    same_size("all_gather_into_tensor", output_tensor, input_tensor.size * ranks.size)
    shape = output_tensor.shape
    if not async_op and input_tensor.ndim and is_eager(input_tensor, output_tensor):
        lengths = [input_tensor.shape[0]] * ranks.size
        put(output_tensor, functional.all_gather_now, input_tensor, 0, lengths, ranks)
        return None

    def gather(g: ProcessGroup) -> Tensor:
        x = input_tensor.detach()
        return functional.all_gather(x.reshape((1,)) if not x.ndim else x, group=g).reshape(shape)

    return do(ranks, [input_tensor], gather, output_tensor, async_op)


@by_members
def reduce_scatter(
    output: Tensor, input_list: Sequence[Tensor], op: str = "sum", group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Combine the ranks' lists place by place, and put this rank's place into ``output``.

    A list has a tensor for each rank; shapes may differ between places, not between ranks. Raises as
    ``all_gather`` and ``all_reduce`` do.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank() -> list[float]:
    ...     out = tb.zeros(dist.get_rank() + 1, device="cpu")
    ...     dist.reduce_scatter(out, [tb.ones(1, device="cpu"), tb.ones(2, device="cpu")])
    ...     return out.tolist()
    >>> dist.run_ranks(rank, 2)
    [[2.0], [2.0, 2.0]]
    """
    alike_tensors("reduce_scatter", output, *input_list)
    op = _REDUCTION_NAMES.get(op, op)
    ranks = group_or_all(group)
    one_each("reduce_scatter", ranks, input_list)
    same_size("reduce_scatter", output, input_list[ranks.rank].size)
    check_reduction("reduce_scatter", op, output)
    share = 1 / ranks.size if op == "average" else None

    def combine(communicator: Any, parts: list[Tensor]) -> list[Tensor]:
        part = communicator.reduce_scatter(parts, "sum" if share else op) if ranks.size > 1 else parts[0]
        return [part * share if share else part]

    terms = f"{'sum' if share else op} of {', '.join(map(spec, input_list))}"
    return do_raw(ranks, "reduce_scatter", input_list, combine, [output], async_op, terms)


@by_members
def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: str = "sum", group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """Combine the ranks' ``input`` and put this rank's part of axis 0 into ``output``.

    The number of ranks divides axis 0 of ``input``, and ``output`` has room for one part. Raises
    ``ShapeError`` where not, and as ``all_reduce`` does.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank() -> list[int]:
    ...     out = tb.zeros(2, dtype="int64", device="cpu")
    ...     dist.reduce_scatter_tensor(out, tb.arange(4, device="cpu"))
    ...     return out.tolist()
    >>> dist.run_ranks(rank, 2)
    [[0, 2], [4, 6]]
    """
    alike_tensors("reduce_scatter_tensor", output, input)
    op = _REDUCTION_NAMES.get(op, op)
    ranks = group_or_all(group)
    same_size("reduce_scatter_tensor", output, input.size // ranks.size)
    check_reduction("reduce_scatter_tensor", op, input)
    shape = output.shape
    if not async_op and is_eager(input, output) and input.ndim and input.shape[0] % ranks.size == 0:
        lengths = [input.shape[0] // ranks.size] * ranks.size
        put(output, functional.reduce_scatter_now, input, op, 0, lengths, ranks)
        return None
    return do(
        ranks, [input], lambda g: functional.reduce_scatter(input.detach(), op, group=g).reshape(shape),
        output, async_op,
    )  # fmt: skip


@by_members
def all_to_all(
    output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor],
    group: ProcessGroup | None = None, async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Send one tensor to each rank, and put what each sent here into ``output_tensor_list``.

    Both lists have a tensor for each rank; the outputs' shapes say those of what comes, and may differ.
    Raises ``ArgumentError``, ``DtypeError`` and ``DistributedError`` where lists, dtypes or parts do not fit.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank() -> list[int]:
    ...     mine = [tb.full((), 10 * dist.get_rank() + k, device="cpu") for k in range(2)]
    ...     out = [tb.zeros_like(x) for x in mine]
    ...     dist.all_to_all(out, mine)
    ...     return [x.item() for x in out]
    >>> dist.run_ranks(rank, 2)
    [[0, 10], [1, 11]]
    """
    alike_tensors("all_to_all", *output_tensor_list, *input_tensor_list)
    ranks = group_or_all(group)
    one_each("all_to_all", ranks, input_tensor_list)
    one_each("all_to_all", ranks, output_tensor_list)
    shapes = [x.shape for x in output_tensor_list]
    exchange = lambda c, x: c.all_to_all(x, shapes)  # noqa: E731
    terms = f"of {input_tensor_list[0].dtype}"
    parts = Parts([x.size for x in input_tensor_list], [*map(prod, shapes)])
    return do_raw(
        ranks, "all_to_all", input_tensor_list, exchange, output_tensor_list, async_op, terms, parts
    )


@by_members
def all_to_all_single(
    output: Tensor, input: Tensor, output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None, group: ProcessGroup | None = None, async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Send a part of axis 0 to each rank, and put what comes into ``output``, joined along axis 0.

    ``input_split_sizes`` and ``output_split_sizes`` are the lengths of what goes to, and comes from, each
    rank; None: the same for all. Raises ``ShapeError`` where they do not make up the tensors, and as
    ``all_to_all`` does.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank() -> list[int]:
    ...     out = tb.zeros(2, dtype="int64", device="cpu")
    ...     dist.all_to_all_single(out, tb.arange(2, device="cpu") + 10 * dist.get_rank())
    ...     return out.tolist()
    >>> dist.run_ranks(rank, 2)
    [[0, 10], [1, 11]]
    """
    alike_tensors("all_to_all_single", output, input)
    ranks = group_or_all(group)
    receive = output_split_sizes
    if receive is None and output.ndim:
        receive = functional._lengths("all_to_all_single", None, ranks.size, output.shape[0])
    if receive is not None:
        same_size("all_to_all_single", output, sum(receive) * prod(input.shape[1:]))
    return do(
        ranks, [input],
        lambda g: functional.all_to_all(input.detach(), 0, 0, input_split_sizes, receive, g),
        output, async_op,
    )  # fmt: skip


@by_members
def gather(
    tensor: Tensor, gather_list: Sequence[Tensor] | None = None, dst: int | None = None,
    group: ProcessGroup | None = None, async_op: bool = False, group_dst: int | None = None,
) -> Work | None:  # fmt: skip
    """Put every rank's ``tensor`` into ``gather_list`` of rank ``dst``; the others give none.

    The list's shapes say the ranks', which may differ. ``dst`` and ``group_dst`` are as for ``reduce``.
    Raises as ``all_gather`` does, and ``ArgumentError`` for a list elsewhere, or none on ``dst``.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank() -> list[int]:
    ...     x = tb.full((), dist.get_rank(), device="cpu")
    ...     parts = [tb.zeros_like(x) for _ in range(2)] if dist.get_rank() == 0 else None
    ...     dist.gather(x, parts, dst=0)
    ...     return [part.item() for part in parts or ()]
    >>> dist.run_ranks(rank, 2)
    [[0, 1], []]
    """
    alike_tensors("gather", tensor, *(gather_list or ()))
    ranks = group_or_all(group)
    root = place_of("gather", ranks, dst, group_dst)
    if (ranks.rank == root) == (gather_list is None):
        raise ArgumentError("gather: gather_list must be given on rank dst, and nowhere else.")

    def collect(communicator: Any, x: list[Tensor]) -> list[Tensor]:
        if ranks.rank != root:
            _exchange(communicator, ranks, x[0], {root: x[0]}, {})
            return []
        others = {rank: y.shape for rank, y in enumerate(gather_list or ()) if rank != root}
        gathered = _exchange(communicator, ranks, x[0], {}, others)
        return [x[0] if rank == root else y for rank, y in enumerate(gathered)]

    if gather_list is not None:
        one_each("gather", ranks, gather_list)
        check_own("gather", ranks, tensor, gather_list)
    terms = f"of {tensor.dtype} to place {root}"
    due = {rank: x.size for rank, x in enumerate(gather_list or ()) if rank != root}
    parts = _parts(ranks, {} if ranks.rank == root else {root: tensor.size}, due)
    return do_raw(ranks, "gather", [tensor], collect, gather_list or [], async_op, terms, parts)


@by_members
def scatter(
    tensor: Tensor, scatter_list: Sequence[Tensor] | None = None, src: int | None = None,
    group: ProcessGroup | None = None, async_op: bool = False, group_src: int | None = None,
) -> Work | None:  # fmt: skip
    """Put the tensor that rank ``src`` has in ``scatter_list`` for this rank into ``tensor``.

    The shape of ``tensor`` says what comes; ranks' may differ. ``src`` and ``group_src`` are as for
    ``broadcast``. Raises as ``gather`` does.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank() -> int:
    ...     x = tb.zeros((), dtype="int64", device="cpu")
    ...     parts = [tb.full((), 10 * k, device="cpu") for k in range(2)] if dist.get_rank() == 0 else None
    ...     dist.scatter(x, parts, src=0)
    ...     return x.item()
    >>> dist.run_ranks(rank, 2)
    [0, 10]
    """
    alike_tensors("scatter", tensor, *(scatter_list or ()))
    ranks = group_or_all(group)
    root = place_of("scatter", ranks, src, group_src)
    if (ranks.rank == root) == (scatter_list is None):
        raise ArgumentError("scatter: scatter_list must be given on rank src, and nowhere else.")
    if scatter_list is not None:
        one_each("scatter", ranks, scatter_list)
        check_own("scatter", ranks, tensor, scatter_list)

    def hand_out(communicator: Any, x: list[Tensor]) -> list[Tensor]:
        if ranks.rank != root:
            return [_exchange(communicator, ranks, x[0], {}, {root: tensor.shape})[root]]
        others = {rank: part for rank, part in enumerate(x) if rank != root}
        _exchange(communicator, ranks, x[root], others, {})
        return [x[root]]

    inputs = [tensor] if scatter_list is None else scatter_list
    terms = f"of {tensor.dtype} from place {root}"
    sent = {rank: x.size for rank, x in enumerate(scatter_list or ()) if rank != root}
    parts = _parts(ranks, sent, {} if ranks.rank == root else {root: tensor.size})
    return do_raw(ranks, "scatter", inputs, hand_out, [tensor], async_op, terms, parts)


def _parts(group: ProcessGroup, sent: Mapping[int, int], expected: Mapping[int, int]) -> Parts:
    """Return the elements that go to some ranks, and come from some: none to and from the others."""
    ranks = range(group.size)
    return Parts([sent.get(rank, 0) for rank in ranks], [expected.get(rank, 0) for rank in ranks])


def _exchange(
    communicator: Any, group: ProcessGroup, like: Tensor, sent: Mapping[int, Tensor],
    shapes: Mapping[int, Shape],
) -> list[Tensor]:  # fmt: skip
    """Send some ranks something, and return what all sent, of ``shapes``; tensors of others are empty.

    Messages of the program may be under way between the same ranks: they are no part of collectives.
    """
    nothing = empty((0,), dtype=like.dtype, device=like.device)
    ranks = range(group.size)
    result: list[Tensor] = communicator.all_to_all(
        [sent.get(rank, nothing) for rank in ranks], [shapes.get(rank, (0,)) for rank in ranks]
    )
    return result


@with_signature
@by_members
def barrier(group: ProcessGroup | None = None, async_op: bool = False) -> Work | None:
    """Wait until all ranks of the group are here.

    Raises ``DistributedError`` where one will not come, or what the ranks asked for before differs, and
    ``DistributedTimeoutError`` where one does not in time.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> dist.run_ranks(dist.barrier, 3)
    [None, None, None]
    """
    ranks = group_or_all(group)
    if async_op:
        return ranks.submit("barrier", [], lambda c: c.barrier())
    if ranks.size > 1:
        ranks.run("barrier", [], lambda c: c.barrier())
    return None
