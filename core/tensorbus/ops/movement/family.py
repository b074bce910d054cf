"""The family of ops that move elements: what a definition of one needs, and the checks of shapes and axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...dtypes.definition import ALL, DType
from ...errors import AxisError, ShapeError
from ...tracing.sym_int import index
from ..batching_rules import Rule
from ..definition import Jvp, Op, Shape, Spec, ViewRule, table
from ..elementwise.family import Operand
from ..sharding_rules import ShardRule

Arguments = tuple[tuple[Operand, ...], dict[str, Any]]


def as_shape(name: str, shape: int | Sequence[int]) -> Shape:
    """Return a shape as a tuple of ints. Raises ``ShapeError`` for what is not a length."""
    try:
        lengths: Sequence[Any] = (shape,) if hasattr(shape, "__index__") else tuple(shape)
        return tuple(index(n) for n in lengths)
    except TypeError:
        raise ShapeError(f"{name}: a shape is a tuple of integers, got {shape!r}.") from None


def movement(
    name: str,
    *,
    arguments: Callable[..., Arguments],
    infer: Callable[..., Spec],
    normalize: Callable[..., dict[str, Any]] | None = None,
    compute: Callable[..., tuple[DType, ...]] | None = None,
    operands: tuple[str, ...] = ("x",),
    decompose: Callable[..., Any] | None = None,
    vjp: Callable[..., tuple[Any, ...]],
    jvp: Callable[..., Any] | Jvp = "linear",
    batch: Rule,
    family: str = "movement",
    late: tuple[str, ...] = (),
    recompute: bool = True,
    memoize: bool = True,
    view: ViewRule | None = None,
    shard: ShardRule,
    doc: str,
) -> Op[...]:
    """Define an op that moves elements of any dtype."""
    return table.add(
        Op(
            name=name, family=family, operands=operands, arguments=arguments, infer=infer, dtypes=ALL,
            normalize=normalize, compute=compute, decompose=decompose, vjp=vjp, jvp=jvp, batch=batch,
            late=late, view=view, shard=shard, cost="light", recompute=recompute,
            memoize=memoize and operands == ("x",),
            method=not operands[0].startswith("*"), doc=doc,
        )
    )  # fmt: skip


def normalize_axis(name: str, axis: int, rank: int) -> int:
    """Return ``axis`` counted from the front. Raises ``AxisError`` where there is no such axis."""
    try:
        place = None if isinstance(axis, bool) else axis.__index__()
    except (AttributeError, TypeError):
        place = None
    if place is None:
        raise ShapeError(f"{name}: an axis is an integer, got {axis!r}.")
    if not -rank <= place < rank:
        raise AxisError(
            f"{name}: axis {place} is out of range for {rank} dimension(s); it must lie in [{-rank}, {rank})."
            if rank
            else f"{name}: axis {place} was asked of a 0-dimensional tensor, which has none."
        )
    return place % rank


def is_single(x: Any, axis: Any) -> bool:
    """Return whether ``axis`` is 0 or -1 of a 0-dimensional tensor, which is a line of one element there."""
    return not x.shape and not isinstance(axis, bool) and axis in (0, -1)
