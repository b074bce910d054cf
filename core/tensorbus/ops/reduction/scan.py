"""Scans: what a reduction along one axis has come to at each place; and differences, their reverse.

Array API standard 2025.12, sections "Statistical Functions" and "Utility Functions"; names that it lacks are
PyTorch's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...dtypes import definition as dt
from ...dtypes.definition import BOOL, FLOATING, NUMERIC, REAL, DType, Scalar
from ...errors import ArgumentError, ShapeError
from .. import sharding_rules
from ..batching_rules import shifted
from ..call_errors import with_form
from ..creation.creation import iota, zeros
from ..definition import Autocast, Jvp, Op, Spec, table
from ..elementwise.activation import logaddexp
from ..elementwise.arithmetic import maximum, minimum, subtract
from ..elementwise.comparison import equal, isnan, logical_or, not_equal
from ..elementwise.family import Operand, fit
from ..elementwise.where_cast import narrowed, where, widened
from ..movement.family import is_single, normalize_axis
from ..movement.movement import broadcast_to, concat, flip, reshape
from .reduction import check_dtype, sum_dtype


class Extremes(NamedTuple):
    """Values, and where along the axis they were found."""

    values: Any
    indices: Any


def scan(
    name: str,
    *,
    dtypes: tuple[DType, ...],
    accumulate: Callable[[DType], DType] = lambda d: d,
    decompose: Callable[..., Any] | None = None,
    vjp: Callable[..., tuple[Any, ...]] | None = None,
    jvp: Callable[..., Any] | Jvp | None = None,
    autocast: Autocast | None = None,
    may_overwrite: tuple[str, ...] = (),
    doc: str,
) -> Op[...]:
    """Define a scan along ``axis``, which only a 1-dimensional tensor may leave out."""

    def arguments(
        x: Operand, /, axis: int | None = None, *, dtype: DType | str | None = None
    ) -> tuple[tuple[Operand, ...], dict[str, Any]]:
        if axis is None and len(x.shape) != 1:
            raise ShapeError(f"{name}: an axis is needed for {len(x.shape)} dimensions.")
        attrs: dict[str, Any] = {"axis": 0 if axis is None else axis}
        return (x,), attrs if dtype is None else {**attrs, "dtype": check_dtype(name, dtype, dtypes)}

    def normalize(specs: tuple[Spec, ...], axis: int, **rest: Any) -> dict[str, Any]:
        return {"axis": normalize_axis(name, axis, len(specs[0].shape)), **rest}

    def compute(operand_dtypes: tuple[DType, ...], dtype: DType | None = None, **_: Any) -> tuple[DType, ...]:
        return (fit(name, accumulate(operand_dtypes[0]), dtypes) if dtype is None else dtype,)

    return table.add(
        Op(
            name=name, family="scan", operands=("x",), arguments=arguments, normalize=normalize,
            infer=lambda specs, **_: specs[0], compute=compute, decompose=decompose, vjp=vjp, jvp=jvp,
            batch=shifted(name, "axis"),
            shard=sharding_rules.besides(kind=jvp if isinstance(jvp, str) else None),
            dtypes=dtypes, autocast=autocast, memoize=True, unsqueezes=True,
            may_overwrite=may_overwrite, doc=doc,
        )
    )  # fmt: skip


def cut(x: Any, axis: int, start: int, stop: int) -> Any:
    """Return the elements ``start`` to ``stop`` of ``x`` along ``axis``."""
    rank = len(x.shape)
    size = tuple(max(stop - start, 0) if k == axis else n for k, n in enumerate(x.shape))
    return table.dynamic_slice(x, tuple([start if k == axis else 0 for k in range(rank)]), size, (1,) * rank)


def _doubling(combine: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Scan in log2(n) steps: after each, an element stands for twice as many before it.

    No step divides or takes back, so zeros and infinities do no harm, in derivatives neither.
    """

    def decompose(x: Any, axis: int, **_: Any) -> Any:
        out, step, length = widened(x), 1, x.shape[axis]
        while step < length:
            later = combine(cut(out, axis, step, length), cut(out, axis, 0, length - step))
            out = concat([cut(out, axis, 0, step), later], axis=axis)
            step *= 2
        return narrowed(out, x.dtype)

    return decompose


def _latest(x: Any, out: Any, axis: int) -> Any:
    """Return, for each place, where along ``axis`` the extreme so far stood last."""
    hit = equal(x, out)
    if x.dtype.is_floating:
        hit = logical_or(hit, isnan(x))
    length = tuple(n if k == axis else 1 for k, n in enumerate(x.shape))
    places = broadcast_to(reshape(iota(x.shape[axis], device=x.device), length), x.shape)
    return max_scan(where(hit, places, 0), axis=axis)


def _extreme_vjp(g: Any, out: Any, x: Any, axis: int) -> tuple[Any, ...]:
    none = zeros(x.shape, dtype=g.dtype, device=g.device)
    return (table["scatter_along_axis"](none, _latest(x, out, axis), g, axis=axis, mode="add"),)


sum_scan: Op[...] = scan(
    "cumulative_sum", autocast="wide", dtypes=NUMERIC, accumulate=sum_dtype,
    vjp=lambda g, axis: (flip(sum_scan(flip(g, axis=axis), axis=axis), axis=axis),), jvp="linear",
    doc="The running sum along ``axis``.",
)  # fmt: skip
prod_scan: Op[...] = scan(
    "cumulative_prod", autocast="wide", dtypes=NUMERIC, accumulate=sum_dtype,
    decompose=_doubling(lambda x, y: x * y),
    doc="The running product along ``axis``.",
)  # fmt: skip
max_scan: Op[...] = scan(
    "cumulative_max", dtypes=BOOL + REAL, decompose=_doubling(maximum), vjp=_extreme_vjp,
    may_overwrite=("out",),
    doc="The largest element so far along ``axis``, NaN from the first NaN on. Its gradient goes to the last"
    " of equal ones.",
)  # fmt: skip
min_scan: Op[...] = scan(
    "cumulative_min", dtypes=BOOL + REAL, decompose=_doubling(minimum), vjp=_extreme_vjp,
    may_overwrite=("out",),
    doc="The smallest element so far along ``axis``, NaN from the first NaN on. Its gradient goes to the last"
    " of equal ones.",
)  # fmt: skip
logcumsumexp = scan(
    "logcumsumexp", dtypes=FLOATING, decompose=_doubling(logaddexp),
    doc="The logarithm of the running sum of exponentials along ``axis``, without their overflow.",
)  # fmt: skip


def _with_initial(out: Any, axis: int | None, initial: Scalar) -> Any:
    place = normalize_axis("include_initial", 0 if axis is None else axis, len(out.shape))
    shape = tuple(1 if k == place else n for k, n in enumerate(out.shape))
    first = table["full"](shape, initial, dtype=out.dtype, device=out.device)
    return concat([first, out], axis=place)


@with_form
def cumulative_sum(
    x: Any, /, *, axis: int | None = None, dtype: DType | str | None = None, include_initial: bool = False
) -> Any:
    """Return the running sum along ``axis``, which only a 1-dimensional tensor may leave out.

    Integers and bools add up in 64 bits unless a ``dtype`` is asked for. With ``include_initial`` a 0 comes
    first, and the axis is one longer.

    >>> import tensorbus as tb
    >>> tb.cumulative_sum(tb.asarray([1, 2, 3]), include_initial=True).tolist()
    [0, 1, 3, 6]
    """
    out = sum_scan(x, axis=axis, dtype=dtype)
    return _with_initial(out, axis, 0) if include_initial else out


@with_form
def cumulative_prod(
    x: Any, /, *, axis: int | None = None, dtype: DType | str | None = None, include_initial: bool = False
) -> Any:
    """Return the running product along ``axis``, which only a 1-dimensional tensor may leave out.

    Integers and bools multiply in 64 bits unless a ``dtype`` is asked for. With ``include_initial`` a 1 comes
    first, and the axis is one longer.

    >>> import tensorbus as tb
    >>> tb.cumulative_prod(tb.asarray([2, 3, 4])).tolist()
    [2, 6, 24]
    """
    out = prod_scan(x, axis=axis, dtype=dtype)
    return _with_initial(out, axis, 1) if include_initial else out


@with_form
def cumsum(x: Any, /, axis: int | None, *, dtype: DType | str | None = None) -> Any:
    """Return the running sum along ``axis``: ``cumulative_sum`` under PyTorch's name.

    None takes all elements in C order, as NumPy's function does.
    """
    return sum_scan(reshape(x, (-1,)) if axis is None else x, axis=0 if axis is None else axis, dtype=dtype)


@with_form
def cumprod(x: Any, /, axis: int | None, *, dtype: DType | str | None = None) -> Any:
    """Return the running product along ``axis``: ``cumulative_prod`` under PyTorch's name.

    None takes all elements in C order, as NumPy's function does.
    """
    return prod_scan(reshape(x, (-1,)) if axis is None else x, axis=0 if axis is None else axis, dtype=dtype)


@with_form
def cummax(x: Any, /, axis: int) -> Extremes:
    """Return the largest element so far along ``axis``, and where it stands: the last of equal ones.

    NaN is larger than every number.

    >>> import tensorbus as tb
    >>> values, indices = tb.cummax(tb.asarray([1.0, 3.0, 2.0]), axis=0)
    >>> values.tolist(), indices.tolist()
    ([1.0, 3.0, 3.0], [0, 1, 1])
    """
    return _extremes(x, max_scan(x, axis=axis), axis)


@with_form
def cummin(x: Any, /, axis: int) -> Extremes:
    """Return the smallest element so far along ``axis``, and where it stands: the last of equal ones.

    NaN is smaller than every number here.
    """
    return _extremes(x, min_scan(x, axis=axis), axis)


def _extremes(x: Any, values: Any, axis: int) -> Extremes:
    if is_single(x, axis):
        return Extremes(values, zeros((), dtype=dt.int64, device=x.device))
    return Extremes(values, _latest(x.detach(), values.detach(), axis % len(x.shape)))


@with_form
def diff(
    x: Any, /, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None
) -> Any:  # fmt: skip
    """Return the differences of neighbours along ``axis``, taken ``n`` times; bools differ or do not.

    ``prepend`` and ``append`` are put before and behind ``x`` first, unless ``n`` is 0: then a copy of
    ``x`` is returned. Raises ``ArgumentError`` for ``n < 0``.

    >>> import tensorbus as tb
    >>> tb.diff(tb.asarray([1, 4, 9])).tolist()
    [3, 5]
    """
    if not hasattr(n, "__index__") or n < 0:
        raise ArgumentError(f"diff: n must be >= 0, a whole number, got {n!r}.")
    place = normalize_axis("diff", axis, len(x.shape))
    if n == 0:
        return x.clone()
    parts = [part for part in (prepend, x, append) if part is not None]
    out = concat(parts, axis=place) if len(parts) > 1 else x
    change = not_equal if out.dtype is dt.bool_ else subtract
    for _ in range(min(n, out.shape[place])):
        length = out.shape[place]
        out = change(cut(out, place, 1, length), cut(out, place, 0, length - 1))
    return out
