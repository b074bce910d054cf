"""Collectives that put their results into tensors that exist, with the names and arguments of PyTorch's.

Every one is called by all ranks of ``group`` (None: all ranks of the program), in the same order; ranks in
arguments, such as ``src``, are numbers in the program. With ``async_op=True`` each returns a ``Work``, and
its results are right once ``wait()`` has returned; else None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from ...autograd.engine import no_grad
from ...backend_interface.communication import Shape
from ...dispatch.modes import is_value_mode
from ...errors import ArgumentError, DistributedError, DtypeError, ShapeError
from ...ops.call_errors import with_signature
from ...ops.creation.creation import empty
from ...tensor.grad_mode import grad_enabled
from ...tensor.tensor import Tensor
from ...tracing.active_modes import active_modes
from ..process_group.comparison import Parts
from ..process_group.group import ProcessGroup, get_group
from ..process_group.membership import by_members
from ..process_group.work import Work
from ..process_group.world import current
from . import functional
from .functional import check_reduction, check_tensors
from .terms import spec

_REDUCTION_NAMES = {
    "avg": "average", "prod": "product", "mean": "average", "band": "bitwise_and", "bor": "bitwise_or",
    "bxor": "bitwise_xor",
}  # fmt: skip


class ReduceOp:
    """PyTorch's names of reductions, each the text that collectives take."""

    SUM, AVG, PRODUCT, MIN, MAX = "sum", "average", "product", "min", "max"
    BAND, BOR, BXOR = "bitwise_and", "bitwise_or", "bitwise_xor"


@by_members
def all_reduce(
    tensor: Tensor, op: str = "sum", group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """Put the combination of all ranks' ``tensor`` into it. ``op`` is as for ``functional.all_reduce``."""
    op = _REDUCTION_NAMES.get(op, op)
    check_reduction("all_reduce", op, tensor)
    if not async_op and _is_eager(tensor):
        ranks = group_or_all(group)
        if not functional.all_reduce_in_place(tensor, op, ranks):
            put(tensor, functional.all_reduce_now, tensor, op, ranks)
        return None
    return _do(group, [tensor], lambda g: functional.all_reduce(tensor.detach(), op, g), tensor, async_op)


@by_members
def reduce(
    tensor: Tensor, dst: int | None = None, op: str = "sum", group: ProcessGroup | None = None,
    async_op: bool = False, group_dst: int | None = None,
) -> Work | None:  # fmt: skip
    """Put the combination of all ranks' ``tensor`` into that of rank ``dst``; others' stay as they are."""
    op = _REDUCTION_NAMES.get(op, op)
    check_reduction("reduce", op, tensor)
    ranks = group_or_all(group)
    root = place_of("reduce", ranks, dst, group_dst)
    target = tensor if ranks.rank == root else None
    return _do(ranks, [tensor], lambda g: functional.all_reduce(tensor.detach(), op, g), target, async_op)


@by_members
def broadcast(
    tensor: Tensor, src: int | None = None, group: ProcessGroup | None = None, async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:  # fmt: skip
    """Put the ``tensor`` of rank ``src`` into that of every rank; shapes and dtypes are the same."""
    check_tensors("broadcast", tensor)
    ranks = group_or_all(group)
    root = place_of("broadcast", ranks, src, group_src)
    return _do(ranks, [tensor], lambda g: functional.broadcast(tensor.detach(), root, g), tensor, async_op)


@by_members
def all_gather(
    tensor_list: Sequence[Tensor], tensor: Tensor, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """Put every rank's ``tensor`` into ``tensor_list``, whose shapes say theirs: they may differ."""
    _alike_tensors("all_gather", tensor, *tensor_list)
    ranks = group_or_all(group)
    _one_each("all_gather", ranks, tensor_list)
    shapes = [x.shape for x in tensor_list]
    _check_own("all_gather", ranks, tensor, tensor_list)
    terms = f"of {tensor.dtype} in shapes {shapes}"
    gather = lambda c, x: c.all_gather(x[0], shapes)  # noqa: E731
    return _raw(ranks, "all_gather", [tensor], gather, tensor_list, async_op, terms)


@by_members
def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """Put all ranks' ``input_tensor`` into ``output_tensor``, one after the other along axis 0."""
    _alike_tensors("all_gather_into_tensor", output_tensor, input_tensor)
    ranks = group_or_all(group)
    _same_size("all_gather_into_tensor", output_tensor, input_tensor.size * ranks.size)
    shape = output_tensor.shape
    if not async_op and input_tensor.ndim and _is_eager(input_tensor, output_tensor):
        lengths = [input_tensor.shape[0]] * ranks.size
        put(output_tensor, functional.all_gather_now, input_tensor, 0, lengths, ranks)
        return None

    def gather(g: ProcessGroup) -> Tensor:
        x = input_tensor.detach()
        return functional.all_gather(x.reshape((1,)) if not x.ndim else x, group=g).reshape(shape)

    return _do(ranks, [input_tensor], gather, output_tensor, async_op)


@by_members
def reduce_scatter(
    output: Tensor, input_list: Sequence[Tensor], op: str = "sum", group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Combine the ranks' lists place by place, and put this rank's place into ``output``."""
    _alike_tensors("reduce_scatter", output, *input_list)
    op = _REDUCTION_NAMES.get(op, op)
    ranks = group_or_all(group)
    _one_each("reduce_scatter", ranks, input_list)
    _same_size("reduce_scatter", output, input_list[ranks.rank].size)
    check_reduction("reduce_scatter", op, output)
    share = 1 / ranks.size if op == "average" else None

    def combine(communicator: Any, parts: list[Tensor]) -> list[Tensor]:
        part = communicator.reduce_scatter(parts, "sum" if share else op) if ranks.size > 1 else parts[0]
        return [part * share if share else part]

    terms = f"{'sum' if share else op} of {', '.join(map(spec, input_list))}"
    return _raw(ranks, "reduce_scatter", input_list, combine, [output], async_op, terms)


@by_members
def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: str = "sum", group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """Combine the ranks' ``input`` and put this rank's part of axis 0 into ``output``."""
    _alike_tensors("reduce_scatter_tensor", output, input)
    op = _REDUCTION_NAMES.get(op, op)
    ranks = group_or_all(group)
    _same_size("reduce_scatter_tensor", output, input.size // ranks.size)
    check_reduction("reduce_scatter_tensor", op, input)
    shape = output.shape
    if not async_op and _is_eager(input, output) and input.ndim and input.shape[0] % ranks.size == 0:
        lengths = [input.shape[0] // ranks.size] * ranks.size
        put(output, functional.reduce_scatter_now, input, op, 0, lengths, ranks)
        return None
    return _do(
        ranks, [input], lambda g: functional.reduce_scatter(input.detach(), op, group=g).reshape(shape),
        output, async_op,
    )  # fmt: skip


@by_members
def all_to_all(
    output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor],
    group: ProcessGroup | None = None, async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Send one tensor to each rank, and put what each sent here into ``output_tensor_list``."""
    _alike_tensors("all_to_all", *output_tensor_list, *input_tensor_list)
    ranks = group_or_all(group)
    _one_each("all_to_all", ranks, input_tensor_list)
    _one_each("all_to_all", ranks, output_tensor_list)
    shapes = [x.shape for x in output_tensor_list]
    exchange = lambda c, x: c.all_to_all(x, shapes)  # noqa: E731
    terms = f"of {input_tensor_list[0].dtype}"
    parts = Parts([x.size for x in input_tensor_list], [*map(prod, shapes)])
    return _raw(ranks, "all_to_all", input_tensor_list, exchange, output_tensor_list, async_op, terms, parts)


@by_members
def all_to_all_single(
    output: Tensor, input: Tensor, output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None, group: ProcessGroup | None = None, async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Send a part of axis 0 to each rank, and put what comes into ``output``, joined along axis 0."""
    _alike_tensors("all_to_all_single", output, input)
    ranks = group_or_all(group)
    receive = output_split_sizes
    if receive is None and output.ndim:
        receive = functional._lengths("all_to_all_single", None, ranks.size, output.shape[0])
    if receive is not None:
        _same_size("all_to_all_single", output, sum(receive) * prod(input.shape[1:]))
    return _do(
        ranks, [input],
        lambda g: functional.all_to_all(input.detach(), 0, 0, input_split_sizes, receive, g),
        output, async_op,
    )  # fmt: skip


@by_members
def gather(
    tensor: Tensor, gather_list: Sequence[Tensor] | None = None, dst: int | None = None,
    group: ProcessGroup | None = None, async_op: bool = False, group_dst: int | None = None,
) -> Work | None:  # fmt: skip
    """Put every rank's ``tensor`` into ``gather_list`` of rank ``dst``; the others give none."""
    _alike_tensors("gather", tensor, *(gather_list or ()))
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
        _one_each("gather", ranks, gather_list)
        _check_own("gather", ranks, tensor, gather_list)
    terms = f"of {tensor.dtype} to place {root}"
    due = {rank: x.size for rank, x in enumerate(gather_list or ()) if rank != root}
    parts = _parts(ranks, {} if ranks.rank == root else {root: tensor.size}, due)
    return _raw(ranks, "gather", [tensor], collect, gather_list or [], async_op, terms, parts)


@by_members
def scatter(
    tensor: Tensor, scatter_list: Sequence[Tensor] | None = None, src: int | None = None,
    group: ProcessGroup | None = None, async_op: bool = False, group_src: int | None = None,
) -> Work | None:  # fmt: skip
    """Put the tensor that rank ``src`` has in ``scatter_list`` for this rank into ``tensor``."""
    _alike_tensors("scatter", tensor, *(scatter_list or ()))
    ranks = group_or_all(group)
    root = place_of("scatter", ranks, src, group_src)
    if (ranks.rank == root) == (scatter_list is None):
        raise ArgumentError("scatter: scatter_list must be given on rank src, and nowhere else.")
    if scatter_list is not None:
        _one_each("scatter", ranks, scatter_list)
        _check_own("scatter", ranks, tensor, scatter_list)

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
    return _raw(ranks, "scatter", inputs, hand_out, [tensor], async_op, terms, parts)


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
    """Wait until all ranks of the group are here."""
    ranks = group_or_all(group)
    if async_op:
        return ranks.submit("barrier", [], lambda c: c.barrier())
    if ranks.size > 1:
        ranks.run("barrier", [], lambda c: c.barrier())
    return None


def group_or_all(group: ProcessGroup | None) -> ProcessGroup:
    """Return the group, which this rank has made; None: all ranks of the program."""
    functional._name(group)
    if group is None:
        return get_group()
    if group.world is not current():
        raise DistributedError(f"distributed: {group!r} belongs to another rank; each makes its own.")
    return group


def place_of(name: str, group: ProcessGroup, rank: int | None, place: int | None = None) -> int:
    """Return the place in a group of a rank, which is given so or by its number; by none it is number 0.

    Raises ``ArgumentError`` for one that is not in the group, and where both are given.
    """
    if place is not None:
        if rank is not None:
            raise ArgumentError(
                f"{name}: a rank is given by its number, {rank!r}, and its place in the group, {place!r}; one"
                f" of them is needed."
            )
        if place not in range(group.size):
            raise ArgumentError(f"{name}: a place in the group must be 0 to {group.size - 1}, got {place!r}.")
        return place
    rank = 0 if rank is None else rank
    if rank not in group.ranks:
        raise ArgumentError(f"{name}: rank {rank!r} is not in the group, whose ranks are {[*group.ranks]}.")
    return group.ranks.index(rank)


def _alike_tensors(name: str, *xs: Tensor) -> None:
    """Raise ``DtypeError`` or ``ArgumentError`` where tensors of a call differ in dtype or device type."""
    check_tensors(name, *xs)
    for x in xs[1:]:
        if x.dtype != xs[0].dtype:
            raise DtypeError(
                f"{name}: all tensors of a call, results too, have one dtype, got {xs[0].dtype} and"
                f" {x.dtype}."
            )
        if x.device.type != xs[0].device.type:
            raise ArgumentError(
                f"{name}: all tensors of a call, results too, lie on one type of device, got {xs[0].device}"
                f" and {x.device}."
            )


def _check_own(name: str, group: ProcessGroup, tensor: Tensor, tensors: Sequence[Tensor]) -> None:
    """Raise ``ShapeError`` where a rank's tensor has another shape than its place in the list."""
    own = tensors[group.rank].shape
    if own != tensor.shape:
        raise ShapeError(
            f"{name}: rank {group.rank}'s tensor has shape {tensor.shape}, but its place in the list {own}."
        )


def _one_each(name: str, group: ProcessGroup, tensors: Sequence[Tensor]) -> None:
    if len(tensors) != group.size:
        raise ArgumentError(f"{name}: {group.size} tensors are needed, one a rank, got {len(tensors)}.")


def _same_size(name: str, tensor: Tensor, size: int) -> None:
    if tensor.size != size:
        raise ShapeError(f"{name}: the output must have {size} elements, but its shape is {tensor.shape}.")


def _is_eager(*tensors: Tensor) -> bool:
    """Return whether nobody records or changes what is called here: no op is needed then."""
    return not active_modes and all(type(x) is Tensor for x in tensors)


def put(target: Tensor, value: Tensor | Callable[..., Tensor], *arguments: Any) -> None:
    """Make ``target`` hold what a communicator returned, which nobody else has: nothing is copied.

    ``value`` may be what returns that, of the ``arguments``.
    """
    recorded = grad_enabled.set(False)
    try:
        if not isinstance(value, Tensor):
            value = value(*arguments)
        if type(target) is Tensor and type(value) is Tensor:
            if value.shape != target.shape and value.size == target.size:
                value = value.reshape(target.shape)
            if value.shape == target.shape and _alike(target, value):
                target.rebind(value, by="a collective")
                return
        target.copy_(value)
    finally:
        grad_enabled.reset(recorded)


def _alike(x: Tensor, y: Tensor) -> bool:
    return x.dtype is y.dtype and x.device == y.device


def _do(
    group: ProcessGroup | None, tensors: Sequence[Tensor], call: Callable[[ProcessGroup], Tensor],
    target: Tensor | None, async_op: bool,
) -> Work | None:  # fmt: skip
    """Run an op of ``functional`` now, or in the group's queue, and put its result into ``target``."""
    ranks = group_or_all(group)

    def finish(value: Tensor) -> None:
        if target is not None:
            put(target, value)

    if async_op and not any(is_value_mode(x.device.type) for x in tensors):
        work = ranks.queue(lambda: call(ranks), finish, tensors)
        work.outputs = () if target is None else (target,)
        return work
    with no_grad():
        finish(call(ranks))
    if not async_op:
        return None
    work = ranks.queue(lambda: None)  # what stands for others is done at once
    work.outputs = () if target is None else (target,)
    return work


def _raw(
    group: ProcessGroup, name: str, tensors: Sequence[Tensor],
    call: Callable[[Any, list[Tensor]], Sequence[Tensor]], targets: Sequence[Tensor], async_op: bool,
    terms: str, parts: Parts | None = None,
) -> Work | None:  # fmt: skip
    """Run a collective of lists of tensors by the communicator itself."""
    inputs = [x.detach() for x in tensors]

    def finish(values: Sequence[Tensor]) -> None:
        for target, value in zip(targets, values, strict=True):
            put(target, value)

    if group.size == 1:
        finish(inputs if targets else [])
        if not async_op:
            return None
        work = group.queue(lambda: None)
    elif async_op:
        work = group.submit(name, inputs, lambda c: call(c, inputs), finish, terms, parts=parts)
    if async_op:
        work.outputs = targets
        return work
    finish(group.run(name, inputs, lambda c: call(c, inputs), terms, parts=parts))
    return None
