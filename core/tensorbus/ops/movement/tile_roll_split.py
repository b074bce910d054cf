"""Repeated, rolled, rotated and split tensors, all made of movement ops.

Array API standard 2025.12, section "Manipulation Functions"; other names are PyTorch's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

from ...dtypes import definition as dt
from ...errors import ArgumentError, DtypeError, ShapeError
from ...tracing.sym_int import index
from ..call_errors import with_form
from ..creation.creation import iota
from ..definition import MAX_RANK, table
from ..elementwise.family import Operand
from ..elementwise.where_cast import cast
from ..indexing.index_select import index_select
from ..ordering.search import search_op
from ..reduction.reduction import sum as sum_
from ..reduction.scan import cut, sum_scan
from .family import as_shape, is_single, normalize_axis
from .movement import broadcast_to, concat, flip, moveaxis, permute_dims, reshape
from .windows import windows

if TYPE_CHECKING:
    from ...tensor.tensor import Tensor


@with_form
def repeat(x: Operand, repeats: int | Sequence[int] | Tensor, /, *, axis: int | None = None) -> Any:
    """Return ``x`` with each element along ``axis`` repeated; without an axis ``x`` is flattened first.

    ``repeats`` is one number for all, or a 1-dimensional integer tensor or sequence with one for each
    element; a tensor is read, which waits for the device. Raises ``ArgumentError`` for negative numbers.

    >>> import tensorbus as tb
    >>> tb.repeat(tb.asarray([1, 2]), 2).tolist(), tb.repeat(tb.asarray([1, 2]), tb.asarray([0, 3])).tolist()
    ([1, 1, 2, 2], [2, 2, 2])
    """
    x = reshape(x, (x.size,)) if axis is None else x
    place = normalize_axis("repeat", 0 if axis is None else axis, len(x.shape))
    length = x.shape[place]
    if hasattr(repeats, "__index__") and not getattr(repeats, "shape", ()):
        whole = getattr(getattr(repeats, "dtype", None), "is_integer", True)
        return _repeated(x, index(repeats), place) if whole else _no_counts(repeats)
    times: Any = repeats
    counts = times if hasattr(times, "shape") else x.tensor_like_device(list(times))
    if not (counts.dtype.is_integer or counts.size == 0):
        return _no_counts(counts)
    if counts.shape == (1,):
        return _repeated(x, int(counts), place)
    if counts.shape != (length,):
        raise ShapeError(
            f"repeat: repeats of shape {counts.shape} were given for axis {place} of shape {x.shape}; they"
            f" must be one number, or one for each of {length} elements."
        )
    counts = cast(counts, dt.int64)
    if length and bool((counts < 0).any()):
        raise ArgumentError("repeat: a number of repeats must be >= 0.")
    total = int(sum_(counts))
    return index_select(x, place, search_op(sum_scan(counts), iota(total, device=x.device), side="right"))


def _no_counts(repeats: Any) -> NoReturn:
    raise DtypeError(f"repeat: numbers of repeats must be integers, got {repeats.dtype}.")


def _repeated(x: Any, count: int, axis: int) -> Any:
    if count < 0:
        raise ArgumentError(f"repeat: a number of repeats must be >= 0, got {count}.")
    shape = x.shape
    apart = reshape(x, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
    spread = broadcast_to(apart, (*shape[: axis + 1], count, *shape[axis + 1 :]))
    return table.unlink(reshape(spread, (*shape[:axis], shape[axis] * count, *shape[axis + 1 :])))


@with_form
def repeat_interleave(
    x: Operand, /, repeats: int | Sequence[int] | Tensor, axis: int | None = None, *,
    output_size: int | None = None,
) -> Any:  # fmt: skip
    """Return ``x`` with each element along ``axis`` repeated: ``repeat`` under PyTorch's name.

    ``output_size`` is the length of ``axis`` in the result. Raises ``ShapeError`` where it is another.
    """
    out = repeat(x, repeats, axis=axis)
    length = out.shape[0 if axis is None else axis]
    if output_size not in (None, length):
        raise ShapeError(f"repeat_interleave: output_size is {output_size!r}, and the result has {length}.")
    return out


@with_form
def roll(x: Operand, /, shift: int | Sequence[int], axis: int | Sequence[int] | None = None) -> Any:
    """Return ``x`` with its elements moved on by ``shift`` along ``axis``; those that leave come in again.

    Several shifts need as many axes; one shift serves all axes given. Without an axis the flattened elements
    are moved.

    >>> import tensorbus as tb
    >>> tb.roll(tb.asarray([1, 2, 3]), 1).tolist()
    [3, 1, 2]
    """
    if axis is None:
        return reshape(roll(reshape(x, (x.size,)), shift, axis=0), x.shape)
    axes = as_shape("roll", axis)
    shifts = as_shape("roll", shift)
    if len(shifts) == 1 and not isinstance(shift, (tuple, list)):
        shifts *= len(axes)
    if len(shifts) != len(axes):
        raise ShapeError(f"roll: {len(shifts)} shift(s) were given for {len(axes)} axes.")
    original = x
    for by, a in zip(shifts, axes, strict=True):
        place = normalize_axis("roll", a, len(x.shape))
        length = x.shape[place]
        if length and by % length:
            last = length - by % length
            x = concat([cut(x, place, last, length), cut(x, place, 0, last)], axis=place)
    return +x if x is original else x


@with_form
def rot90(x: Operand, /, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Any:
    """Return ``x`` turned ``k`` times by 90 degrees, from the first of ``axes`` towards the second.

    >>> import tensorbus as tb
    >>> tb.rot90(tb.asarray([[1, 2], [3, 4]])).tolist()
    [[2, 4], [1, 3]]
    """
    rank = len(x.shape)
    a, b = (normalize_axis("rot90", axis, rank) for axis in axes)
    if a == b:
        raise ShapeError(f"rot90: axes {axes} must differ.")
    order = list(range(rank))
    order[a], order[b] = b, a
    if k % 4 == 2:
        return flip(x, axis=(a, b))
    if k % 2 == 0:
        return +x
    return permute_dims(flip(x, axis=b), order) if k % 4 == 1 else flip(permute_dims(x, order), axis=b)


@with_form
def tile(x: Operand, repetitions: Sequence[int], /) -> Any:
    """Return ``x`` beside itself, as often as ``repetitions`` says for each axis (the last ones, if fewer).

    >>> import tensorbus as tb
    >>> tb.tile(tb.asarray([1, 2]), (2, 2)).tolist()
    [[1, 2, 1, 2], [1, 2, 1, 2]]
    """
    times = as_shape("tile", repetitions)
    if any(n < 0 for n in times):
        raise ArgumentError(f"tile: repetitions must be >= 0, got {times}.")
    rank = max(len(x.shape), len(times))
    times = (1,) * (rank - len(times)) + times
    shape = (1,) * (rank - len(x.shape)) + x.shape
    whole = tuple(a * n for a, n in zip(times, shape, strict=True))
    crowded = 2 * rank > MAX_RANK  # what is not repeated has no axis for that there
    pairs = [(n,) if crowded and a == 1 else (a, n) for a, n in zip(times, shape, strict=True)]
    apart = tuple(n for pair in pairs for n in (1, pair[-1])[-len(pair) :])
    spread = tuple(n for pair in pairs for n in pair)
    return table.unlink(reshape(broadcast_to(reshape(x, apart), spread), whole))


@with_form
def unstack(x: Operand, /, axis: int = 0) -> tuple[Any, ...]:
    """Return the slices of ``x`` along ``axis``, without it.

    >>> import tensorbus as tb
    >>> [part.tolist() for part in tb.unstack(tb.asarray([[1, 2], [3, 4]]), axis=1)]
    [[1, 3], [2, 4]]
    """
    place = normalize_axis("unstack", axis, len(x.shape))
    shape = tuple(n for k, n in enumerate(x.shape) if k != place)
    return tuple(reshape(cut(x, place, k, k + 1), shape) for k in range(x.shape[place]))


@with_form
def split(x: Operand, split_size_or_sections: int | Sequence[int], /, axis: int = 0) -> tuple[Any, ...]:
    """Return the parts of ``x`` along ``axis``: of one length (the last may be shorter), or of those given.

    Raises ``ArgumentError`` where the lengths given do not add up to the axis'.

    >>> import tensorbus as tb
    >>> [part.tolist() for part in tb.split(tb.arange(5), 2)]
    [[0, 1], [2, 3], [4]]
    """
    place = normalize_axis("split", axis, len(x.shape))
    length = x.shape[place]
    if hasattr(split_size_or_sections, "__index__") and not getattr(split_size_or_sections, "shape", ()):
        size = index(split_size_or_sections)
        if size < 1:
            raise ArgumentError(f"split: a part must have a length of at least 1, got {size}.")
        whole = 0
        while (whole + 1) * size < length:  # no range: lengths may be open
            whole += 1
        sizes: Sequence[int] = [*[size] * whole, length - whole * size]
    else:
        sizes = as_shape("split", split_size_or_sections)
        if sum(sizes) != length or any(n < 0 for n in sizes):
            raise ArgumentError(
                f"split: lengths {tuple(sizes)} must add up to {length}, that of axis {place}."
            )
    ends = [sum(sizes[: k + 1]) for k in range(len(sizes))]
    return tuple(cut(x, place, end - n, end) for n, end in zip(sizes, ends, strict=True))


def check_parts(name: str, count: int) -> None:
    """Raise ``ArgumentError`` for a number of parts that no tuple of tensors has."""
    if not 1 <= count <= MAX_PARTS:
        raise ArgumentError(f"{name}: from 1 to {MAX_PARTS} parts are possible, got {count}.")


MAX_PARTS: Final = 1 << 27
"""A tuple of more tensors has no room in any host's memory."""


@with_form
def chunk(x: Operand, /, chunks: int, axis: int = 0) -> tuple[Any, ...]:
    """Return ``x`` in ``chunks`` parts of one length along ``axis``; the last may be shorter or missing.

    Where there is nothing to share out, all parts are empty.
    """
    chunks = index(chunks)
    check_parts("chunk", chunks)
    length = x.shape[normalize_axis("chunk", axis, len(x.shape))]
    return split(x, -(-length // chunks) if length else [0] * chunks, axis)


@with_form
def swapaxes(x: Operand, /, axis0: int, axis1: int) -> Any:
    """Return ``x`` with two axes exchanged."""
    if is_single(x, axis0) and is_single(x, axis1):
        return permute_dims(x, ())
    rank = len(x.shape)
    a, b = (normalize_axis("swapaxes", axis, rank) for axis in (axis0, axis1))
    order = list(range(rank))
    order[a], order[b] = b, a
    return permute_dims(x, order)


@with_form
def unfold(x: Operand, /, axis: int, size: int, step: int) -> Any:
    """Return the windows of ``size`` elements, ``step`` apart, along ``axis``; a last axis holds each window.

    >>> import tensorbus as tb
    >>> tb.unfold(tb.arange(5), 0, 3, 2).tolist()
    [[0, 1, 2], [2, 3, 4]]
    """
    if is_single(x, axis):
        return reshape(unfold(reshape(x, (1,)), 0, size, step), (index(size),))
    place = normalize_axis("unfold", axis, len(x.shape))
    view = windows(moveaxis(x, place, -1), (index(size),), (index(step),), (1,))
    return moveaxis(view, -2, place)
