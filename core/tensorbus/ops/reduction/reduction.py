"""Reductions over one axis, several, or all of them.

The family turns ``axis`` into a sorted tuple of non-negative axes before a kernel sees it.
Array API standard 2025.12, sections "Statistical Functions", "Utility Functions" and "Searching Functions".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod as _product
from typing import Any

from ...dtypes import definition as dt
from ...dtypes.definition import BOOL, INEXACT, NUMERIC, REAL, DType
from ...errors import DtypeError, ShapeError
from .. import sharding_rules
from ..batching_rules import Rule, shifted
from ..call_errors import flags, with_form
from ..definition import Autocast, Jvp, Op, Shape, Spec, table
from ..elementwise.arithmetic import conj, divide, real
from ..elementwise.comparison import equal
from ..elementwise.family import Operand, fit
from ..elementwise.transcendental import sqrt
from ..elementwise.where_cast import cast, narrowed, where, widened
from ..fused_function import fuse_in_eager
from ..movement.family import is_single, normalize_axis
from ..movement.movement import broadcast_to, concat, pad, permute_dims, reshape, slice

Axis = int | tuple[int, ...] | list[int] | None


def normalize_axes(name: str, axis: Axis, rank: int) -> tuple[int, ...]:
    """Return sorted non-negative axes; ``None`` is all of them. Raises ``ShapeError`` for repeats."""
    if axis is None:
        return tuple(range(rank))
    listed = axis if isinstance(axis, (tuple, list)) else (axis,)
    if not rank and len(listed) == 1 and not isinstance(listed[0], bool) and listed[0] in (0, -1):
        return ()  # a single number is what is left of a line of one
    axes = tuple(sorted(normalize_axis(name, a, rank) for a in listed))
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{name}: axis {axis!r} names an axis twice.")
    return axes


def reduced_shape(shape: Shape, axes: tuple[int, ...], keepdims: bool) -> Shape:
    """Return what is left of ``shape``."""
    if keepdims:
        return tuple(1 if k in axes else n for k, n in enumerate(shape))
    return tuple(n for k, n in enumerate(shape) if k not in axes)


def keep(x: Any, shape: Shape, axes: tuple[int, ...]) -> Any:
    """Return a reduced tensor with its axes back as axes of length 1, ready to broadcast."""
    return reshape(x, tuple(1 if k in axes else n for k, n in enumerate(shape)))


def reduction(
    name: str,
    *,
    dtypes: tuple[DType, ...],
    result: Callable[[DType], DType] | None = None,
    accumulate: Callable[[DType], DType] | None = None,
    identity: bool = True,
    typed: bool = False,
    cast_first: bool = False,
    limit: float | None = None,
    decompose: Callable[..., Any] | None = None,
    vjp: Callable[..., tuple[Any, ...]] | None = None,
    jvp: Callable[..., Any] | Jvp | None = None,
    autocast: Autocast | None = None,
    partial: str | None = None,
    doc: str = "",
) -> Op[...]:
    """Define a reduction. Without an ``identity`` the reduction of no elements is an error.

    A ``typed`` one takes ``dtype``, in which it computes; the attribute is there only where it was asked for.
    One that is ``cast_first`` takes it too, and has no such attribute: its operand is cast.
    Samples hold elements up to ``limit`` in size. ``partial`` is the reduction that joins those of parts.
    """

    def arguments(
        x: Operand, /, axis: Axis = None, keepdims: bool = False
    ) -> tuple[tuple[Operand, ...], dict[str, Any]]:
        axis = tuple(axis) if isinstance(axis, list) else axis
        return (x,), {"axis": axis, **flags(name, keepdims=keepdims)}

    def typed_arguments(
        x: Operand, /, axis: Axis = None, keepdims: bool = False, *, dtype: DType | str | None = None
    ) -> tuple[tuple[Operand, ...], dict[str, Any]]:
        operands, attrs = arguments(x, axis, keepdims)
        return operands, attrs if dtype is None else {**attrs, "dtype": check_dtype(name, dtype, dtypes)}

    def casting_arguments(
        x: Operand, /, axis: Axis = None, keepdims: bool = False, *, dtype: DType | str | None = None
    ) -> tuple[tuple[Operand, ...], dict[str, Any]]:
        return arguments(x if dtype is None else cast(x, check_dtype(name, dtype, dtypes)), axis, keepdims)

    def compute(operand_dtypes: tuple[DType, ...], dtype: DType | None = None, **_: Any) -> tuple[DType, ...]:
        if dtype is not None:
            return (dtype,)
        given_dtype = accumulate(operand_dtypes[0]) if accumulate else operand_dtypes[0]
        return (fit(name, given_dtype, dtypes),)

    def normalize(specs: tuple[Spec, ...], axis: Axis, **rest: Any) -> dict[str, Any]:
        return {"axis": normalize_axes(name, axis, len(specs[0].shape)), **rest}

    def infer(specs: tuple[Spec, ...], *, axis: tuple[int, ...], keepdims: bool, **_: Any) -> Spec:
        spec = specs[0]
        if not identity and _product(spec.shape[a] for a in axis) == 0:
            raise ShapeError(
                f"{name}: no elements along axis {axis} of shape {spec.shape}; it has no identity."
            )
        return Spec(reduced_shape(spec.shape, axis, keepdims), result(spec.dtype) if result else spec.dtype)

    return table.add(
        Op(
            name=name, family="reduction", operands=("x",), infer=infer,
            arguments=typed_arguments if typed else casting_arguments if cast_first else arguments,
            normalize=normalize, compute=compute,
            decompose=decompose, vjp=vjp, jvp=jvp, batch=shifted(name, "axis"), dtypes=dtypes,
            shard=sharding_rules.reduction(partial, is_linear=jvp == "linear"),
            identity=identity, domain=None if limit is None else (-limit, limit),
            autocast=autocast, memoize=True, doc=doc,
        )
    )  # fmt: skip


def check_dtype(name: str, dtype: DType | str, dtypes: tuple[DType, ...]) -> DType:
    """Return the dtype asked for. Raises ``DtypeError`` where the op is not defined for it."""
    target = dt.dtype(dtype)
    if target not in dtypes:
        raise DtypeError(f"{name}: no result in {target}; it takes {', '.join(d.name for d in dtypes)}.")
    return target


def sum_dtype(d: DType) -> DType:
    """Return the dtype that elements of dtype ``d`` add up in: 64 bits for integers and bools."""
    if d.kind == "uint":
        return dt.uint64
    return dt.default_int if d.kind in ("int", "bool") else d


def _back(g: Any, shape: Shape, axis: tuple[int, ...]) -> Any:
    return broadcast_to(keep(g, shape, axis), shape)


def _extreme_vjp(g: Any, out: Any, x: Any, axis: tuple[int, ...]) -> tuple[Any, ...]:
    hit = cast(equal(x, keep(out, x.shape, axis)), g.dtype)
    return (_back(g, x.shape, axis) * hit / sum(hit, axis=axis, keepdims=True),)


def _prod_vjp(g: Any, x: Any, axis: tuple[int, ...]) -> tuple[Any, ...]:
    outer = tuple(k for k in range(len(x.shape)) if k not in axis)
    order = outer + axis
    shape = tuple(x.shape[k] for k in order)
    rows = reshape(permute_dims(x, order), (*shape[: len(outer)], _count(x.shape, axis)))
    grads = reshape(conj(products_of_others(rows)) * reshape(g, (*shape[: len(outer)], 1)), shape)
    return (permute_dims(grads, tuple(order.index(k) for k in range(len(order)))),)


def products_of_others(rows: Any) -> Any:
    """Multiply, for each element of the last axis, all the others: pairwise, so that zeros do no harm."""
    *lead, count = rows.shape
    if count <= 1:
        return table["full"](rows.shape, 1, dtype=rows.dtype, device=rows.device)
    if count % 2:
        rows = pad(rows, (0,) * len(rows.shape), (*(0,) * len(lead), 1), 1)
    half = (count + 1) // 2
    none, step = (0,) * len(lead), (*(1,) * len(lead), 2)
    even = slice(rows, (*none, 0), (*lead, half), step)
    odd = slice(rows, (*none, 1), (*lead, half), step)
    others = reshape(products_of_others(even * odd), (*lead, half, 1))
    pairs = concat([reshape(odd, (*lead, half, 1)), reshape(even, (*lead, half, 1))], axis=-1)
    return slice(
        reshape(pairs * others, (*lead, 2 * half)), (*none, 0), (*lead, count), (1,) * (len(lead) + 1)
    )


sum = reduction(
    "sum", autocast="wide", dtypes=NUMERIC, accumulate=sum_dtype, typed=True,
    vjp=lambda g, x_shape, axis: (_back(g, x_shape, axis),), jvp="linear",
    partial="sum", doc="The sum; integers and bools add up in 64 bits, unless a ``dtype`` is asked for.",
)  # fmt: skip
prod = reduction(
    "prod", autocast="wide", limit=1.2, dtypes=NUMERIC, accumulate=sum_dtype, typed=True, vjp=_prod_vjp,
    partial="product",
    doc="The product; integers and bools multiply in 64 bits, unless a ``dtype`` is asked for.",
)  # fmt: skip
max = reduction(
    "max",
    dtypes=BOOL + REAL,
    identity=False,
    vjp=_extreme_vjp,
    partial="max",
    doc="The largest element, or NaN.",
)
min = reduction(
    "min",
    dtypes=BOOL + REAL,
    identity=False,
    vjp=_extreme_vjp,
    partial="min",
    doc="The smallest element, or NaN.",
)


def _as_bool(_: DType) -> DType:
    return dt.bool_


any = reduction("any", dtypes=BOOL, accumulate=_as_bool, doc="True if any element is true (not zero).")
all = reduction("all", dtypes=BOOL, accumulate=_as_bool, doc="True if every element is true (not zero).")


def _count(shape: Shape, axis: tuple[int, ...]) -> int:
    return _product(shape[a] for a in axis)


def _mean(x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    total = sum(widened(x), axis=axis, keepdims=keepdims)
    return narrowed(total * _reciprocal(_count(x.shape, axis)), x.dtype)


mean = reduction(
    "mean", autocast="wide", dtypes=INEXACT, cast_first=True,
    accumulate=lambda d: d if d.is_inexact else dt.default_float,
    decompose=_mean,
    vjp=lambda g, x_shape, axis: (_back(g, x_shape, axis) * _reciprocal(_count(x_shape, axis)),),
    jvp="linear",
    doc="The mean, in ``dtype`` where one is asked for; of no elements it is NaN.",
)  # fmt: skip


def _reciprocal(count: int) -> float:
    return 1 / count if count else float("nan")


def _arg_batch(name: str) -> Rule:
    def rule(operands: Sequence[Any], batched: Sequence[bool], axis: tuple[int, ...], keepdims: bool) -> Any:
        return table.run(name, operands, {"axis": axis[0] + 1, "keepdims": keepdims})

    return rule


def _arg_reduction(name: str, doc: str) -> Op[...]:
    def arguments(
        x: Operand, /, axis: int | None = None, keepdims: bool = False
    ) -> tuple[tuple[Operand, ...], dict[str, Any]]:
        flags(name, keepdims=keepdims)
        rank = len(x.shape)
        axis = None if is_single(x, axis) else axis
        if axis is None and rank != 1:
            ones = (1,) * (rank - 1) if keepdims and rank else ()
            x, axis, keepdims = reshape(x, (*ones, _product(x.shape))), len(ones), keepdims and rank > 0
        return (x,), {"axis": axis, "keepdims": bool(keepdims)}

    def normalize(
        specs: tuple[Spec, ...], axis: int | tuple[int, ...] | None, keepdims: bool
    ) -> dict[str, Any]:
        rank = len(specs[0].shape)
        if isinstance(axis, tuple):  # as kernels see it
            (axis,) = axis
        return {"axis": (normalize_axis(name, 0 if axis is None else axis, rank),), "keepdims": keepdims}

    def infer(specs: tuple[Spec, ...], *, axis: tuple[int, ...], keepdims: bool) -> Spec:
        shape = specs[0].shape
        if shape[axis[0]] == 0:
            raise ShapeError(f"{name}: no elements along axis {axis[0]} of shape {shape}.")
        return Spec(reduced_shape(shape, axis, keepdims), dt.default_int)

    def compute(operand_dtypes: tuple[DType, ...], **_: Any) -> tuple[DType, ...]:
        return (fit(name, operand_dtypes[0], REAL),)

    return table.add(
        Op(
            name=name, family="reduction", operands=("x",), arguments=arguments, infer=infer,
            normalize=normalize, compute=compute, batch=_arg_batch(name), dtypes=REAL,
            shard=sharding_rules.reduction(None),
            memoize=True, doc=doc,
        )
    )  # fmt: skip


argmax = _arg_reduction("argmax", "The index of the first largest element along ``axis``; NaN counts as it.")
argmin = _arg_reduction("argmin", "The index of the first smallest element along ``axis``; NaN counts as it.")


@with_form
@fuse_in_eager
def var(x: Any, /, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Any:
    """Return the variance, the squared distances divided by the count less ``correction``.

    Complex numbers have a real one, of their distances in the plane.

    >>> import tensorbus as tb
    >>> tb.var(tb.asarray([1.0, 3.0])).item()
    1.0
    """
    return narrowed(_variance("var", x, axis, correction, keepdims), dt.real_of(x.dtype))


@with_form
@fuse_in_eager
def std(x: Any, /, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Any:
    """Return the standard deviation, the square root of ``var``; where that is 0, so is the gradient.

    >>> import tensorbus as tb
    >>> tb.std(tb.asarray([1.0, 3.0])).item()
    1.0
    """
    spread = _variance("std", x, axis, correction, keepdims)
    flat = equal(spread, 0)
    return narrowed(where(flat, 0.0, sqrt(where(flat, 1.0, spread))), dt.real_of(x.dtype))


def _variance(name: str, x: Any, axis: Axis, correction: float, keepdims: bool) -> Any:
    """Return the variance in the dtype that a narrow one is computed in."""
    axes = normalize_axes(name, axis, len(x.shape))
    wide = widened(x)
    centred = wide - mean(wide, axis=axes, keepdims=True)
    count = _count(x.shape, axes) - correction
    square = real(centred * conj(centred)) if x.dtype.is_complex else centred * centred
    total = sum(square, axis=axes, keepdims=keepdims)
    return divide(total, count * 1.0) if count > 0 else total * float("nan")


@with_form
@fuse_in_eager
def count_nonzero(x: Any, /, axis: Axis = None, keepdims: bool = False) -> Any:
    """Return how many elements are not zero, as int64.

    >>> import tensorbus as tb
    >>> tb.count_nonzero(tb.asarray([0.0, 2.0, float("nan")])).item()
    2
    """
    return sum(cast(x, dt.bool_), axis=axis, keepdims=keepdims)
