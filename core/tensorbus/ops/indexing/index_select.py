"""Choosing whole parts of a tensor: by indices into one axis, or by a mask. Names are PyTorch's."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from math import prod
from typing import Any

from ...dtypes import definition as dt
from ...dtypes.definition import Scalar, check_scalar
from ...errors import DtypeError, IndexingError, ShapeError
from ...tracing.active_modes import active_modes
from ...tracing.sym_number import SymNumber
from ..call_errors import with_form
from ..creation.creation import full, iota
from ..elementwise.family import broadcast_shapes
from ..elementwise.where_cast import where
from ..movement.family import is_single, normalize_axis
from ..movement.movement import broadcast_to, pad, permute_dims, reshape
from ..reduction.scan import sum_scan
from . import indexing
from .gather_scatter import from_front, gather, scatter
from .nonzero import flatnonzero


def _to_front(name: str, x: Any, axis: int, index: Any) -> tuple[tuple[int, ...], Any]:
    """Return the order of axes that brings ``axis`` first, and the index as a line from the front."""
    if len(index.shape) > 1 or not x.shape:
        raise ShapeError(
            f"{name}: needs at least 1 dimension and a 1-dimensional index, got shapes {x.shape} and"
            f" {index.shape}."
        )
    place = normalize_axis(name, axis, len(x.shape))
    order = (place, *(k for k in range(len(x.shape)) if k != place))
    return order, from_front(reshape(index, (-1,)), x.shape[place])


def _back(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(order.index(k) for k in range(len(order)))


@with_form
def index_select(x: Any, /, axis: int, index: Any) -> Any:
    """Return the parts of ``x`` that a 1-dimensional ``index`` names along ``axis``.

    >>> import tensorbus as tb
    >>> tb.index_select(tb.asarray([[1, 2], [3, 4]]), 1, tb.asarray([1])).tolist()
    [[2], [4]]
    """
    if is_single(x, axis):
        return reshape(index_select(reshape(x, (1,)), 0, index), ())
    order, line = _to_front("index_select", x, axis, index)
    return permute_dims(gather(permute_dims(x, order), line), _back(order))


def _written(name: str, x: Any, axis: int, index: Any, source: Any, mode: str) -> Any:
    if is_single(x, axis):
        return reshape(_written(name, reshape(x, (1,)), 0, index, reshape(source, (-1,)), mode), ())
    order, line = _to_front(name, x, axis, index)
    target = tuple(line.shape[0] if k == order[0] else n for k, n in enumerate(x.shape))
    if source.shape != target:
        raise ShapeError(f"{name}: a source of shape {source.shape} was given for places of shape {target}.")
    changed = scatter(permute_dims(x, order), permute_dims(source, order), line, mode=mode)
    return permute_dims(changed, _back(order))


@with_form
def index_add(x: Any, /, axis: int, index: Any, source: Any, *, alpha: Scalar = 1) -> Any:
    """Return ``x`` with the parts of ``alpha * source`` added where ``index`` says along ``axis``.

    >>> import tensorbus as tb
    >>> tb.index_add(tb.zeros((2,)), 0, tb.asarray([1, 1]), tb.ones((2,))).tolist()
    [0.0, 2.0]
    """
    return _written("index_add", x, axis, index, source if alpha == 1 else source * alpha, "add")


@with_form
def index_copy(x: Any, /, axis: int, index: Any, source: Any) -> Any:
    """Return ``x`` with the parts of ``source`` where ``index`` says along ``axis``; the last one stays."""
    return _written("index_copy", x, axis, index, source, "set")


@with_form
def index_fill(x: Any, /, axis: int, index: Any, value: Any) -> Any:
    """Return ``x`` with ``value``, a number or a 0-dimensional tensor, where ``index`` says along ``axis``.

    >>> import tensorbus as tb
    >>> tb.index_fill(tb.zeros((3,)), 0, tb.asarray([2, 0]), 1.0).tolist()
    [1.0, 0.0, 1.0]
    """
    if is_single(x, axis):
        return reshape(index_fill(reshape(x, (1,)), 0, index, value), ())
    order, line = _to_front("index_fill", x, axis, index)
    target = (line.shape[0], *(x.shape[k] for k in order[1:]))
    filled = broadcast_to(_one_value("index_fill", x, value), target)
    return permute_dims(scatter(permute_dims(x, order), filled, line), _back(order))


def _one_value(name: str, x: Any, value: Any) -> Any:
    """Return a number, or a 0-dimensional tensor, as a tensor of the dtype of ``x``."""
    if not (hasattr(value, "shape") and hasattr(value, "device")):
        return full((), check_scalar(name, value, x.dtype), dtype=x.dtype, device=x.device)
    if value.shape != ():
        raise ShapeError(f"{name}: the value must be 0-dimensional, got shape {value.shape}.")
    return value if value.dtype is x.dtype else value.to(x.dtype)


def _check_mask(name: str, mask: Any) -> None:
    if mask.dtype is not dt.bool_:
        raise DtypeError(f"{name}: the mask must be bool, got {mask.dtype}; compare it with something.")


@with_form
def masked_select(x: Any, mask: Any, /) -> Any:
    """Return the elements of ``x`` where ``mask`` is true, in C order; the two broadcast together.

    Waits for the device, because the result's length depends on the mask.

    >>> import tensorbus as tb
    >>> tb.masked_select(tb.asarray([1, 2, 3]), tb.asarray([True, False, True])).tolist()
    [1, 3]
    """
    _check_mask("masked_select", mask)
    shape = broadcast_shapes(x.shape, mask.shape)
    flat = reshape(broadcast_to(x, shape), (-1,) if 0 not in shape else (0,))
    return gather(flat, flatnonzero(broadcast_to(mask, shape)))


@with_form
def masked_fill(x: Any, mask: Any, /, value: Any) -> Any:
    """Return ``x`` with ``value``, a number or a 0-dimensional tensor, where ``mask`` is true.

    ``x`` and the mask broadcast together. Raises ``DtypeError`` for a number that does not fit in the dtype
    of ``x``.

    >>> import tensorbus as tb
    >>> tb.masked_fill(tb.ones((2,)), tb.asarray([True, False]), 0.0).tolist()
    [0.0, 1.0]
    """
    _check_mask("masked_fill", mask)
    broadcast_shapes(x.shape, mask.shape)  # raises in terms of the two
    if hasattr(type(value), "_vtype"):
        if value.shape != ():
            raise ShapeError(f"masked_fill: the value must be 0-dimensional, got shape {value.shape}.")
        return where(mask, value if value.dtype is x.dtype else value.to(x.dtype), x)
    return where(mask, value if type(value) is SymNumber else check_scalar("masked_fill", value, x.dtype), x)


@with_form
def masked_scatter(x: Any, mask: Any, source: Any, /) -> Any:
    """Return ``x`` with the elements of ``source``, in C order, one for each place where ``mask`` is true.

    ``x`` and the mask broadcast together. ``source`` has the dtype of ``x`` and at least as many elements
    as the mask has true ones. That is seen on the device: a source too short raises ``IndexingError``, on a
    device that computes later where the result is read, as an index out of the source's range.

    >>> import tensorbus as tb
    >>> mask = tb.asarray([True, False, True])
    >>> tb.masked_scatter(tb.zeros(3), mask, tb.asarray([5.0, 6.0, 7.0])).tolist()
    [5.0, 0.0, 6.0]
    """
    _check_mask("masked_scatter", mask)
    x = broadcast_to(x, broadcast_shapes(x.shape, mask.shape))
    if source.dtype is not x.dtype:
        raise DtypeError(
            f"masked_scatter: x is {x.dtype}, the source {source.dtype}; cast it with .to(x.dtype)."
        )
    if 0 in x.shape:
        return x.clone()
    flat = reshape(broadcast_to(mask, x.shape), (-1,))
    places = where(flat, sum_scan(flat) - 1, 0)
    line = reshape(source, (source.size,))
    if source.size == 0:  # nothing to read, not even at place 0: right where the mask is false everywhere
        line, places = pad(line, (0,), (1,), False if x.dtype is dt.bool_ else 0), sum_scan(flat)
    try:
        taken = gather(line, places)
    except IndexingError as error:
        picked = "more" if active_modes else int(sum_scan(flat)[-1])  # within a transform no value is read
        raise IndexingError(
            f"masked_scatter: the source has {source.size} elements, the mask picks {picked}; a source of at"
            f" least as many is needed."
        ) from error
    return where(reshape(flat, x.shape), reshape(taken, x.shape), x)


@with_form
def index_put(x: Any, /, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    """Return ``x`` with ``values``, which broadcast, at ``x[tuple(indices)]``; added there to ``accumulate``.

    Indices are integer or bool tensors, or None for a whole axis. Of several values for one place the last
    stays, or all add up. Bool tensors wait for the device.

    >>> import tensorbus as tb
    >>> x, at = tb.zeros(3), tb.asarray([1, 1])
    >>> tb.index_put(x, (at,), tb.asarray([2.0, 3.0]), accumulate=True).tolist()
    [0.0, 5.0, 0.0]
    """
    key = tuple(builtins.slice(None) if item is None else item for item in indices)
    stored = values if hasattr(values, "shape") else full((), values, dtype=x.dtype, device=x.device)
    if not accumulate:
        return indexing.setitem(x, key, stored)
    places = indexing.getitem(reshape(iota(prod(x.shape), device=x.device), x.shape), key)
    source = broadcast_to(stored if stored.dtype is x.dtype else stored.to(x.dtype), places.shape)
    flat = scatter(
        reshape(x, (prod(x.shape),)), reshape(source, (prod(places.shape),)),
        reshape(places, (prod(places.shape),)), mode="add",
    )  # fmt: skip
    return reshape(flat, x.shape)
