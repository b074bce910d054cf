"""Parts of a tensor along an axis, and the tensor with such a part replaced. Names are PyTorch's.

Each ``..._scatter`` is the inverse of a view: it returns ``x`` with what the view selects replaced.
"""

from __future__ import annotations

import builtins
from typing import Any

from ...errors import ArgumentError, IndexingError, ShapeError
from ...tracing.sym_int import index as as_index
from ..call_errors import with_form
from ..definition import Shape
from .diagonal import diagonal_shape, matrices_last, with_diagonal
from .family import normalize_axis
from .movement import permute_dims, reshape, slice, slice_update


def _place(name: str, x: Any, axis: int, index: int) -> tuple[int, int]:
    """Return the axis and the place on it, both counted from the front."""
    if not x.shape:
        raise IndexingError(f"{name}: a 0-dimensional tensor has no axis to select from; use it as it is.")
    axis = normalize_axis(name, axis, len(x.shape))
    place, length = as_index(index), x.shape[axis]
    if not -length <= place < length:
        raise IndexingError(
            f"{name}: index {place} is out of range for axis {axis} of length {length}; it must lie in"
            f" [{-length}, {length})."
        )
    return axis, place + length if place < 0 else place


def _box(shape: Shape, axis: int, start: int, count: int, step: int = 1) -> tuple[Shape, Shape, Shape]:
    """Return start, size and step of a box that is cut along one axis."""
    rank = len(shape)
    return (
        tuple(start if k == axis else 0 for k in range(rank)),
        tuple(count if k == axis else n for k, n in enumerate(shape)),
        tuple(step if k == axis else 1 for k in range(rank)),
    )


def _check_source(name: str, src: Any, needed: Shape) -> None:
    if src.shape != needed:
        raise ShapeError(
            f"{name}: a source of shape {src.shape} was given for a part of shape {needed}; broadcast it with"
            f" broadcast_to(src, {needed})."
        )


@with_form
def select(x: Any, /, axis: int, index: int) -> Any:
    """Return the part of ``x`` at ``index`` along ``axis``, without that axis.

    Raises ``IndexingError`` for an index that there is not, ``AxisError`` for an axis.

    >>> import tensorbus as tb
    >>> tb.select(tb.asarray([[1, 2], [3, 4]]), 1, -1).tolist()
    [2, 4]
    """
    axis, place = _place("select", x, axis, index)
    box = slice(x, *_box(x.shape, axis, place, 1))
    return reshape(box, x.shape[:axis] + x.shape[axis + 1 :])


@with_form
def narrow(x: Any, /, axis: int, start: int, length: int) -> Any:
    """Return ``length`` elements of ``x`` along ``axis``, from ``start`` on.

    ``start`` may count from the end. Raises ``IndexingError`` where there are not as many.

    >>> import tensorbus as tb
    >>> tb.narrow(tb.arange(5), 0, 1, 3).tolist()
    [1, 2, 3]
    """
    axis = normalize_axis("narrow", axis, len(x.shape))
    first, count, whole = as_index(start), as_index(length), x.shape[axis]
    place = first + whole if first < 0 else first
    if not (place >= 0 and count >= 0 and place + count <= whole):
        raise IndexingError(
            f"narrow: {count} element(s) from {first} on leave axis {axis} of length {whole}."
        )
    return slice(x, *_box(x.shape, axis, place, count))


@with_form
def select_scatter(x: Any, src: Any, /, axis: int, index: int) -> Any:
    """Return ``x`` with its part at ``index`` along ``axis`` replaced by ``src``, the inverse of ``select``.

    ``src`` has the shape of ``x`` without the axis, and is cast to its dtype. Raises ``ShapeError`` for
    another shape, ``IndexingError`` for an index that there is not.

    >>> import tensorbus as tb
    >>> tb.select_scatter(tb.zeros((2, 2)), tb.ones(2), 0, 1).tolist()
    [[0.0, 0.0], [1.0, 1.0]]
    """
    axis, place = _place("select_scatter", x, axis, index)
    _check_source("select_scatter", src, x.shape[:axis] + x.shape[axis + 1 :])
    start, size, step = _box(x.shape, axis, place, 1)
    return slice_update(x, reshape(src, size), start, step)


@with_form
def slice_scatter(
    x: Any, src: Any, /, axis: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Any:
    """Return ``x`` with the elements from ``start`` up to ``end`` along ``axis`` replaced by ``src``.

    ``start`` and ``end`` are those of a Python slice. Raises ``ShapeError`` unless ``src`` has the shape of
    that slice, ``ArgumentError`` for a step below 1.

    >>> import tensorbus as tb
    >>> tb.slice_scatter(tb.zeros(4), tb.ones(2), start=1, step=2).tolist()
    [0.0, 1.0, 0.0, 1.0]
    """
    axis = normalize_axis("slice_scatter", axis, len(x.shape))
    stride = as_index(step)
    if stride < 1:
        raise ArgumentError(f"slice_scatter: step must be at least 1, got {step!r}.")
    low, high = (None if n is None else as_index(n) for n in (start, end))
    first, last, _ = builtins.slice(low, high, stride).indices(x.shape[axis])
    count = max(-((first - last) // stride), 0)
    begin, size, steps = _box(x.shape, axis, first if count else 0, count, stride)
    _check_source("slice_scatter", src, size)
    return slice_update(x, src, begin, steps)


@with_form
def diagonal_scatter(x: Any, src: Any, /, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Return ``x`` with the diagonal that ``diagonal`` would return replaced by ``src``.

    Raises ``ShapeError`` unless ``src`` has the diagonal's shape.

    >>> import tensorbus as tb
    >>> tb.diagonal_scatter(tb.zeros((2, 2)), tb.ones(1), 1).tolist()
    [[0.0, 1.0], [0.0, 0.0]]
    """
    offset, order = as_index(offset), matrices_last("diagonal_scatter", x, axis1, axis2)
    last = permute_dims(x, order)
    _check_source("diagonal_scatter", src, diagonal_shape(last.shape, offset))
    changed = with_diagonal(last, src, offset)
    return permute_dims(changed, tuple(order.index(k) for k in range(len(order))))
