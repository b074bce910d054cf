"""Norms of vectors and of matrices, and condition numbers."""

from __future__ import annotations

from math import inf as _inf
from math import isnan as _isnan
from typing import TYPE_CHECKING, Any, Final

from ...dtypes.definition import INEXACT, DType, as_scalar, real_of
from ...errors import ArgumentError, ShapeError
from .. import sharding_rules
from ..batching_rules import shifted
from ..call_errors import flags, with_form
from ..creation.creation import full
from ..definition import Op, Shape, Spec, table
from ..elementwise.arithmetic import abs, conj, real, sign
from ..elementwise.comparison import equal, isinf, logical_or, not_equal
from ..elementwise.family import Operand, fit
from ..elementwise.transcendental import power, sqrt
from ..elementwise.where_cast import cast, narrowed, where, widened
from ..fused_function import fuse_in_eager
from ..movement.family import normalize_axis
from ..movement.movement import moveaxis, reshape
from ..reduction import reduction
from ..reduction.reduction import keep, normalize_axes, reduced_shape, sum
from .matrix import check_matrix, quotient
from .orthogonal import svdvals
from .solve import inv

if TYPE_CHECKING:
    from ...tensor.tensor import Tensor

Axis = int | tuple[int, ...] | list[int] | None
Order = int | float | str | None
_MATRIX_ORDERS: Final = ("fro", "nuc", 1, -1, 2, -2, _inf, -_inf)


def _order(name: str, ord: Any) -> float:
    number = ord if isinstance(ord, str) else as_scalar(name, ord)
    if isinstance(number, (str, complex)) or _isnan(number):
        raise ArgumentError(f"{name}: ord is {ord!r}; the order of a vector norm is a real number.")
    return float(number)


def _arguments(
    x: Operand, /, *, axis: Axis = None, keepdims: bool = False, ord: float = 2
) -> tuple[tuple[Operand, ...], dict[str, Any]]:
    return (x,), {
        "axis": tuple(axis) if isinstance(axis, list) else axis,
        **flags("vector_norm", keepdims=keepdims),
        "ord": _order("vector_norm", ord),
    }


def _normalize(specs: tuple[Spec, ...], axis: Axis, keepdims: bool, ord: float) -> dict[str, Any]:
    axes = normalize_axes("vector_norm", axis, len(specs[0].shape))
    return {"axis": axes, "keepdims": keepdims, "ord": ord}


def _infer(specs: tuple[Spec, ...], *, axis: Shape, keepdims: bool, ord: float) -> Spec:
    return Spec(reduced_shape(specs[0].shape, axis, keepdims), real_of(specs[0].dtype))


def _compute(operand_dtypes: tuple[DType, ...], **_: Any) -> tuple[DType, ...]:
    return (fit("vector_norm", operand_dtypes[0], INEXACT),)


def _norm(x: Any, axis: Shape, keepdims: bool, ord: float) -> Any:
    over: dict[str, Any] = {"axis": axis, "keepdims": keepdims}
    wide = widened(x)
    if ord == 2:
        squares = real(wide * conj(wide)) if wide.dtype.is_complex else wide * wide
        return narrowed(sqrt(sum(squares, **over)), x.dtype)
    if ord == 0:
        return cast(sum(not_equal(wide, 0), **over), real_of(x.dtype))
    size = abs(wide)
    if ord == 1:
        return narrowed(sum(size, **over), x.dtype)
    if 0 in tuple(x.shape[a] for a in axis):  # no elements: the largest is 0, the smallest infinite
        shape = reduced_shape(x.shape, axis, keepdims)
        return full(shape, 0.0 if ord > 0 else _inf, dtype=real_of(x.dtype), device=x.device)
    extreme = reduction.max if ord > 0 else reduction.min
    if ord in (_inf, -_inf):
        return narrowed(extreme(size, **over), x.dtype)
    # Powers of what is divided by the extreme one neither overflow nor vanish all at once.
    unit = extreme(size, axis=axis, keepdims=True)
    unit = where(logical_or(equal(unit, 0), isinf(unit)), 1.0, unit)
    total = power(sum(power(size / unit, ord), **over), 1 / ord)
    return narrowed(total * reshape(unit, total.shape), x.dtype)


def _vjp(g: Any, out: Any, x: Any, axis: Shape, ord: float) -> tuple[Any, ...]:
    """The gradient of a norm at 0, where it has none, counts as 0; equal extremes share it."""
    if ord == 0:
        return (None,)
    g, out = keep(g, x.shape, axis), keep(out, x.shape, axis)
    if ord == 1:
        return (g * sign(x),)
    if ord == 2:
        return (g * quotient(x, out),)
    size = abs(x)
    if ord in (_inf, -_inf):
        hit = cast(equal(size, out), size.dtype)
        return (g * sign(x) * hit / sum(hit, axis=axis, keepdims=True),)
    none = logical_or(equal(size, 0), equal(out, 0))
    ratio = where(none, 1.0, size) / where(none, 1.0, out)
    return (g * sign(x) * where(none, 0.0, power(ratio, ord - 1)),)


_vector_norm: Op[...] = table.add(
    Op(
        name="vector_norm",
        family="linalg",
        operands=("x",),
        arguments=_arguments,
        normalize=_normalize,
        infer=_infer,
        compute=_compute,
        decompose=fuse_in_eager(_norm),
        vjp=_vjp,
        batch=shifted("vector_norm", "axis"),
        shard=sharding_rules.reduction(None),
        dtypes=INEXACT,
        autocast="wide",
        method=False,
        doc="``sum(abs(x) ** ord) ** (1 / ord)`` along ``axis``, and its limits for 0 and infinities.",
    )
)


@with_form
def vector_norm(
    x: Tensor, /, ord: float = 2, axis: Axis = None, keepdims: bool = False, *,
    dtype: DType | str | None = None,
) -> Tensor:  # fmt: skip
    """Return ``sum(abs(x) ** ord) ** (1 / ord)`` over an axis, several, or all.

    ``ord`` 0 counts what is not zero; infinities give the largest or the smallest magnitude. The result is
    real; ``x`` is first cast to ``dtype``. The gradient is 0 where the norm has none, as at zero.

    >>> import tensorbus as tb
    >>> tb.linalg.vector_norm(tb.asarray([3.0, 4.0])).item()
    5.0
    """
    x = x if dtype is None else cast(x, dtype)
    return _vector_norm(x, axis=axis, keepdims=keepdims, ord=ord)


@with_form
def matrix_norm(
    x: Tensor, /, ord: Order = "fro", axis: tuple[int, int] = (-2, -1), keepdims: bool = False, *,
    dtype: DType | str | None = None,
) -> Tensor:  # fmt: skip
    """Return norms of the matrices that lie along ``axis``, rows first; ``x`` is first cast to ``dtype``.

    ``ord`` is ``"fro"`` (of all elements), ``"nuc"`` (the sum of singular values), 2 or -2 (the largest or
    smallest of them), 1 or -1 (the largest or smallest sum of a column's magnitudes), or an infinity (of a
    row's). Raises ``ArgumentError`` for any other.

    >>> import tensorbus as tb
    >>> tb.linalg.matrix_norm(tb.asarray([[3.0, 0.0], [4.0, 0.0]]), ord=1).item()
    7.0
    """
    check_matrix("matrix_norm", x.shape)
    rank = len(x.shape)
    places = tuple(normalize_axis("matrix_norm", a, rank) for a in axis)
    if len(places) != 2 or places[0] == places[1]:
        raise ShapeError(f"matrix_norm: two different axes are needed, got {axis!r} of shape {x.shape}.")
    x = x if dtype is None else cast(x, dtype)
    if places != (rank - 2, rank - 1):
        length = matrix_norm(moveaxis(x, places, (-2, -1)), ord=ord)
        return reshape(length, reduced_shape(x.shape, places, True)) if keepdims else length
    if ord not in _MATRIX_ORDERS:
        raise ArgumentError(
            f"matrix_norm: ord is {ord!r}; it must be one of {', '.join(map(repr, _MATRIX_ORDERS))}."
        )
    if ord == "fro":
        return vector_norm(x, axis=(-2, -1), keepdims=keepdims)
    if ord in ("nuc", 2, -2):
        values = svdvals(x)
    else:
        values = sum(abs(cast(x, fit("matrix_norm", x.dtype, INEXACT))), axis=-2 if ord in (1, -1) else -1)
    if ord == "nuc":
        length = sum(values, axis=-1)
    elif not values.shape[-1]:  # of a matrix without elements
        length = full(x.shape[:-2], 0.0, dtype=values.dtype, device=x.device)
    else:
        length = (reduction.max if float(ord) > 0 else reduction.min)(values, axis=-1)
    return reshape(length, (*length.shape, 1, 1)) if keepdims else length


@with_form
def norm(
    x: Tensor, ord: Order = None, axis: Axis = None, keepdims: bool = False, *,
    dtype: DType | str | None = None,
) -> Tensor:  # fmt: skip
    """Return a norm of vectors (along one axis) or of matrices (over two), as NumPy and PyTorch name it.

    Without ``axis``, of all elements if ``ord`` is None; else of a vector or matrix, by the rank of ``x``.
    ``x`` is first cast to ``dtype``.
    Raises ``ShapeError`` for other ranks or numbers of axes.

    >>> import tensorbus as tb
    >>> tb.linalg.norm(tb.asarray([[3.0, 4.0], [0.0, 0.0]])).item()
    5.0
    """
    rank = len(x.shape)
    x = x if dtype is None else cast(x, dtype)
    if axis is None and ord is None:
        return vector_norm(x, keepdims=keepdims)
    every_axis = axis if isinstance(axis, (tuple, list)) else range(rank) if axis is None else (axis,)
    axes = tuple(normalize_axis("norm", a, rank) for a in every_axis)
    if ord is None and axes:
        return vector_norm(x, axis=axes, keepdims=keepdims)
    if len(axes) == 1:
        return vector_norm(x, axis=axes, keepdims=keepdims, ord=_order("norm", ord))
    if len(axes) != 2 or axes[0] == axes[1]:
        raise ShapeError(f"norm: one axis or two different ones are needed, got {axis!r} of shape {x.shape}.")
    return matrix_norm(x, ord=ord, axis=axes, keepdims=keepdims)


@with_form
def cond(x: Tensor, /, p: Order = None) -> Tensor:
    """Return condition numbers: by singular values, or the norm ``p`` of ``x`` times that of its inverse.

    >>> import tensorbus as tb
    >>> tb.linalg.cond(tb.asarray([[4.0, 0.0], [0.0, 2.0]])).item()
    2.0
    """
    if p not in (None, 2, -2):
        return matrix_norm(x, ord=p) * matrix_norm(inv(x), ord=p)
    values = svdvals(x)
    if not values.shape[-1]:
        raise ShapeError(f"cond: matrices without elements have no condition, got shape {x.shape}.")
    largest, smallest = reduction.max(values, axis=-1), reduction.min(values, axis=-1)
    return smallest / largest if p == -2 else largest / smallest
