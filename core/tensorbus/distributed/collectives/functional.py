"""Collectives as ops: of a tensor a new one, with derivatives, and nodes of compiled programs.

All ranks of the group call each, in the same order. ``group`` is a ``ProcessGroup`` or None: all ranks.
Sizes per rank are ``lengths`` along an axis; None says that all ranks have the same. ``label`` says what is
communicated, such as the names of parameters: ranks that give different ones are told, where shapes and
dtypes agree.

The derivative of each is that of the sum of all ranks' results: what ranks send forward comes back summed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any

from ...backend_interface.communication import REDUCTIONS
from ...eager.functions import concat
from ...eager.inplace_kernel import write_over
from ...errors import ArgumentError, AutogradError, AxisError, DtypeError, ShapeError
from ...library import CustomOp, custom_op
from ...library.custom_op import definition_of
from ...ops.creation.creation import empty
from ...ops.movement.movement import moveaxis
from ...tensor.tensor import Tensor
from ..process_group.comparison import Parts
from ..process_group.group import ProcessGroup, get_group
from ..process_group.membership import check_member
from . import into_memory
from .terms import expecting, listed, named, resized, shapes_of, spec

Lengths = Sequence[int] | None


def all_reduce(
    x: Tensor, reduction: str = "sum", group: ProcessGroup | None = None, *, label: str = ""
) -> Tensor:
    """Return the combination of all ranks' ``x``, the same on each: of the shape and dtype of ``x``.

    ``reduction`` is ``"sum"``, ``"average"``, ``"product"``, ``"min"``, ``"max"``, ``"bitwise_and"``,
    ``"bitwise_or"`` or ``"bitwise_xor"``; sums and averages have derivatives.

    Raises ``ArgumentError``, ``DtypeError``, ``DistributedError`` and ``DistributedTimeoutError``.

    >>> import tensorbus as tb
    >>> def rank() -> list[float]:
    ...     x = tb.ones(2, device="cpu") * tb.distributed.get_rank()
    ...     return tb.distributed.functional.all_reduce(x).tolist()
    >>> tb.distributed.run_ranks(rank, 3)
    [[3.0, 3.0], [3.0, 3.0], [3.0, 3.0]]
    """
    check_reduction("all_reduce", reduction, x)
    name = _name(group)
    size = get_group(name).size
    result: Tensor = x.clone() if size == 1 else _all_reduce(x, _summed(reduction), name, label)
    return result / size if reduction == "average" and size > 1 else result


def all_gather(
    x: Tensor, axis: int = 0, lengths: Lengths = None, group: ProcessGroup | None = None, *, label: str = ""
) -> Tensor:
    """Return all ranks' ``x`` joined along ``axis`` in order of rank.

    ``lengths`` are the ranks' lengths along ``axis``. Raises as ``all_reduce`` does, and ``ShapeError``.

    >>> import tensorbus as tb
    >>> def rank() -> list[int]:
    ...     x = tb.full((1,), tb.distributed.get_rank(), device="cpu", dtype="int64")
    ...     return tb.distributed.functional.all_gather(x).tolist()
    >>> tb.distributed.run_ranks(rank, 2)
    [[0, 1], [0, 1]]
    """
    name = _name(group)
    axis = _axis("all_gather", x, axis)
    ranks = get_group(name)
    sizes = _lengths("all_gather", lengths, ranks.size, x.shape[axis] * ranks.size)
    if sizes[ranks.rank] != x.shape[axis]:
        raise ShapeError(
            f"all_gather: lengths {sizes} give rank {ranks.rank} {sizes[ranks.rank]} along axis {axis}, but"
            f" its tensor has shape {x.shape}."
        )
    if ranks.size == 1:
        return x.clone()
    if axis:  # in front, parts lie one behind the other; the copies are nodes of programs, too
        whole: Tensor = moveaxis(all_gather(moveaxis(x, axis, 0), 0, sizes, ranks, label=label), 0, axis)
        return whole
    result: Tensor = _all_gather(x, 0, sizes, name, label)
    return result


def reduce_scatter(
    x: Tensor, reduction: str = "sum", axis: int = 0, lengths: Lengths = None,
    group: ProcessGroup | None = None, *, label: str = "",
) -> Tensor:  # fmt: skip
    """Combine all ranks' ``x``, and return this rank's part along ``axis``.

    ``lengths`` are the parts' lengths; None: the length of the axis divided by the number of ranks. Raises as
    ``all_reduce`` does, and ``ShapeError`` where the parts do not make up the axis.

    >>> import tensorbus as tb
    >>> part = lambda: tb.distributed.functional.reduce_scatter(tb.arange(4, device="cpu")).tolist()
    >>> tb.distributed.run_ranks(part, 2)
    [[0, 2], [4, 6]]
    """
    check_reduction("reduce_scatter", reduction, x)
    name = _name(group)
    axis = _axis("reduce_scatter", x, axis)
    sizes = _lengths("reduce_scatter", lengths, get_group(name).size, x.shape[axis])
    if sizes == (x.shape[axis],):
        return x.clone()
    if axis:
        moved = moveaxis(x, axis, 0)
        mine: Tensor = moveaxis(reduce_scatter(moved, reduction, 0, sizes, group, label=label), 0, axis)
        return mine
    part: Tensor = _reduce_scatter(x, _summed(reduction), 0, sizes, name, label)
    return part / len(sizes) if reduction == "average" else part


def all_to_all(
    x: Tensor, split_axis: int = 0, concat_axis: int = 0, send_lengths: Lengths = None,
    receive_lengths: Lengths = None, group: ProcessGroup | None = None, *, label: str = "",
) -> Tensor:  # fmt: skip
    """Split ``x`` along ``split_axis``, send a part to each rank, and join what comes along ``concat_axis``.

    ``send_lengths`` are the parts' lengths, ``receive_lengths`` the lengths along ``concat_axis`` of what
    each rank sends here. Raises as ``all_gather`` does.

    >>> import tensorbus as tb
    >>> swap = lambda x: tb.distributed.functional.all_to_all(x + tb.distributed.get_rank()).tolist()
    >>> tb.distributed.run_ranks(swap, 2, tb.asarray([0, 10], device="cpu"))
    [[0, 1], [10, 11]]
    """
    name = _name(group)
    split_axis, concat_axis = _axis("all_to_all", x, split_axis), _axis("all_to_all", x, concat_axis)
    ranks = get_group(name)
    send = _lengths("all_to_all", send_lengths, ranks.size, x.shape[split_axis])
    if sum(send) != x.shape[split_axis]:
        raise ShapeError(
            f"all_to_all: send_lengths {send} must add up to {x.shape[split_axis]}, the length of axis"
            f" {split_axis}."
        )
    if receive_lengths is None and split_axis == concat_axis:
        receive = (send[ranks.rank],) * ranks.size
    else:
        receive = _lengths("all_to_all", receive_lengths, ranks.size, x.shape[concat_axis] * ranks.size)
    result: Tensor = _all_to_all(x, split_axis, concat_axis, send, receive, name, label)
    return result


def broadcast(x: Tensor, root: int = 0, group: ProcessGroup | None = None, *, label: str = "") -> Tensor:
    """Return the ``x`` of rank ``root`` of the group; on other ranks ``x`` says shape, dtype and device.

    Raises as ``all_reduce`` does.

    >>> import tensorbus as tb
    >>> last = lambda x: tb.distributed.functional.broadcast(x + tb.distributed.get_rank(), root=1).item()
    >>> tb.distributed.run_ranks(last, 2, tb.zeros((), device="cpu"))
    [1.0, 1.0]
    """
    check_tensors("broadcast", x)
    name = _name(group)
    size = get_group(name).size
    if not 0 <= root < size:
        raise ArgumentError(f"broadcast: root must be a rank of the group, 0 to {size - 1}, got {root!r}.")
    result: Tensor = x.clone() if size == 1 else _broadcast(x, root, name, label)
    return result


def _name(group: ProcessGroup | None) -> str:
    if group is None:
        return get_group().name
    if not isinstance(group, ProcessGroup):
        raise ArgumentError(f"distributed: group must be a ProcessGroup or None, got {type(group).__name__}.")
    check_member(group)
    return group.name


def _axis(name: str, x: Tensor, axis: int) -> int:
    check_tensors(name, x)
    if not -x.ndim <= axis < x.ndim:
        raise AxisError(f"{name}: axis {axis} was asked of a tensor of shape {x.shape}.")
    return axis % x.ndim


def _lengths(name: str, lengths: Lengths, size: int, total: int) -> tuple[int, ...]:
    if lengths is None:
        if total % size:
            raise ShapeError(
                f"{name}: a length of {total} is not divisible by {size} ranks; say the length"
                f" of each rank's part."
            )
        return (total // size,) * size
    if len(lengths) != size or min(lengths) < 0:
        raise ShapeError(f"{name}: {size} lengths >= 0 are needed, one a rank, got {[*lengths]}.")
    return tuple(lengths)


def check_reduction(name: str, reduction: str, x: Tensor) -> None:
    """Raise ``ArgumentError`` for no reduction, ``DtypeError`` for one that the dtype of ``x`` lacks."""
    check_tensors(name, x)
    if reduction not in (*REDUCTIONS, "average"):
        raise ArgumentError(
            f"{name}: reduction must be one of {', '.join((*REDUCTIONS, 'average'))}, got {reduction!r}."
        )
    dtype = x.dtype
    if reduction.startswith("bitwise"):
        defined = dtype.is_integer or dtype.kind == "bool"
    elif reduction in ("min", "max"):
        defined = not dtype.is_complex
    elif reduction == "average":
        defined = dtype.is_floating or dtype.is_complex
    else:
        defined = dtype.kind != "bool"
    if not defined:
        hint = " 'max' says whether any is true, 'min' whether all are." if dtype.kind == "bool" else ""
        raise DtypeError(f"{name}: {reduction!r} is not defined for {dtype}.{hint}")


def check_tensors(name: str, *xs: Tensor) -> None:
    """Raise ``ArgumentError`` for what is no tensor."""
    for x in xs:
        if not isinstance(x, Tensor):
            raise ArgumentError(
                f"{name}: a tensor is needed, got {type(x).__name__}; tensorbus.asarray makes one."
            )


@lru_cache(maxsize=256)
def _terms(summed: str, dtype: str, shape: tuple[int, ...], label: str = "") -> str:
    return named(f"{summed} of {dtype}{[*shape]}", label)


def _parts(x: Tensor, axis: int, lengths: Sequence[int]) -> list[Tensor]:
    parts, start = [], 0
    for length in lengths:
        index = (slice(None),) * axis + (slice(start, start + length),)
        parts.append(x[index])
        start += length
    return parts


def _summed(reduction: str) -> str:
    return "sum" if reduction == "average" else reduction


def all_reduce_now(x: Tensor, reduction: str, ranks: ProcessGroup, label: str = "") -> Tensor:
    """Do it: what the op does, for callers that know that nobody records."""
    if ranks.size == 1:
        return x.clone()
    summed = _summed(reduction)
    terms = _terms(summed, x.dtype.name, x.shape, label)
    total = ranks.run("all_reduce", [x], lambda c: expecting(c, label).all_reduce(x, summed), terms)
    result: Tensor = total / ranks.size if reduction == "average" else total
    return result


def all_reduce_in_place(x: Tensor, reduction: str, ranks: ProcessGroup) -> bool:
    """Do it in the memory of ``x`` where that may be, and nobody else can tell; say whether it was done."""
    if reduction == "average" or not ranks.writes_over(x.device.type):
        return False
    terms = _terms(reduction, x.dtype.name, x.shape)

    def write() -> bool:
        return ranks.run_into("all_reduce", x, lambda c: c.all_reduce_into(x, reduction, x), terms)

    return write_over(x, write, "a collective")


@custom_op("distributed::all_reduce", ordered=True)
def _all_reduce(x: Tensor, reduction: str, group: str, label: str) -> Tensor:
    return all_reduce_now(x, reduction, get_group(group), label)


def all_gather_now(
    x: Tensor, axis: int, lengths: Sequence[int], ranks: ProcessGroup, label: str = ""
) -> Tensor:
    """Do it, as ``all_reduce_now`` does."""
    if ranks.size == 1:
        return x.clone()
    shapes = shapes_of(x.shape, axis, lengths)
    first = all(n == 1 for n in x.shape[:axis])
    terms = named(f"of {x.dtype} in shapes {listed(shapes)}", label)

    def gather(communicator: Any) -> Tensor:
        expecting(communicator, label)
        flat = getattr(communicator, "all_gather_flat", None) if first else None
        if flat is None:
            return concat(communicator.all_gather(x, shapes), axis=axis)
        whole: Tensor = flat(x, shapes)
        return _in_shape(whole, resized(x.shape, axis, sum(lengths)))

    return ranks.run("all_gather", [x], gather, terms)


@custom_op("distributed::all_gather", ordered=True)
def _all_gather(x: Tensor, axis: int, lengths: tuple[int, ...], group: str, label: str) -> Tensor:
    return all_gather_now(x, axis, lengths, get_group(group), label)


def reduce_scatter_now(
    x: Tensor, reduction: str, axis: int, lengths: Sequence[int], ranks: ProcessGroup, label: str = ""
) -> Tensor:
    """Do it, as ``all_reduce_now`` does."""
    if ranks.size == 1:
        return x.clone()
    summed = _summed(reduction)
    first, even = all(n == 1 for n in x.shape[:axis]), len(set(lengths)) == 1
    terms = named(f"{summed} of {spec(x)} along axis {axis} in lengths {listed(lengths)}", label)

    def combine(communicator: Any) -> Tensor:
        expecting(communicator, label)
        flat = getattr(communicator, "reduce_scatter_flat" if even else "reduce_scatter_uneven", None)
        if first and flat is not None and not even:
            row = prod(x.shape[axis + 1 :])
            mine = flat(x, summed, [length * row for length in lengths])
            return _in_shape(mine, resized(x.shape, axis, lengths[ranks.rank]))
        if flat is None or not first:
            part: Tensor = communicator.reduce_scatter(_parts(x, axis, lengths), summed)
            return part
        return _in_shape(flat(x, summed), resized(x.shape, axis, lengths[0]))

    part = ranks.run("reduce_scatter", [x], combine, terms)
    result: Tensor = part / ranks.size if reduction == "average" else part
    return result


@custom_op("distributed::reduce_scatter", ordered=True)
def _reduce_scatter(
    x: Tensor, reduction: str, axis: int, lengths: tuple[int, ...], group: str, label: str
) -> Tensor:
    return reduce_scatter_now(x, reduction, axis, lengths, get_group(group), label)


def _in_shape(x: Tensor, shape: Sequence[int]) -> Tensor:
    return x if x.shape == tuple(shape) else x.reshape(tuple(shape))


@custom_op("distributed::all_to_all", ordered=True)
def _all_to_all(
    x: Tensor, split_axis: int, concat_axis: int, send: tuple[int, ...], receive: tuple[int, ...],
    group: str, label: str,
) -> Tensor:  # fmt: skip
    ranks = get_group(group)
    if ranks.size == 1:
        return x.clone()
    parts = _parts(x, split_axis, send)
    mine = parts[ranks.rank].shape
    shapes = [resized(mine, concat_axis, length) for length in receive]
    received = ranks.run(
        "all_to_all",
        parts,
        lambda c: expecting(c, label).all_to_all(parts, shapes),
        named(f"of {x.dtype}", label),
        parts=Parts([part.size for part in parts], [*map(prod, shapes)]),
    )
    return concat(received, axis=concat_axis)


@custom_op("distributed::broadcast", ordered=True)
def _broadcast(x: Tensor, root: int, group: str, label: str) -> Tensor:
    ranks = get_group(group)
    if ranks.size == 1:
        return x.clone()
    terms = named(f"of {spec(x)} from place {root}", label)
    result: Tensor = ranks.run("broadcast", [x], lambda c: expecting(c, label).broadcast(x, root), terms)
    return result


for _op, _into in (
    (_all_reduce, into_memory.all_reduce_into), (_all_gather, into_memory.all_gather_into),
    (_reduce_scatter, into_memory.reduce_scatter_into), (_broadcast, into_memory.broadcast_into),
):  # fmt: skip
    definition_of(_op).into = _into


@_all_reduce.register_fake
def _(x: Any, reduction: str, group: str, label: str) -> Any:
    return x.shape, x.dtype


@_broadcast.register_fake
def _(x: Any, root: int, group: str, label: str) -> Any:
    return x.shape, x.dtype


@_all_gather.register_fake
def _(x: Any, axis: int, lengths: tuple[int, ...], group: str, label: str) -> Any:
    return resized(x.shape, axis, sum(lengths)), x.dtype


@_reduce_scatter.register_fake
def _(x: Any, reduction: str, axis: int, lengths: tuple[int, ...], group: str, label: str) -> Any:
    if sum(lengths) != x.shape[axis]:
        raise ShapeError(
            f"reduce_scatter: lengths {lengths} must add up to {x.shape[axis]}, the length of axis {axis}."
        )
    return resized(x.shape, axis, lengths[get_group(group).rank]), x.dtype


@_all_to_all.register_fake
def _(
    x: Any, split_axis: int, concat_axis: int, send: tuple[int, ...], receive: tuple[int, ...], group: str,
    label: str,
) -> Any:  # fmt: skip
    shape = resized(x.shape, split_axis, send[get_group(group).rank])
    return resized(shape, concat_axis, sum(receive)), x.dtype


def _on_shapes(op: CustomOp) -> Callable[..., Tensor]:
    """Return the kernel for tensors without elements: they are communicated where something takes them."""
    definition = definition_of(op)

    def run(x: Tensor, *arguments: Any) -> Tensor:
        if get_group(arguments[-2]).takes(x.device.type):
            out: Tensor = definition.function(x, *arguments)
            return out
        assert definition.fake is not None
        shape, dtype = definition.fake(x, *arguments)
        return empty(shape, dtype=dtype, device=x.device)

    return run


for _op in (_all_reduce, _all_gather, _reduce_scatter, _all_to_all, _broadcast):
    _op.register_kernel("meta", _on_shapes(_op))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.arguments = inputs[1:]


def _back(label: str) -> str:
    return label and f"gradient of {label}"


def _all_reduce_backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
    reduction, group, label = ctx.arguments
    back = _all_reduce(g, _differentiable("all_reduce", reduction), group, _back(label))
    return back, None, None, None


def _all_gather_backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
    axis, lengths, group, label = ctx.arguments
    return _reduce_scatter(g, "sum", axis, lengths, group, _back(label)), None, None, None, None


def _reduce_scatter_backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
    reduction, axis, lengths, group, label = ctx.arguments
    whole = _all_gather(g, axis, lengths, group, _back(label))
    if _differentiable("reduce_scatter", reduction) == "average":
        whole = whole / len(lengths)
    return whole, None, None, None, None, None


def _all_to_all_backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
    split_axis, concat_axis, send, receive, group, label = ctx.arguments
    back = _all_to_all(g, concat_axis, split_axis, receive, send, group, _back(label))
    return back, None, None, None, None, None, None


def _broadcast_backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
    root, group, label = ctx.arguments
    total = _all_reduce(g, "sum", group, _back(label))
    return total if get_group(group).rank == root else total * 0, None, None, None


def _differentiable(name: str, reduction: str) -> str:
    if reduction not in ("sum", "average"):
        raise AutogradError(f"{name}: {reduction!r} has no derivative; sums and averages have one.")
    return reduction


_all_reduce.register_autograd(_all_reduce_backward, setup_context=_keep)
_all_gather.register_autograd(_all_gather_backward, setup_context=_keep)
_reduce_scatter.register_autograd(_reduce_scatter_backward, setup_context=_keep)
_all_to_all.register_autograd(_all_to_all_backward, setup_context=_keep)
_broadcast.register_autograd(_broadcast_backward, setup_context=_keep)


def _batched(op: Callable[..., Tensor], *axes: int) -> Callable[..., tuple[Tensor, int]]:
    """Return the batching rule: examples lie along a new first axis, so ``axes`` of the arguments move up."""

    def rule(info: Any, in_dims: tuple[Any, ...], x: Tensor, *arguments: Any) -> tuple[Tensor, int]:
        values = [value + 1 if place in axes else value for place, value in enumerate(arguments)]
        return op(x, *values), 0

    return rule


_all_reduce.register_vmap(_batched(_all_reduce))
_all_gather.register_vmap(_batched(_all_gather, 0))
_reduce_scatter.register_vmap(_batched(_reduce_scatter, 1))
_all_to_all.register_vmap(_batched(_all_to_all, 0, 1))
_broadcast.register_vmap(_batched(_broadcast))
