"""New tensors from nothing: on the device asked for, or the default one."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from ...devices.device import Device, device, get_default_device
from ...dtypes import definition as dt
from ...dtypes.definition import ALL, DType, Scalar, as_scalar, check_scalar
from ...dtypes.promotion import scalar_dtype
from ...errors import ArgumentError, DtypeError, ShapeError
from ...tracing.active_tracer import active_tracer
from ...tracing.sym_int import SymInt, index
from ...tracing.sym_number import SymNumber
from ..call_errors import with_form
from ..definition import Op, Shape, Spec, check_size, table
from ..elementwise.comparison import equal, greater_equal
from ..elementwise.family import broadcast_shapes
from ..elementwise.where_cast import cast, where
from ..movement.family import as_shape
from ..movement.movement import broadcast_to, reshape

if TYPE_CHECKING:
    from ...tensor.tensor import Tensor

DeviceLike = Device | str | None


def resolve(spec: DeviceLike) -> Device:
    """Return the device that ``spec`` names; None: the default one."""
    if spec is None:
        return get_default_device()
    return spec if isinstance(spec, Device) else device(spec)


def check_shape(name: str, shape: Shape) -> Shape:
    """Return ``shape`` as it is. Raises ``ShapeError`` for a negative length or too many elements or axes."""
    if any(n < 0 for n in shape):
        raise ShapeError(f"{name}: lengths must be >= 0, got shape {shape}.")
    check_size(name, shape)
    return shape


def _full_arguments(
    shape: int | tuple[int, ...], fill_value: Scalar, *, dtype: DType | str | None = None,
    device: DeviceLike = None,
) -> tuple[tuple[Any, ...], dict[str, Any]]:  # fmt: skip
    number: Any = fill_value
    number = number.number() if type(number) is SymInt else number
    now = number.plain if type(number) is SymNumber else as_scalar("full", number)
    kind = dt.dtype(dtype) if dtype is not None else scalar_dtype(now)
    value = check_scalar("full", now, kind)
    return (), {
        "shape": check_shape("full", as_shape("full", shape)),
        "value": number if type(number) is SymNumber else value,  # a tracer knows the SymNumber
        "dtype": kind,
        "device": resolve(device),
    }


full = table.add(
    Op(
        name="full",
        family="creation",
        operands=(),
        arguments=_full_arguments,
        infer=lambda specs, shape, value, dtype: Spec(shape, dtype),
        dtypes=ALL,
        cost="light",
        recompute=True,
        method=False,
        doc="``shape`` filled with ``fill_value``, which kernels know as ``value``.",
    )
)


def _iota_arguments(
    length: int, /, start: Scalar = 0, step: Scalar = 1, *, dtype: DType | str = dt.default_int,
    device: DeviceLike = None,
) -> tuple[tuple[Any, ...], dict[str, Any]]:  # fmt: skip
    kind = dt.dtype(dtype)
    if kind not in dt.REAL:
        raise DtypeError(f"iota: not defined for {kind}; it takes {', '.join(d.name for d in dt.REAL)}.")
    step = as_scalar("iota", step)
    first: Any = start
    if kind.is_integer and isinstance(step, (int, float)) and step == step // 1:
        low, high = dt.integer_range(kind)
        step = (int(step) - low) % (high - low + 1) + low
    return (), {
        "length": check_shape("iota", as_shape("iota", length))[0],
        "start": _start(first, kind),
        "step": check_scalar("iota", step, kind),
        "dtype": kind,
        "device": resolve(device),
    }


def _start(first: Any, kind: DType) -> Any:
    """Return the first value as the Python type of its dtype; an open length as it is, if it fits."""
    if type(first) is not SymInt:
        return check_scalar("iota", first, kind)
    low, high = dt.integer_range(kind) if kind.is_integer else (first, first)
    return first if low <= first <= high else check_scalar("iota", first.guard_int(), kind)


iota = table.add(
    Op(
        name="iota",
        family="creation",
        operands=(),
        arguments=_iota_arguments,
        infer=lambda specs, length, start, step, dtype: Spec((length,), dtype),
        dtypes=dt.REAL,
        cost="light",
        recompute=True,
        method=False,
        doc="``start + i * step`` for ``i`` from 0 to ``length``; integers wrap.",
    )
)


def asked(x: Tensor, requires_grad: bool) -> Tensor:
    """Return a new tensor, which asks for its gradient if it is to."""
    return x.requires_grad_() if requires_grad else x


def _filled(
    name: str, lengths: tuple[Any, ...], value: int, dtype: DType | str | None, device: DeviceLike,
    requires_grad: bool,
) -> Tensor:  # fmt: skip
    """Fill a shape that was given as one tuple, or length by length."""
    if isinstance(lengths[-1], (DType, type)):
        raise ShapeError(f"{name}: a dtype is given by its name, {name}(shape, dtype={lengths[-1]!r}).")
    shape = as_shape(name, lengths[0] if len(lengths) == 1 else lengths)
    kind = dt.default_float if dtype is None else dtype
    return asked(full(shape, value, dtype=kind, device=device), requires_grad)


@with_form
def zeros(
    shape: int | tuple[int, ...], *more: int, dtype: DType | str | None = None, device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return a tensor of zeros; its lengths are given as one tuple, or one by one.

    >>> import tensorbus as tb
    >>> tb.zeros((2,)).tolist(), tb.zeros(2, 3).shape
    ([0.0, 0.0], (2, 3))
    """
    return _filled("zeros", (shape, *more), 0, dtype, device, requires_grad)


@with_form
def ones(
    shape: int | tuple[int, ...], *more: int, dtype: DType | str | None = None, device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return a tensor of ones; its lengths are given as one tuple, or one by one."""
    return _filled("ones", (shape, *more), 1, dtype, device, requires_grad)


@with_form
def empty(
    shape: int | tuple[int, ...], *more: int, dtype: DType | str | None = None, device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return a tensor of unspecified contents; here they are zeros, so that no program depends on luck."""
    return _filled("empty", (shape, *more), 0, dtype, device, requires_grad)


@with_form
def full_like(
    x: Tensor, /, fill_value: Scalar, *, dtype: DType | str | None = None, device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return a tensor like ``x`` filled with ``fill_value``."""
    cell: Any = x._vtype.cell
    if cell is not None:
        there = None if device is None or (named := resolve(device)) == x.device else named
        if there is None or there.type != x.device.type:
            kind = x.dtype if dtype is None else dt.dtype(dtype)
            return asked(cell._filled_like(x, fill_value, kind, there), requires_grad)
    out = full(
        x.shape,
        fill_value,
        dtype=x.dtype if dtype is None else dtype,
        device=x.device if device is None else device,
    )
    return asked(out, requires_grad)


@with_form
def ones_like(
    x: Tensor, /, *, dtype: DType | str | None = None, device: DeviceLike = None, requires_grad: bool = False
) -> Tensor:
    """Return ones of the shape, dtype and device of ``x``."""
    return full_like(x, 1, dtype=dtype, device=device, requires_grad=requires_grad)


@with_form
def zeros_like(
    x: Tensor, /, *, dtype: DType | str | None = None, device: DeviceLike = None, requires_grad: bool = False
) -> Tensor:
    """Return zeros of the shape, dtype and device of ``x``."""
    return full_like(x, 0, dtype=dtype, device=device, requires_grad=requires_grad)


@with_form
def empty_like(
    x: Tensor, /, *, dtype: DType | str | None = None, device: DeviceLike = None, requires_grad: bool = False
) -> Tensor:
    """Return a tensor like ``x`` with unspecified contents."""
    return zeros_like(x, dtype=dtype, device=device, requires_grad=requires_grad)


@with_form
def arange(
    start: int | float, stop: int | float | None = None, step: int | float = 1, *,
    dtype: DType | str | None = None, device: DeviceLike = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return the numbers from ``start`` up to but without ``stop``, ``step`` apart.

    >>> import tensorbus as tb
    >>> tb.arange(3).tolist()
    [0, 1, 2]
    """
    if stop is None:
        start, stop = 0, start
    first: Any = start
    if type(first) is SymNumber and type(width := stop - first) is SymNumber and width == width.plain:
        return asked(_moving_range(first, width.plain, step, dtype, device), requires_grad)
    start, stop, step = (_real("arange", n) for n in (start, stop, step))
    if step == 0:
        raise ShapeError("arange: the step must not be 0.")
    if not all(type(n) is SymInt or math.isfinite(n) for n in (start, stop, step)):
        raise ShapeError(f"arange: start, stop and step must be finite, got {start}, {stop}, {step}.")
    exact = all(isinstance(n, (int, SymInt)) for n in (start, stop, step))
    length: Any = -((start - stop) // step) if exact else math.ceil((stop - start) / step)
    kind = dt.dtype(dtype) if dtype is not None else dt.default_int if exact else dt.default_float
    numbers = iota(max(length, 0), start, step, dtype=dt.real_of(kind), device=device)
    return asked(cast(numbers, kind) if kind.is_complex else numbers, requires_grad)


def _moving_range(start: SymNumber, width: Any, step: Any, dtype: Any, device: DeviceLike) -> Tensor:
    """Return a range of constant width, from a place that is another at each run of a program."""
    span = partial(arange, step=step, dtype=dtype, device=device)
    active: Any = active_tracer()
    traced: Tensor = active.trace_symbolic(
        partial(span, start.plain, start.plain + width), lambda: span(start.plain * 0, width) + start
    )
    return traced


def _real(name: str, value: Any) -> Any:
    number = as_scalar(name, value)
    if isinstance(number, complex):
        raise DtypeError(f"{name}: a real number is needed, got {number!r}.")
    return number


@with_form
def linspace(
    start: Scalar, stop: Scalar, num: int, *, dtype: DType | str | None = None,
    device: DeviceLike = None, endpoint: bool = True, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return ``num`` numbers evenly spaced from ``start`` to ``stop``; in an integer dtype, their floors.

    Complex ends lie on a line in the plane; without a dtype they give the complex one of the default float.
    Raises ``DtypeError`` for complex ends and a real dtype.

    >>> import tensorbus as tb
    >>> tb.linspace(0, 2 + 4j, 3).tolist()
    [0j, (1+2j), (2+4j)]
    """
    return asked(_spaced(start, stop, num, dtype, device, endpoint), requires_grad)


def _spaced(
    start: Scalar, stop: Scalar, num: int, dtype: DType | str | None, device: DeviceLike, endpoint: bool
) -> Tensor:
    ends = [as_scalar("linspace", number) for number in (start, stop)]
    wanted = None if dtype is None else dt.dtype(dtype)
    if any(isinstance(number, complex) for number in ends) if wanted is None else wanted.is_complex:
        kind = dt.complex_of(dt.default_float) if wanted is None else wanted
        part: Any = dt.real_of(kind)
        across, up = (
            _spaced(a, b, num, part, device, endpoint)
            for a, b in (
                (getattr(ends[0], "real", ends[0]), getattr(ends[1], "real", ends[1])),
                (getattr(ends[0], "imag", 0), getattr(ends[1], "imag", 0)),
            )
        )
        return table["complex"](across, up)
    (count,) = check_shape("linspace", as_shape("linspace", num))
    kind = dt.default_float if dtype is None else dt.dtype(dtype)
    if not kind.is_floating:
        if not kind.is_integer:
            raise DtypeError(f"linspace: a real dtype is needed, got {kind}; cast the result instead.")
        numbers = linspace(start, stop, num, dtype=dt.float64, device=device, endpoint=endpoint)
        return table["cast"](table["floor"](numbers), kind)
    first, last = _real("linspace", start), _real("linspace", stop)
    parts = count - 1 if endpoint else count
    wide = dt.float64 if kind is dt.float64 else dt.float32
    places = iota(count, dtype=wide, device=device)
    spaced = places * ((last - first) / parts if parts > 0 else 0.0) + float(first)
    if endpoint and count > 1:
        spaced = where(equal(places, count - 1), float(last), spaced)
    return spaced if kind is wide else table["cast"](spaced, kind)


@with_form
def logspace(
    start: float, stop: float, num: int, base: float = 10.0, *, dtype: DType | str | None = None,
    device: DeviceLike = None, endpoint: bool = True,
) -> Tensor:  # fmt: skip
    """Return ``num`` numbers from ``base**start`` to ``base**stop``, evenly spaced on a logarithmic scale.

    >>> import tensorbus as tb
    >>> tb.logspace(0, 3, 4).tolist()
    [1.0, 10.0, 100.0, 1000.0]
    """
    kind = dt.default_float if dtype is None else dt.dtype(dtype)
    exponents = linspace(start, stop, num, dtype=kind, device=device, endpoint=endpoint)
    return table["power"](float(_real("logspace", base)), exponents)


@with_form
def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: DType | str | None = None,
    device: DeviceLike = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return a matrix with ones on diagonal ``k`` and zeros elsewhere."""
    target = resolve(device)
    n_rows, n_cols = (index(n) for n in (n_rows, n_rows if n_cols is None else n_cols))
    rows = reshape(iota(n_rows, device=target), (n_rows, 1))
    columns = iota(n_cols, device=target)
    k = _within(k, rows.shape[0], columns.shape[0])
    kind = dt.default_float if dtype is None else dt.dtype(dtype)
    return asked(table["cast"](equal(columns - rows, k), kind), requires_grad)


@with_form
def tril(x: Tensor, /, k: int = 0) -> Tensor:
    """Return ``x`` with zeros above diagonal ``k`` of its last two axes."""
    return where(_lower(x, k), x, False if x.dtype is dt.bool_ else 0)


@with_form
def triu(x: Tensor, /, k: int = 0) -> Tensor:
    """Return ``x`` with zeros below diagonal ``k`` of its last two axes."""
    return where(_lower(x, k - 1), False if x.dtype is dt.bool_ else 0, x)


def _within(k: int, rows: int, columns: int) -> int:
    """Bring a diagonal far outside of a matrix to just outside, where its number cannot overflow."""
    return max(min(k, columns), -rows - 1)


def _lower(x: Tensor, k: int) -> Tensor:
    if len(x.shape) < 2:
        raise ShapeError(f"a triangle needs at least 2 dimensions, got shape {x.shape}.")
    rows = reshape(iota(x.shape[-2], device=x.device), (x.shape[-2], 1))
    k = _within(k, x.shape[-2], x.shape[-1])
    return greater_equal(rows + k, iota(x.shape[-1], device=x.device))


@with_form
def broadcast_arrays(*arrays: Tensor) -> tuple[Tensor, ...]:
    """Return the tensors in the shape that they broadcast to.

    Raises ``ShapeError`` naming the axis at which they differ.

    >>> import tensorbus as tb
    >>> [x.shape for x in tb.broadcast_arrays(tb.zeros((3, 1)), tb.zeros(2))]
    [(3, 2), (3, 2)]
    """
    shape = broadcast_shapes(*(x.shape for x in arrays))
    return tuple(broadcast_to(x, shape) for x in arrays)


@with_form
def meshgrid(*arrays: Tensor, indexing: Literal["xy", "ij"] = "xy") -> tuple[Tensor, ...]:
    """Return the coordinates of all points of a grid: one tensor for each of the given axes.

    With ``"ij"`` axis k of the results runs over tensor k, with ``"xy"`` the first two are exchanged. Raises
    ``ShapeError`` for a tensor of more than one axis, ``ArgumentError`` for other words.

    >>> import tensorbus as tb
    >>> x, y = tb.meshgrid(tb.arange(3), tb.arange(2))
    >>> x.tolist(), y.shape
    ([[0, 1, 2], [0, 1, 2]], (2, 3))
    """
    if indexing not in ("xy", "ij"):
        raise ArgumentError(f"meshgrid: indexing must be 'xy' or 'ij', got {indexing!r}.")
    if any(len(x.shape) > 1 for x in arrays):
        raise ShapeError(f"meshgrid: tensors of one axis are needed, got {[x.shape for x in arrays]}.")
    count = len(arrays)
    axes = list(range(count))
    if indexing == "xy" and count > 1:
        axes[:2] = 1, 0
    lengths = [0] * count
    for axis, x in zip(axes, arrays, strict=True):
        lengths[axis] = math.prod(x.shape)
    return tuple(
        broadcast_to(reshape(x, tuple(-1 if k == axis else 1 for k in range(count))), tuple(lengths))
        for axis, x in zip(axes, arrays, strict=True)
    )
