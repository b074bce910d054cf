"""Sorting, and what follows from an order: the k largest, medians and quantiles.

NaN counts as larger than every number, so it comes last, or first in descending order; -0.0 and 0.0 are
equal. Array API standard 2025.12, section "Sorting Functions"; other names are PyTorch's.
"""

from __future__ import annotations

from typing import Any, Final

from ...dtypes import definition as dt
from ...dtypes.definition import BOOL, REAL, DType
from ...errors import ArgumentError, ShapeError
from ...tracing.sym_int import index
from .. import sharding_rules
from ..batching_rules import shifted
from ..call_errors import flags, with_form
from ..creation.creation import full, iota, zeros
from ..definition import Op, Spec, table
from ..elementwise.arithmetic import ceil, floor, maximum, round
from ..elementwise.comparison import equal, isfinite, isnan, less_equal
from ..elementwise.family import Operand, fit
from ..elementwise.where_cast import cast, narrowed, where, widened
from ..indexing.take_along_axis import identity, scatter_along_axis, take_along_axis
from ..movement.family import is_single, normalize_axis
from ..movement.movement import broadcast_to, moveaxis, pad, reshape, squeeze
from ..reduction.reduction import all, max, min, sum
from ..reduction.scan import Extremes, cut

ORDERED = BOOL + REAL
TOPK_MIN_LENGTH: Final = 2048
TOPK_MIN_RATIO: Final = 32
"""Rows of so many elements, and of so many for each that is asked for, are not sorted for a few."""
INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def _normalize(name: str) -> Any:
    def normalize(specs: tuple[Spec, ...], axis: int, **rest: Any) -> dict[str, Any]:
        return {"axis": normalize_axis(name, axis, len(specs[0].shape)), **rest}

    return normalize


def _sort_arguments(
    x: Operand, /, axis: int = -1, descending: bool = False, stable: bool = True
) -> tuple[tuple[Operand, ...], dict[str, Any]]:
    """Equal elements cannot be told apart, but for the signs of zeros: ``stable`` asks for nothing."""
    return (x,), {"axis": axis, **flags("sort", descending=descending)}


def _sort_vjp(g: Any, x: Any, axis: int, descending: bool) -> tuple[Any, ...]:
    order = argsort(x, axis=axis, descending=descending)
    none = zeros(x.shape, dtype=g.dtype, device=g.device)
    return (scatter_along_axis(none, order, g, axis=axis),)


sort: Op[...] = table.add(
    Op(
        name="sort",
        family="sorting",
        operands=("x",),
        arguments=_sort_arguments,
        normalize=_normalize("sort"),
        unsqueezes=True,
        compute=lambda dtypes, **_: (fit("sort", dtypes[0], ORDERED),),
        infer=lambda specs, **_: specs[0],
        vjp=_sort_vjp,
        may_overwrite=("x",),
        batch=shifted("sort", "axis"),
        shard=sharding_rules.besides(),
        dtypes=ORDERED,
        memoize=True,
        doc="The elements in order along ``axis``; NaN counts as the largest.",
    )
)


def _argsort_arguments(
    x: Operand, /, axis: int = -1, descending: bool = False, stable: bool = True
) -> tuple[tuple[Operand, ...], dict[str, Any]]:
    return (x,), {
        "axis": axis,
        **flags("argsort", descending=descending, stable=stable),
    }


argsort: Op[...] = table.add(
    Op(
        name="argsort",
        family="sorting",
        operands=("x",),
        arguments=_argsort_arguments,
        normalize=_normalize("argsort"),
        unsqueezes=True,
        compute=lambda dtypes, **_: (fit("argsort", dtypes[0], ORDERED),),
        infer=lambda specs, **_: Spec(specs[0].shape, dt.default_int),
        batch=shifted("argsort", "axis"),
        shard=sharding_rules.besides(),
        dtypes=ORDERED,
        memoize=True,
        doc="The indices that put ``x`` in order along ``axis``; NaN counts as the largest. Equal elements"
        " keep their order unless ``stable`` is false.",
    )
)


def _part_arguments(
    x: Operand, /, axis: int = -1, *, start: int = 0, count: int, descending: bool = False
) -> tuple[tuple[Operand, ...], dict[str, Any]]:
    return (x,), {
        "axis": axis,
        "start": index(start),
        "count": index(count),
        **flags("argsort_part", descending=descending),
    }


def _part_infer(specs: tuple[Spec, ...], *, axis: int, start: int, count: int, descending: bool) -> Spec:
    shape = specs[0].shape
    if not 0 <= start <= start + count <= shape[axis]:
        raise ShapeError(
            f"argsort_part: {count} elements from {start} on leave axis {axis} of shape {shape}."
        )
    return Spec((*shape[:axis], count, *shape[axis + 1 :]), dt.default_int)


def _select(x: Any, axis: int, start: int, count: int, descending: bool) -> Any:
    """Return the indices from an order of all; of few in a long row from the stretches that have them.

    The first ``k`` elements of an order lie in the first ``k`` of its stretches, in the order of their first
    elements: others have ``k`` elements before theirs. Stretches of sqrt(n / k) leave the fewest to sort.
    """
    length, last = x.shape[axis], start + count
    whole = type(length) is type(last) is int  # and no symbols
    if not (whole and last and length >= TOPK_MIN_LENGTH and length >= TOPK_MIN_RATIO * last):
        return cut(argsort(x, axis=axis, descending=descending), axis, start, last)
    rows = moveaxis(cast(x, dt.default_int) if x.dtype is dt.bool_ else x, axis, -1)
    lead, wide = rows.shape[:-1], 1 << (length // last).bit_length() // 2
    ends = (*(0 for _ in lead), -length % wide)
    rows = pad(rows, low=(0,) * len(ends), high=ends, value=_behind(rows.dtype, descending))
    parts = reshape(rows, (*lead, -1, wide))
    chosen = argsort_part(_leaders(parts, descending), axis=-1, count=last, descending=descending)
    chosen = sort(chosen, axis=-1)[..., None]
    candidates = reshape(take_along_axis(parts, chosen, axis=-2), (*lead, -1))
    places = reshape(chosen * wide + iota(wide, device=x.device), candidates.shape)
    order = argsort_part(candidates, axis=-1, start=start, count=count, descending=descending)
    return moveaxis(take_along_axis(places, order, axis=-1), -1, axis)


def _leaders(parts: Any, descending: bool) -> Any:
    """Return of each stretch, along the last axis, an element that no other comes before."""
    if descending or not parts.dtype.is_floating:
        return (max if descending else min)(parts, axis=-1)
    odd = isnan(parts)
    least = min(where(odd, identity("min", parts.dtype), parts), axis=-1)
    return where(all(odd, axis=-1), float("nan"), least)


def _behind(dtype: DType, descending: bool) -> Any:
    """Return a value that nothing comes behind."""
    if dtype.is_floating and not descending:
        return float("nan")
    return identity("max" if descending else "min", dtype)


argsort_part: Op[...] = table.add(
    Op(
        name="argsort_part",
        family="sorting",
        operands=("x",),
        arguments=_part_arguments,
        normalize=_normalize("argsort_part"),
        compute=lambda dtypes, **_: (fit("argsort_part", dtypes[0], ORDERED),),
        infer=_part_infer,
        decompose=_select,
        batch=shifted("argsort_part", "axis"),
        shard=sharding_rules.besides(),
        dtypes=ORDERED,
        memoize=True,
        doc="The indices of ``count`` elements in order along ``axis``, from number ``start`` on: a part of"
        " ``argsort``. Equal elements keep their order.",
    )
)


def _first(name: str, x: Any, k: int, axis: int) -> tuple[int, int]:
    """Return ``k`` and the axis as integers, which tensors may have stood for."""
    place = normalize_axis(name, axis, len(x.shape))
    if not hasattr(k, "__index__") or not 0 <= k <= x.shape[place]:
        raise ArgumentError(f"{name}: k must lie between 0 and {x.shape[place]}, the axis' length; got {k}.")
    return index(k), place


@with_form
def topk(x: Any, /, k: int, axis: int = -1, largest: bool = True, sorted: bool = True) -> Extremes:
    """Return the ``k`` largest (or smallest) elements along ``axis``, in order, and where they are.

    NaN counts as the largest; of equal elements the first is taken. ``sorted`` is there for programs that
    leave the order open: the result is in order anyhow.

    >>> import tensorbus as tb
    >>> values, indices = tb.topk(tb.asarray([1.0, 4.0, 3.0]), 2)
    >>> values.tolist(), indices.tolist()
    ([4.0, 3.0], [1, 2])
    """
    if is_single(x, axis):
        values, indices = topk(reshape(x, (1,)), k, 0)
        return Extremes(reshape(values, ()), reshape(indices, ())) if k else Extremes(values, indices)
    k, place = _first("topk", x, k, axis)
    indices = argsort_part(x.detach(), axis=place, count=k, descending=largest)
    return Extremes(take_along_axis(x, indices, axis=place), indices)


@with_form
def kthvalue(x: Any, /, k: int, axis: int = -1, keepdims: bool = False) -> Extremes:
    """Return the ``k``-th smallest element along ``axis``, counted from 1, and where it is."""
    if is_single(x, axis):
        return kthvalue(reshape(x, (1,)), k, 0)
    k, place = _first("kthvalue", x, k, axis)
    if k == 0:
        raise ArgumentError("kthvalue: k counts from 1, got 0.")
    indices = argsort_part(x.detach(), axis=place, start=k - 1, count=1)
    return _taken(x, indices, place, keepdims)


def _taken(x: Any, indices: Any, axis: int, keepdims: bool) -> Extremes:
    values = take_along_axis(x, indices, axis=axis)
    if keepdims:
        return Extremes(values, indices)
    shape = tuple(n for k, n in enumerate(x.shape) if k != axis)
    return Extremes(reshape(values, shape), reshape(indices, shape))


@with_form
def median(x: Any, /, axis: int | None = None, keepdims: bool = False) -> Any:
    """Return the median: of an even number of elements the mean of the middle two. NaN where an element is.

    NumPy's meaning, because programs for any array library ask for it by this name; ``kthvalue`` finds an
    element and where it is. Integers give the default float.

    >>> import tensorbus as tb
    >>> tb.median(tb.asarray([4.0, 1.0, 3.0, 2.0])).item()
    2.5
    """
    if axis is None or is_single(x, axis):
        out = median(reshape(x, (_filled("median", x, None),)), 0)
        return reshape(out, tuple(1 for _ in x.shape)) if keepdims else out
    place = normalize_axis("median", axis, len(x.shape))
    length = _filled("median", x, place)
    rows = sort(cast(x, fit("median", x.dtype, dt.FLOATING)), axis=place)
    low, high, last = (cut(rows, place, k, k + 1) for k in ((length - 1) // 2, length // 2, length - 1))
    middle = low if length % 2 else low * 0.5 + high * 0.5
    out = where(isnan(last), last, middle)
    return out if keepdims else squeeze(out, axis=place)


def _filled(name: str, x: Any, axis: int | None) -> int:
    count: int = x.size if axis is None else x.shape[axis]
    if count == 0:
        raise ShapeError(f"{name}: of no elements there is none; the shape is {x.shape}.")
    return count


@with_form
def quantile(
    x: Any, /, q: Any, axis: int | None = None, keepdims: bool = False, *, interpolation: str = "linear"
) -> Any:
    """Return the value below which the share ``q`` of the elements along ``axis`` lies.

    ``q`` is a number or a 0- or 1-dimensional tensor of numbers in [0, 1], whose axis comes first in the
    result. ``interpolation`` says what lies between two elements: 'linear', 'lower', 'higher', 'midpoint' or
    'nearest'. NaN where an element is NaN. Raises ``ArgumentError`` for a number ``q`` outside [0, 1]; in a
    tensor, which is not read, one outside gives NaN.

    >>> import tensorbus as tb
    >>> tb.quantile(tb.asarray([0.0, 1.0, 2.0, 3.0]), 0.5).item()
    1.5
    """
    return quantiles("quantile", x, q, axis, keepdims, interpolation)


def quantiles(
    name: str, x: Any, q: Any, axis: int | None, keepdims: bool, interpolation: str, skip_nan: bool = False
) -> Any:
    """Return the quantiles of ``quantile``; with ``skip_nan`` those of the elements that are not NaN."""
    if interpolation not in INTERPOLATIONS:
        raise ArgumentError(
            f"{name}: interpolation must be one of {', '.join(INTERPOLATIONS)}, got {interpolation!r}."
        )
    axis = None if is_single(x, axis) else axis
    kept_shape = tuple(1 for _ in x.shape) if axis is None else None
    rows = reshape(x, (-1,) if x.size else (0,)) if axis is None else x
    place = normalize_axis(name, 0 if axis is None else axis, len(rows.shape))
    length = _filled(name, rows, place)
    rows = cast(rows, fit(name, x.dtype, dt.FLOATING))
    if not hasattr(q, "shape"):
        if not 0 <= q <= 1:
            raise ArgumentError(f"{name}: q must lie in [0, 1], got {q!r}.")
        q = full((), float(q), dtype=_places_dtype(rows.dtype), device=x.device)
    if len(q.shape) > 1:
        raise ShapeError(f"{name}: q must have at most 1 dimension, got shape {q.shape}.")
    last = moveaxis(sort(rows, axis=place), place, -1)  # NaN comes behind all numbers
    count: Any = length
    if skip_nan:
        count = maximum(sum(~isnan(last), axis=-1, keepdims=True), 1)
        count = cast(count, _places_dtype(rows.dtype))
    between = _between(last, reshape(q, (-1,)), count, interpolation)
    if not skip_nan:
        tail = cut(last, len(last.shape) - 1, length - 1, length)
        between = where(isnan(tail), float("nan"), between)
    single = between.shape[:-1]
    out = moveaxis(between, -1, 0)
    if keepdims:
        single = kept_shape or tuple(1 if k == place else n for k, n in enumerate(x.shape))
    return reshape(out, (*q.shape, *single))


def _places_dtype(dtype: DType) -> DType:
    """Return the dtype that places in rows are computed in: one of 16 bits cannot count them."""
    return dt.float32 if dtype in dt.NARROW else dtype


def _between(rows: Any, q: Any, count: Any, interpolation: str) -> Any:
    """Return the quantiles of the first ``count`` elements of sorted rows along their last axis."""
    dtype = _places_dtype(rows.dtype)
    inside = (q >= 0) & less_equal(q, 1)
    at = where(inside, cast(q, dtype), 0) * (count - 1)
    if interpolation == "nearest":
        at = round(at)
    low, high = floor(at), ceil(at)
    if interpolation == "lower":
        high = low
    elif interpolation == "higher":
        low = high
    lead = rows.shape[:-1]
    below, above = (widened(_at(rows, place, lead)) for place in (low, high))
    share = at - low if interpolation == "linear" else 0.5
    share = where(equal(low, high), 0.0, share)
    apart = above - below
    ends = where(equal(share, 0), below, below * (1 - share) + above * share)  # an infinite one stays
    between = where(isfinite(apart), below + apart * share, ends)
    return narrowed(where(inside, between, float("nan")), rows.dtype)


def _at(rows: Any, places: Any, lead: tuple[int, ...]) -> Any:
    whole = (*lead, places.shape[-1])
    return take_along_axis(rows, broadcast_to(cast(places, dt.int64), whole), axis=-1)
