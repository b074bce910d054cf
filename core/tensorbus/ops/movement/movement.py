"""Movement: the same elements at other places, in other shapes, or beside others.

Every attribute that a kernel sees is explicit: full shapes, non-negative axes, one start and step an axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod
from typing import Any

from ...dtypes.definition import DType, Scalar, check_scalar
from ...dtypes.promotion import promote
from ...errors import ShapeError
from .. import sharding_rules
from ..batching_rules import broadcast, prefixed, shifted
from ..call_errors import with_form
from ..definition import Attrs, Op, Shape, Spec, Strides, ViewRule, table
from .family import Arguments, as_shape, is_single, movement, normalize_axis


def _broadcast_infer(specs: tuple[Spec, ...], *, shape: Shape) -> Spec:
    shape_in = specs[0].shape
    pairs = zip(shape_in[::-1], shape[::-1], strict=False)
    if len(shape_in) > len(shape) or any(n < 0 for n in shape) or any(a not in (1, b) for a, b in pairs):
        raise ShapeError(
            f"broadcast_to: shape {shape_in} does not broadcast to {shape}: counted from the last, each of"
            f" its axes must have the length that is asked for, or 1."
        )
    return Spec(shape, specs[0].dtype)


def _broadcast_strides(strides: Strides, own: Shape, /, shape: Shape) -> Strides:
    lead = len(shape) - len(own)
    aligned = zip(strides, own, shape[lead:], strict=True)
    return (0,) * lead + tuple(0 if n != length else s for s, n, length in aligned)


def _broadcast_put(base: Any, value: Any, own: Shape, /, **_: Any) -> Any:
    """Return what the result was broadcast from. One without elements shows nothing of it."""
    if prod(value.shape) == prod(own):
        return reshape(value, own)
    if 0 in value.shape:
        return base
    lead = (1,) * (len(value.shape) - len(own))
    return reshape(slice(value, (0,) * len(value.shape), lead + own, (1,) * len(value.shape)), own)


broadcast_to = movement(
    "broadcast_to",
    arguments=lambda x, /, shape: ((x,), {"shape": as_shape("broadcast_to", shape)}),
    infer=_broadcast_infer,
    vjp=lambda g, x_shape: (sum_to(g, x_shape),),
    batch=broadcast,
    shard=sharding_rules.broadcast_to,
    view=ViewRule(
        put=_broadcast_put,
        refuses="one element of the tensor that it was broadcast from shows at several places",
        strides=_broadcast_strides,
    ),
    doc="``x`` repeated along axes of length 1 to ``shape``, as a view that cannot be written to.",
)


def sum_to(g: Any, shape: Shape) -> Any:
    """Return ``g`` summed to ``shape``, the reverse of broadcasting."""
    lead = len(g.shape) - len(shape)
    if lead == 0 and g.shape == shape:  # tuples compare items first: of open lengths that is a condition
        return g
    axes = tuple(range(lead)) + tuple(
        lead + k for k, n in enumerate(shape) if n == 1 and g.shape[lead + k] != 1
    )
    return reshape(table["sum"](g, axis=axes, keepdims=False), shape)


def _reshape_normalize(specs: tuple[Spec, ...], shape: Shape) -> dict[str, Any]:
    size = prod(specs[0].shape)
    if shape.count(-1) == 1:
        known = prod(n for n in shape if n != -1)
        if known and size % known == 0:
            shape = tuple(size // known if n == -1 else n for n in shape)
    if prod(shape) != size or any(n < 0 for n in shape):
        raise ShapeError(
            f"reshape: {size} element(s) of shape {specs[0].shape} do not fill shape {shape};"
            f" the lengths must multiply to {size}, and one of them may be -1."
        )
    return {"shape": shape}


def _reshape_strides(strides: Strides, own: Shape, /, shape: Shape) -> Strides | None:
    """Return the strides of another shape over the same memory; None where it has none.

    Runs of axes that lie one in the other merge and part again; others stay apart, as in NumPy and PyTorch.
    """
    if 0 in own:
        return (1,) * len(shape)
    axes = [(n, s) for n, s in zip(own, strides, strict=True) if n != 1]
    runs: list[list[int]] = []  # lengths and strides of what lies evenly, from the last axis on
    for n, s in reversed(axes):
        if runs and s == runs[-1][0] * runs[-1][1]:
            runs[-1][0] *= n
        else:
            runs.append([n, s])
    result = []
    left, step = 1, 1
    for n in reversed(shape):
        if n == 1:
            result.append(step)
            continue
        if left == 1:
            left, step = runs.pop(0)
        if left % n:
            return None
        result.append(step)
        left, step = left // n, step * n
    return tuple(reversed(result))


def _reshape_copies(strides: Strides | None, own: Shape, /, shape: Shape) -> bool:
    """Return whether another shape needs other memory; axes of length 1 come and go without."""
    if [n for n in own if n != 1] == [n for n in shape if n != 1]:
        return False
    return strides is None or _reshape_strides(strides, own, shape) is None


reshape: Op[...] = movement(
    "reshape",
    arguments=lambda x, /, shape, *, copy=None: ((x,), {"shape": as_shape("reshape", shape)}),
    normalize=_reshape_normalize,
    infer=lambda specs, shape: Spec(shape, specs[0].dtype),
    vjp=lambda g, x_shape: (reshape(g, x_shape),),
    batch=prefixed("reshape", shape=None),
    shard=sharding_rules.reshape,
    view=ViewRule(
        put=lambda base, value, own, /, shape: reshape(value, own),
        strides=_reshape_strides,
        copies=_reshape_copies,
    ),
    doc="The same elements in C order with another shape; one length may be -1. A view where the elements lie"
    " in that order already, else a copy; ``copy=True`` always copies, ``copy=False`` raises ``ValueError``"
    " where that is needed.",
)


def _permute_normalize(specs: tuple[Spec, ...], axes: Sequence[int]) -> dict[str, Any]:
    rank = len(specs[0].shape)
    order = tuple(normalize_axis("permute_dims", a, rank) for a in axes)
    if sorted(order) != list(range(rank)):
        raise ShapeError(f"permute_dims: axes {tuple(axes)} must name each of {rank} axes once.")
    return {"axes": order}


def _inverse(axes: Shape) -> Shape:
    return tuple(axes.index(k) for k in range(len(axes)))


def _permute_batch(operands: Sequence[Any], batched: Sequence[bool], axes: Shape) -> Any:
    return permute_dims(operands[0], (0, *(a + 1 for a in axes)))


permute_dims: Op[...] = movement(
    "permute_dims",
    arguments=lambda x, /, axes: ((x,), {"axes": as_shape("permute_dims", axes)}),
    normalize=_permute_normalize,
    infer=lambda specs, axes: Spec(tuple(specs[0].shape[a] for a in axes), specs[0].dtype),
    vjp=lambda g, axes: (permute_dims(g, _inverse(axes)),),
    batch=_permute_batch,
    shard=sharding_rules.permute_dims,
    view=ViewRule(
        put=lambda base, value, own, /, axes: permute_dims(value, _inverse(axes)),
        strides=lambda strides, own, /, axes: tuple(strides[a] for a in axes),
    ),
    doc="``x`` with axis ``axes[k]`` at place ``k``.",
)


def _flip_normalize(specs: tuple[Spec, ...], axis: int | tuple[int, ...] | None) -> dict[str, Any]:
    rank = len(specs[0].shape)
    axes = range(rank) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    axes = () if all(is_single(specs[0], a) for a in axes) else axes
    return {"axis": tuple(sorted({normalize_axis("flip", a, rank) for a in axes}))}


flip: Op[...] = movement(
    "flip",
    arguments=lambda x, /, axis=None: ((x,), {"axis": tuple(axis) if isinstance(axis, list) else axis}),
    normalize=_flip_normalize,
    infer=lambda specs, axis: specs[0],
    vjp=lambda g, axis: (flip(g, axis=axis),),
    batch=shifted("flip", "axis"),
    shard=sharding_rules.besides(moves=True),
    doc="``x`` backwards along ``axis`` (an int, a tuple, or None for all).",
)


def _slice_infer(specs: tuple[Spec, ...], *, start: Shape, size: Shape, step: Shape) -> Spec:
    shape = specs[0].shape
    _check_box("slice", shape, start, size, step)
    return Spec(size, specs[0].dtype)


def _check_box(name: str, shape: Shape, start: Shape, size: Shape, step: Shape) -> None:
    fits = len(shape) == len(start) == len(size) == len(step) and all(
        n == 0 or (0 <= b < length and 0 <= b + (n - 1) * s < length)
        for length, b, n, s in zip(shape, start, size, step, strict=True)
    )
    if not fits:
        raise ShapeError(f"{name}: start {start}, size {size}, step {step} leave shape {shape}.")


def _compose_slices(first: Attrs, then: Attrs) -> dict[str, Any]:
    """Return the box of a box."""
    starts = zip(first["start"], first["step"], then["start"], strict=True)
    steps = zip(first["step"], then["step"], strict=True)
    return {
        "start": tuple(b + s * inner for b, s, inner in starts),
        "size": then["size"],
        "step": tuple(s * t for s, t in steps),
    }


def _ends(attrs: Attrs, axis: int) -> tuple[int, int]:
    first = attrs["start"][axis]
    last = first + (attrs["size"][axis] - 1) * attrs["step"][axis]
    return (first, last) if first <= last else (last, first)


def _are_apart(one: Attrs, other: Attrs) -> bool:
    """Return whether two boxes share no element: along some axis their ranges, or their grids, are apart."""
    if 0 in one["size"] or 0 in other["size"]:
        return True
    for axis, (s, t) in enumerate(zip(one["step"], other["step"], strict=True)):
        (low, high), (first, last) = _ends(one, axis), _ends(other, axis)
        if high < first or last < low or (low - first) % gcd(s, t):
            return True
    return False


slice: Op[...] = movement(
    "slice",
    arguments=lambda x, /, start, size, step: (
        (x,), {"start": tuple(start), "size": tuple(size), "step": tuple(step)}
    ),
    infer=_slice_infer,
    vjp=lambda g, x_shape, start, step: (slice_update(_zeros(x_shape, g), g, start, step),),
    batch=prefixed("slice", start=0, size=None, step=1),
    shard=sharding_rules.box,
    view=ViewRule(
        put=lambda base, value, own, /, start, size, step: slice_update(base, value, start, step),
        partial=True,
        strides=lambda strides, own, /, start, size, step: tuple(
            a * s for a, s in zip(strides, step, strict=True)
        ),
        compose=_compose_slices,
        apart=_are_apart,
    ),
    late=("start",),
    doc="``size`` elements along each axis, from ``start`` on, ``step`` apart; steps may be negative.",
)  # fmt: skip


def _update_infer(specs: tuple[Spec, ...], *, start: Shape, step: Shape) -> Spec:
    _check_box("slice_update", specs[0].shape, start, specs[1].shape, step)
    return specs[0]


def _zeros(shape: Shape, g: Any) -> Any:
    return table["full"](shape, 0, dtype=g.dtype, device=g.device)


slice_update: Op[...] = movement(
    "slice_update",
    operands=("x", "value"),
    arguments=lambda x, value, /, start, step: ((x, value), {"start": tuple(start), "step": tuple(step)}),
    compute=lambda dtypes, **_: (dtypes[0], dtypes[0]),
    infer=_update_infer,
    vjp=lambda g, value_shape, start, step: (
        slice_update(g, _zeros(value_shape, g), start, step),
        slice(g, start, value_shape, step),
    ),
    batch=prefixed("slice_update", start=0, step=1),
    shard=sharding_rules.box,
    late=("start",),
    doc="``x`` with the box of ``value``'s shape, from ``start`` on, ``step`` apart, replaced by ``value``.",
)  # fmt: skip


def _pad_tangent(x_t: Any, low: Shape, high: Shape) -> Any:
    return table["pad"](x_t, low, high)


def _pad_normalize(specs: tuple[Spec, ...], low: Shape, high: Shape, value: Scalar) -> dict[str, Any]:
    if not len(low) == len(high) == len(specs[0].shape) or any(n < 0 for n in low + high):
        raise ShapeError(
            f"pad: low {low} and high {high} must be one length >= 0 for each of {len(specs[0].shape)} axes."
        )
    return {"low": low, "high": high, "value": check_scalar("pad", value, specs[0].dtype)}


pad = movement(
    "pad",
    family="padding",
    recompute=False,
    memoize=False,
    arguments=lambda x, /, low, high, value=0: (
        (x,), {"low": tuple(low), "high": tuple(high), "value": value}
    ),
    normalize=_pad_normalize,
    infer=lambda specs, low, high, value: Spec(
        tuple(a + n + b for a, n, b in zip(low, specs[0].shape, high, strict=True)), specs[0].dtype
    ),
    vjp=lambda g, x_shape, low: (slice(g, low, x_shape, (1,) * len(low)),),
    jvp=_pad_tangent,
    batch=prefixed("pad", low=0, high=0),
    shard=sharding_rules.pad,
    doc="``x`` with ``low`` elements of ``value`` before and ``high`` after, along each axis.",
)  # fmt: skip


def _concat_normalize(specs: tuple[Spec, ...], axis: int) -> dict[str, Any]:
    return {"axis": normalize_axis("concat", axis, len(specs[0].shape))}


def _concat_infer(specs: tuple[Spec, ...], *, axis: int) -> Spec:
    first = specs[0].shape
    rest = [s.shape[:axis] + s.shape[axis + 1 :] for s in specs]
    if any(len(s.shape) != len(first) for s in specs) or any(shape != rest[0] for shape in rest):
        raise ShapeError(
            f"concat: shapes {', '.join(str(s.shape) for s in specs)} must agree except along axis {axis}."
        )
    length = sum(s.shape[axis] for s in specs)
    return Spec((*first[:axis], length, *first[axis + 1 :]), specs[0].dtype)


def _concat_compute(operand_dtypes: tuple[DType, ...], **_: Any) -> tuple[DType, ...]:
    common = operand_dtypes[0]
    for d in operand_dtypes[1:]:
        common = promote(common, d)
    return (common,) * len(operand_dtypes)


def _concat_vjp(g: Any, xs_shape: Sequence[Shape], axis: int) -> tuple[Any, ...]:
    grads, at = [], 0
    for shape in xs_shape:
        start = tuple(at if k == axis else 0 for k in range(len(shape)))
        grads.append(slice(g, start, shape, (1,) * len(shape)))
        at += shape[axis]
    return tuple(grads)


def _concat_arguments(xs: Sequence[Any], /, axis: int | None = 0) -> Arguments:
    xs = tuple(xs)
    if not xs:
        raise ShapeError("concat: needs at least one tensor, got an empty sequence.")
    if axis is None:
        return tuple(reshape(x, (-1,)) for x in xs), {"axis": 0}
    return xs, {"axis": axis}


concat = movement(
    "concat",
    operands=("*xs",),
    arguments=_concat_arguments,
    normalize=_concat_normalize,
    compute=_concat_compute,
    infer=_concat_infer,
    vjp=_concat_vjp,
    batch=shifted("concat", "axis"),
    shard=sharding_rules.besides(moves=True),
    doc="The tensors one after another along ``axis``; None: all of them flattened.",
)


@with_form
def expand_dims(x: Any, /, axis: int | Sequence[int] = 0) -> Any:
    """Return ``x`` with a new axis of length 1 at ``axis``, or at each of several, counted in the result.

    Raises ``AxisError`` for an axis that the result does not have.

    >>> import tensorbus as tb
    >>> tb.expand_dims(tb.ones((2,)), axis=(0, -1)).shape
    (1, 2, 1)
    """
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    rank = len(x.shape) + len(axes)
    places = {normalize_axis("expand_dims", a, rank) for a in axes}
    if len(places) != len(axes):
        raise ShapeError(f"expand_dims: axis {axis!r} names an axis twice.")
    lengths = iter(x.shape)
    return reshape(x, tuple(1 if k in places else next(lengths) for k in range(rank)))


@with_form
def squeeze(x: Any, /, axis: int | Sequence[int] | None = None) -> Any:
    """Return ``x`` without the axes named, which must have length 1; without an axis, all that do go.

    Raises ``AxisError`` for an axis that ``x`` does not have, ``ShapeError`` for one of another length.

    >>> import tensorbus as tb
    >>> x = tb.ones((1, 2, 1))
    >>> x.squeeze().shape, x.squeeze(0).shape, x.squeeze((0, -1)).shape
    ((2,), (2, 1), (2,))
    """
    if axis is None:
        return reshape(x, tuple(n for n in x.shape if n != 1))
    listed = axis if isinstance(axis, (tuple, list)) else (axis,)
    listed = () if all(is_single(x, a) for a in listed) else listed
    axes = {normalize_axis("squeeze", a, len(x.shape)) for a in listed}
    if any(x.shape[a] != 1 for a in axes):
        raise ShapeError(f"squeeze: axis {axis} of shape {x.shape} does not have length 1.")
    return reshape(x, tuple(n for k, n in enumerate(x.shape) if k not in axes))


@with_form
def stack(xs: Sequence[Any], /, axis: int = 0) -> Any:
    """Return the tensors, all of one shape, side by side along a new axis."""
    xs = tuple(xs)
    if not xs:
        raise ShapeError("stack: needs at least one tensor, got an empty sequence.")
    if any(x.shape != xs[0].shape for x in xs):
        raise ShapeError(f"stack: shapes {', '.join(str(x.shape) for x in xs)} must be equal.")
    place = normalize_axis("stack", axis, len(xs[0].shape) + 1)
    return concat([expand_dims(x, place) for x in xs], axis=place)


@with_form
def moveaxis(x: Any, source: int | Sequence[int], destination: int | Sequence[int], /) -> Any:
    """Return ``x`` with axis ``source`` (or several) moved to ``destination``; the others keep their order.

    >>> import tensorbus as tb
    >>> tb.moveaxis(tb.ones((2, 3, 4)), (0, 1), (-1, 0)).shape
    (3, 4, 2)
    """
    rank = len(x.shape)
    pairs = [side if isinstance(side, (tuple, list)) else (side,) for side in (source, destination)]
    pairs = [() if all(is_single(x, a) for a in side) else side for side in pairs]
    both = [[normalize_axis("moveaxis", a, rank) for a in axes] for axes in pairs]
    if len(both[0]) != len(both[1]) or any(len(set(axes)) != len(axes) for axes in both):
        raise ShapeError(f"moveaxis: axes {source!r} and {destination!r} must pair up, each named once.")
    order = [k for k in range(rank) if k not in both[0]]
    for place, axis in sorted(zip(both[1], both[0], strict=True)):
        order.insert(place, axis)
    return permute_dims(x, tuple(order))


@with_form
def flatten(x: Any, /, start_axis: int = 0, end_axis: int = -1) -> Any:
    """Return ``x`` with the axes from ``start_axis`` to ``end_axis`` made one."""
    if not x.shape:
        return reshape(x, (1,))
    first, last = (
        normalize_axis("flatten", start_axis, len(x.shape)),
        normalize_axis("flatten", end_axis, len(x.shape)),
    )
    if first > last:
        raise ShapeError(f"flatten: start_axis {start_axis} lies behind end_axis {end_axis}.")
    return reshape(x, (*x.shape[:first], prod(x.shape[first : last + 1]), *x.shape[last + 1 :]))
