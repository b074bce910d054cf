"""``gather`` and ``scatter``: reading and writing the parts of a tensor that index tensors name.

All indexing by tensors comes down to these two. Indices count from the front; those out of range are errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final

from ...dtypes import definition as dt
from ...dtypes.definition import ALL, DType
from ...errors import ArgumentError, DtypeError, IndexingError, ShapeError
from ..batching_rules import gathered, scattered
from ..creation.creation import full_like, iota, zeros
from ..definition import Op, Shape, Spec, table
from ..elementwise.arithmetic import conj, divide, maximum
from ..elementwise.comparison import equal, less, logical_and
from ..elementwise.where_cast import cast, where
from ..movement.movement import reshape
from . import sharding

MODES: Final = ("set", "add", "multiply", "min", "max")


def _gather_infer(specs: tuple[Spec, ...]) -> Spec:
    x, *indices = specs
    if not indices or len(indices) > len(x.shape) or any(s.shape != indices[0].shape for s in indices):
        raise ShapeError(
            f"gather: index shapes {', '.join(str(s.shape) for s in indices)} must be equal, at least"
            f" one and at most one for each axis of shape {x.shape}."
        )
    return Spec(indices[0].shape + x.shape[len(indices) :], x.dtype)


def index_compute(operand_dtypes: tuple[DType, ...], values: int) -> tuple[DType, ...]:
    """Return the dtypes to compute in: indices behind the first ``values`` operands become int64."""
    for d in operand_dtypes[values:]:
        if not d.is_integer:
            raise IndexingError(f"an index tensor must have an integer or bool dtype, got {d}.")
    return (operand_dtypes[0],) * values + (dt.int64,) * (len(operand_dtypes) - values)


def from_front(indices: Any, length: int) -> Any:
    """Return int64 indices with those below 0 counted from the end of an axis.

    Those before its first element stay as they are, so that errors name what was given.
    """
    wide = indices if indices.dtype is dt.int64 else cast(indices, dt.int64)
    if indices.dtype.kind != "int":
        return wide
    behind = wide + length
    return where(less(wide ^ behind, 0), behind, wide)  # where their signs differ


gather = table.add(
    Op(
        name="gather",
        family="indexing",
        operands=("x", "*indices"),
        arguments=lambda x, /, *indices: ((x, *indices), {}),
        compute=lambda dtypes: index_compute(dtypes, 1),
        infer=_gather_infer,
        vjp=lambda g, x_shape, indices: (
            scatter(zeros(x_shape, dtype=g.dtype, device=g.device), g, *indices, mode="add"),
            *(None for _ in indices),
        ),
        jvp="linear",
        batch=gathered,
        shard=sharding.gather,
        dtypes=ALL,
        cost="light",
        recompute=True,
        raises_for=("*indices",),
        doc="The parts of ``x`` at ``indices``, one tensor for each of its first axes, all of one shape.",
    )
)


def check_mode(name: str, mode: str, dtype: DType) -> None:
    """Raise ``ArgumentError`` for an unknown mode, ``DtypeError`` for a dtype that it has no meaning for."""
    if mode not in MODES:
        raise ArgumentError(f"{name}: mode must be one of {', '.join(MODES)}, got {mode!r}.")
    if (mode in ("min", "max") and dtype.kind in ("bool", "complex")) or (
        mode == "multiply" and dtype is dt.bool_
    ):
        raise DtypeError(f"{name}: mode {mode!r} is not defined for {dtype}; cast with .to(dtype).")


def _scatter_infer(specs: tuple[Spec, ...], *, mode: str) -> Spec:
    x, value, *indices = specs
    check_mode("scatter", mode, x.dtype)
    if value.shape != _gather_infer((x, *indices)).shape:
        raise ShapeError(
            f"scatter: a value of shape {value.shape} was given for"
            f" {_gather_infer((x, *indices)).shape} places of shape {x.shape}."
        )
    return x


def scatter_jvp(mode: str) -> Any:
    """Return the kind of function that scattering is."""
    return "linear" if mode in ("set", "add") else NotImplemented


def scatter_vjp(
    g: Any, out: Any, x: Any, value: Any, mode: str, index_shape: Shape,
    read: Callable[[Any], Any], write: Callable[[Any, Any, str], Any],
) -> tuple[Any, Any]:  # fmt: skip
    """Return the gradients of ``x`` and ``value``, which was written to places that ``read`` reads.

    Each place's gradient goes to what ended there: with ``set`` to the last value stored, with ``min`` and
    ``max`` in equal parts to those that are the extreme. With ``multiply`` zeros are counted apart, so that
    nothing is divided by them.
    """
    if mode == "add":
        return g, read(g)
    if mode == "set":
        order = reshape(iota(prod(index_shape), 1, device=g.device), index_shape)
        lead = g.shape[: len(g.shape) - len(value.shape) + len(index_shape)]
        last = write(zeros(lead, dtype=dt.int64, device=g.device), order, "set")
        tail = (1,) * (len(g.shape) - len(lead))
        mine = reshape(equal(read(last), order), index_shape + tail)
        return where(reshape(equal(last, 0), lead + tail), g, 0), where(mine, read(g), 0)
    if mode == "multiply":
        whole, others = _products(x, value, read, write)
        return g * conj(whole), read(g * conj(x)) * conj(others)
    mine, theirs = equal(x, out), equal(value, read(out))
    count = write(cast(mine, g.dtype), cast(theirs, g.dtype), "add")
    share = divide(g, maximum(count, 1))
    return where(mine, share, 0), where(theirs, read(share), 0)


def _products(
    x: Any, value: Any, read: Callable[[Any], Any], write: Callable[[Any, Any, str], Any]
) -> tuple[Any, Any]:
    """Return the product of the values at each place, and for each value that of the others at its place.

    Zeros are taken apart, so that nothing is divided by them. Up to two at a place stay in the products as
    factors, although these are 0 anyhow: their derivatives are not.
    """
    zero = equal(value, 0)
    count = write(zeros(x.shape, dtype=dt.int64, device=x.device), cast(zero, dt.int64), "add")
    zero_sum = write(zeros(x.shape, dtype=x.dtype, device=x.device), where(zero, value, 0), "add")
    factors = where(zero, 1, value)
    product = write(full_like(x, 1), factors, "multiply")
    whole = where(equal(count, 0), product, where(equal(count, 1), zero_sum * product, 0))
    left, rest, sums = read(count), divide(read(product), factors), read(zero_sum)
    others = where(
        equal(left, 0),
        rest,
        where(
            equal(left, 1),
            where(zero, rest, sums * rest),
            where(logical_and(zero, equal(left, 2)), (sums - value) * rest, 0),
        ),
    )
    return whole, others


def _vjp(g: Any, out: Any, x: Any, value: Any, indices: Sequence[Any], mode: str) -> tuple[Any, ...]:
    grads = scatter_vjp(
        g, out, x, value, mode, indices[0].shape,
        read=lambda t: gather(t, *indices),
        write=lambda t, v, how: scatter(t, v, *indices, mode=how),
    )  # fmt: skip
    return (*grads, *(None for _ in indices))


scatter: Op[...] = table.add(
    Op(
        name="scatter",
        family="indexing",
        operands=("x", "value", "*indices"),
        arguments=lambda x, value, /, *indices, mode="set": ((x, value, *indices), {"mode": mode}),
        compute=lambda dtypes, mode: index_compute((dtypes[0], dtypes[0], *dtypes[2:]), 2),
        infer=_scatter_infer,
        vjp=_vjp,
        jvp=scatter_jvp,
        batch=scattered,
        shard=sharding.scatter,
        dtypes=ALL,
        cost="light",
        recompute=True,
        raises_for=("*indices",),
        doc="``x`` with ``value`` stored at ``indices`` into its first axes. Of several values for one place"
        " the last stays; modes 'add', 'multiply', 'min' and 'max' combine them with what is there.",
    )
)
