"""``isclose`` and ``allclose`` of NumPy and PyTorch: equality within a tolerance."""

from __future__ import annotations

from typing import Any

from ...dtypes import definition as dt
from ...dtypes.promotion import promote
from ...errors import ArgumentError, DtypeError
from ..call_errors import with_form
from ..creation.creation import full, zeros
from ..reduction.reduction import all
from .arithmetic import abs, maximum, minimum
from .comparison import equal, isfinite, isnan, less_equal, logical_and, logical_or
from .family import Operand
from .where_cast import cast, where


@with_form
def isclose(
    x: Operand, y: Operand, /, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    """Return where ``x`` and ``y`` are at most ``atol + rtol * abs(y)`` apart: a bool tensor.

    They broadcast, and one of them may be a number. Infinities are close to themselves only, NaN to nothing,
    or with ``equal_nan`` to NaN. The distance of integers is taken exactly, and what float16 and narrower
    dtypes hold is compared in float32. Raises ``ArgumentError`` for tolerances below zero.

    >>> import tensorbus as tb
    >>> tb.isclose(tb.asarray([1.0, 2.0]), tb.asarray([1.000001, 2.1])).tolist()
    [True, False]
    """
    if not (rtol >= 0 and atol >= 0):
        raise ArgumentError(f"isclose: tolerances must be >= 0, got rtol={rtol!r} and atol={atol!r}.")
    x, y = _alike(x, y)
    if not x.dtype.is_inexact:
        size = abs(cast(y, _real()))
        return less_equal(cast(_distance(x, y), _real()), atol + rtol * size)
    apart = abs(x - y)
    near = logical_and(isfinite(apart), less_equal(apart, atol + rtol * abs(y)))
    near = logical_or(near, equal(x, y))  # infinities
    return logical_or(near, logical_and(isnan(x), isnan(y))) if equal_nan else near


@with_form
def allclose(
    x: Operand, y: Operand, /, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    """Return whether all of ``x`` and ``y`` are close, as ``isclose`` has it: a bool tensor without axes.

    ``if`` and ``assert`` take it as it is. Raises what ``isclose`` does.

    >>> import tensorbus as tb
    >>> bool(tb.allclose(tb.asarray([0.1]) + 0.2, tb.asarray([0.3])))
    True
    """
    return all(isclose(x, y, rtol, atol, equal_nan))


def _real() -> dt.DType:
    return dt.float32 if dt.default_float in dt.NARROW else dt.default_float


def _alike(x: Any, y: Any) -> tuple[Any, Any]:
    """Return both as tensors of the dtype in which they are compared; bools count as 0 and 1."""
    like = next((t for t in (x, y) if hasattr(t, "_vtype")), None)
    if like is None:
        raise DtypeError("isclose: at least one operand must be a tensor. Make one with tensorbus.asarray.")
    x, y = _beside(like, x), _beside(like, y)
    kind = promote(x.dtype, y.dtype)
    kind = dt.uint8 if kind is dt.bool_ else dt.float32 if kind in dt.NARROW else kind
    return cast(x, kind), cast(y, kind)


def _beside(like: Any, x: Any) -> Any:
    """Return a number as a tensor of the dtype that it has beside another one."""
    if hasattr(x, "_vtype"):
        return x
    yes = full((), True, device=like.device)
    return where(yes, x, zeros((), dtype=like.dtype, device=like.device))


def _distance(x: Any, y: Any) -> Any:
    """Return how far integers are apart: an unsigned dtype holds every such distance."""
    kind = dt.BY_NAME[f"uint{8 * x.dtype.itemsize}"]
    return cast(maximum(x, y), kind) - cast(minimum(x, y), kind)
