"""Reading and writing along one axis: index tensors that say, for each element, where on the axis it lies.

``take_along_axis`` follows the array API standard 2025.12, section "Indexing Functions"; the others have
PyTorch's names and meaning.
"""

from __future__ import annotations

from typing import Any, Final

from ...dtypes import definition as dt
from ...dtypes.definition import ALL, DType
from ...errors import ArgumentError, ShapeError
from ..batching_rules import shifted
from ..call_errors import with_form
from ..creation.creation import full_like, iota, ones_like, zeros
from ..definition import Op, Shape, Spec, table
from ..elementwise.arithmetic import divide, floor_divide, maximum
from ..elementwise.comparison import greater
from ..elementwise.family import Operand, broadcast_shapes
from ..elementwise.where_cast import cast, where
from ..movement.family import normalize_axis
from ..movement.movement import broadcast_to, reshape, slice, slice_update
from . import sharding
from .gather_scatter import check_mode, from_front, gather, index_compute, scatter, scatter_jvp, scatter_vjp

Arguments = tuple[tuple[Operand, ...], dict[str, Any]]
REDUCTIONS: Final = {"sum": "add", "mean": "add", "prod": "multiply", "amax": "max", "amin": "min"}
"""Names of ``scatter_reduce`` for the modes of ``scatter``."""


def coordinates(indices: Any, axis: int, length: int) -> list[Any]:
    """Return an index tensor for every axis: ``indices`` along ``axis``, each element's own place besides."""
    shape = indices.shape
    result = []
    for k, n in enumerate(shape):
        if k == axis:
            result.append(from_front(indices, length))
            continue
        line = tuple(n if j == k else 1 for j in range(len(shape)))
        result.append(broadcast_to(reshape(iota(n, device=indices.device), line), shape))
    return result


def _check_rank(name: str, x: Any, indices: Any) -> None:
    if len(x.shape) != len(indices.shape) or not x.shape:
        raise ShapeError(
            f"{name}: indices of shape {indices.shape} were given for shape {x.shape}; both must have the"
            " same number of dimensions, at least 1."
        )


def _broadcast(name: str, shape: Shape, to: Shape, axis: int) -> Shape:
    """Return the shape that the axes besides ``axis`` broadcast to, with the length that ``to`` has there."""
    try:
        rest = broadcast_shapes(
            tuple(1 if k == axis else n for k, n in enumerate(shape)),
            tuple(1 if k == axis else n for k, n in enumerate(to)),
        )
    except ShapeError:
        raise ShapeError(
            f"{name}: indices of shape {to} do not fit shape {shape} besides axis {axis}."
        ) from None
    return tuple(to[k] if k == axis else n for k, n in enumerate(rest))


def _take_arguments(x: Operand, indices: Operand, /, axis: int = -1) -> Arguments:
    _check_rank("take_along_axis", x, indices)
    place = normalize_axis("take_along_axis", axis, len(x.shape))
    whole = _broadcast("take_along_axis", x.shape, indices.shape, place)
    source = tuple(x.shape[k] if k == place else n for k, n in enumerate(whole))
    x = x if x.shape == source else broadcast_to(x, source)
    return (x, indices if indices.shape == whole else broadcast_to(indices, whole)), {"axis": place}


take_along_axis: Op[...] = table.add(
    Op(
        name="take_along_axis",
        family="indexing",
        operands=("x", "indices"),
        arguments=_take_arguments,
        compute=lambda dtypes, **_: index_compute(dtypes, 1),
        infer=lambda specs, axis: Spec(specs[1].shape, specs[0].dtype),
        decompose=lambda x, indices, axis: gather(x, *coordinates(indices, axis, x.shape[axis])),
        vjp=lambda g, x_shape, indices, axis: (
            scatter_along_axis(
                zeros(x_shape, dtype=g.dtype, device=g.device), indices, g, axis=axis, mode="add"
            ),
            None,
        ),
        jvp="linear",
        batch=shifted("take_along_axis", "axis"),
        may_overwrite=("indices",),
        shard=sharding.take_along_axis,
        dtypes=ALL,
        cost="light",
        recompute=True,
        raises_for=("indices",),
        doc="For each element of ``indices`` the element of ``x`` that it names along ``axis``; the other"
        " axes broadcast. Negative indices count from the end.",
    )
)


def _put_arguments(
    x: Operand, indices: Operand, values: Operand, /, axis: int = -1, mode: str = "set"
) -> Arguments:
    _check_rank("scatter_along_axis", x, indices)
    place = normalize_axis("scatter_along_axis", axis, len(x.shape))
    whole = _broadcast("scatter_along_axis", x.shape, indices.shape, place)
    if any(n != m for k, (n, m) in enumerate(zip(whole, x.shape, strict=True)) if k != place):
        raise ShapeError(
            f"scatter_along_axis: indices of shape {indices.shape} name places beyond shape {x.shape}."
        )
    if not hasattr(values, "shape"):
        values = table["full"](whole, values, dtype=x.dtype, device=x.device)
    return (
        x,
        indices if indices.shape == whole else broadcast_to(indices, whole),
        values if values.shape == whole else broadcast_to(values, whole),
    ), {"axis": place, "mode": mode}


def _put_infer(specs: tuple[Spec, ...], *, axis: int, mode: str) -> Spec:
    check_mode("scatter_along_axis", mode, specs[0].dtype)
    return specs[0]


def _put_compute(operand_dtypes: tuple[DType, ...], **_: Any) -> tuple[DType, ...]:
    (index,) = index_compute(operand_dtypes[1:2], 0)
    return (operand_dtypes[0], index, operand_dtypes[0])


def _put(x: Any, indices: Any, values: Any, axis: int, mode: str) -> Any:
    return scatter(x, values, *coordinates(indices, axis, x.shape[axis]), mode=mode)


def _put_vjp(g: Any, out: Any, x: Any, indices: Any, values: Any, axis: int, mode: str) -> tuple[Any, ...]:
    back, own = scatter_vjp(
        g, out, x, values, mode, indices.shape,
        read=lambda t: take_along_axis(t, indices, axis=axis),
        write=lambda t, v, how: scatter_along_axis(t, indices, v, axis=axis, mode=how),
    )  # fmt: skip
    return back, None, own


scatter_along_axis: Op[...] = table.add(
    Op(
        name="scatter_along_axis",
        family="indexing",
        operands=("x", "indices", "values"),
        arguments=_put_arguments,
        compute=_put_compute,
        infer=_put_infer,
        decompose=_put,
        vjp=_put_vjp,
        jvp=scatter_jvp,
        batch=shifted("scatter_along_axis", "axis"),
        shard=sharding.scatter_along_axis,
        dtypes=ALL,
        cost="light",
        recompute=True,
        raises_for=("indices",),
        doc="``x`` with ``values`` at the places that ``indices`` name along ``axis``; both broadcast besides"
        " it. Of several values for one place the last stays; modes 'add', 'multiply', 'min' and 'max'"
        " combine them with what is there. Negative indices count from the end.",
    )
)


def as_lines(x: Any, *others: Any) -> tuple[Any, ...]:
    """Return tensors, of which some are 0-dimensional, as lines of one element; as they are otherwise."""
    every = (x, *others)
    ranks = [len(t.shape) for t in every if hasattr(t, "shape")]
    if max(ranks) > 1 or all(ranks):
        return every
    return tuple(reshape(t, (1,)) if hasattr(t, "shape") and not t.shape else t for t in every)


def into(name: str, x: Any, axis: int, index: Any, src: Any, mode: str) -> Any:
    """Write the corner of ``src`` that ``index`` covers into the corner of ``x`` that it covers."""
    if not x.shape or not index.shape:
        line, index, src = as_lines(x, index, src)
        _check_rank(name, line, index)
        return reshape(into(name, line, axis, index, src, mode), x.shape) if line.shape else line
    _check_rank(name, x, index)
    place = normalize_axis(name, axis, len(x.shape))
    if not hasattr(src, "shape"):
        src = table["full"](index.shape, src, dtype=x.dtype, device=x.device)
    inside = all(n <= m for k, (n, m) in enumerate(zip(index.shape, x.shape, strict=True)) if k != place)
    if (
        not inside
        or len(src.shape) != len(index.shape)
        or any(n > m for n, m in zip(index.shape, src.shape, strict=True))
    ):
        raise ShapeError(
            f"{name}: indices of shape {index.shape} reach beyond the source of shape {src.shape} or, besides"
            f" axis {place}, beyond shape {x.shape}."
        )
    if 0 in index.shape:
        return x
    first, steps = (0,) * len(x.shape), (1,) * len(x.shape)
    values = src if src.shape == index.shape else slice(src, first, index.shape, steps)
    corner = corner_of(name, x, place, index)
    changed = scatter_along_axis(corner, index, values, axis=place, mode=mode)
    return changed if corner is x else slice_update(x, changed, first, steps)


def corner_of(name: str, x: Any, axis: int, index: Any) -> Any:
    """Return the part of ``x`` that ``index`` covers besides ``axis``; ``x`` itself where that is all."""
    _check_rank(name, x, index)
    ends = tuple(n if k == axis else m for k, (n, m) in enumerate(zip(x.shape, index.shape, strict=True)))
    if ends == x.shape:
        return x
    if any(end > n for end, n in zip(ends, x.shape, strict=True)):
        raise ShapeError(
            f"{name}: indices of shape {index.shape} reach beyond shape {x.shape} besides axis {axis}."
        )
    return slice(x, (0,) * len(ends), ends, (1,) * len(ends))


@with_form
def scatter_add(x: Any, /, axis: int, index: Any, src: Any) -> Any:
    """Return ``x`` with each element of ``src`` added where ``index`` says it belongs along ``axis``.

    ``index`` has as many dimensions as ``x`` and ``src``, and is no longer than either (but along ``axis``
    than ``x``); the elements of ``src`` beyond it are not used. What meets at one place adds up.

    >>> import tensorbus as tb
    >>> tb.scatter_add(tb.zeros((3,)), 0, tb.asarray([0, 2, 2]), tb.asarray([1.0, 2.0, 3.0])).tolist()
    [1.0, 0.0, 5.0]
    """
    return into("scatter_add", x, axis, index, src, "add")


@with_form
def scatter_reduce(
    x: Any, /, axis: int, index: Any, src: Any, reduce: str, *, include_self: bool = True
) -> Any:
    """Return ``x`` with the elements of ``src`` reduced into the places that ``index`` names along ``axis``.

    ``reduce`` is 'sum', 'mean', 'prod', 'amax' or 'amin'; shapes are as in ``scatter_add``. Without
    ``include_self`` the elements of ``x`` at those places do not take part. Means of integers round down. The
    gradient of an extreme goes to equal elements in equal parts, to those of ``x`` only where they take part.

    >>> import tensorbus as tb
    >>> x, index = tb.ones((2,)), tb.asarray([0, 0, 1])
    >>> tb.scatter_reduce(x, 0, index, tb.asarray([2.0, 3.0, 4.0]), "prod").tolist()
    [6.0, 4.0]
    """
    mode = REDUCTIONS.get(reduce)
    if mode is None:
        raise ArgumentError(f"scatter_reduce: reduce must be one of {', '.join(REDUCTIONS)}, got {reduce!r}.")
    if x.dtype is dt.bool_ and reduce != "mean":
        if reduce in ("amin", "prod"):  # true where no element is false
            source = ~src if hasattr(src, "shape") else not src
            return ~scatter_reduce(~x, axis, index, source, "amax", include_self=include_self)
        mode = "add"
    check_mode(f"scatter_reduce({reduce!r})", mode, x.dtype)
    base = x
    if not include_self or reduce == "mean":
        none = zeros(x.shape, dtype=dt.int64, device=x.device)
        count = into("scatter_reduce", none, axis, index, ones_like(index, dtype=dt.int64), "add")
    if not include_self:
        start = False if x.dtype is dt.bool_ else identity(mode, x.dtype)
        base = where(greater(count, 0), full_like(x, start), x)
    out = into("scatter_reduce", base, axis, index, src, mode)
    if reduce != "mean":
        return out
    whole = maximum(count + 1 if include_self else count, 1)
    return (floor_divide if x.dtype.is_integer else divide)(out, cast(whole, x.dtype))


def identity(mode: str, dtype: DType) -> Any:
    """Return the value that changes nothing in a mode of ``scatter``."""
    if mode in ("add", "multiply"):
        return 0 if mode == "add" else 1
    if dtype.is_integer:
        low, high = dt.integer_range(dtype)
        return low if mode == "max" else high
    top = 448.0 if dtype is dt.float8_e4m3fn else float("inf")
    return -top if mode == "max" else top
