"""Samples of elementwise ops: every way to broadcast, Python scalars, values at the edges, bad calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...dtypes import definition as dt
from ...dtypes.definition import DType
from ...errors import DtypeError, ShapeError
from ...ops.definition import Domain, Op, Shape
from ..sample import EDGES, Fill, Sample

_BROADCASTS: dict[int, tuple[tuple[Shape, ...], ...]] = {
    1: (((),), ((5,),), ((2, 3, 4),), ((0,),), ((3, 0, 2),), ((70, 3),), ((2, 1, 3, 1, 2, 2),)),
    2: (
        ((), ()), ((5,), (5,)), ((2, 3, 4), (2, 3, 4)), ((2, 3, 4), (4,)), ((3, 1), (1, 4)), ((), (2, 3)),
        ((2, 1, 3), (4, 1)), ((0,), (1,)), ((2, 0), (1, 0)), ((70, 3), (3,)),
        ((2, 1, 3, 1, 2, 1), (2, 1, 2, 1, 2)),
    ),
    3: (
        ((), (), ()), ((5,), (5,), (5,)), ((2, 3), (3,), ()), ((3, 1, 1), (1, 4, 1), (1, 1, 2)),
        ((0, 2), (2,), (1,)),
    ),
}  # fmt: skip


_LIMITS = (88.5, -87.25, 11.0, -9.5, 709.5, -700.5, 1000.5, 2.0**-10, 2.0**-100, 2.0**100, -(2.0**100), 5.25)
"""Values near which exponentials overflow or end, in one dtype or another, and very large and small ones."""


def of_op(op: Op[...]) -> Iterator[Sample]:
    """Yield the samples of an elementwise op."""
    arity, dtypes, smooth = len(op.operands), op.dtypes, op.smooth
    ranges = _ranges(arity, op.domain)
    for shapes in _BROADCASTS[arity]:
        args = tuple(_fill(s, r) for s, r in zip(shapes, ranges, strict=True))
        yield Sample(args=args, smooth=smooth)
    yield Sample(args=tuple(_edges(arity)), smooth=False, note="edges")
    if arity == 1:
        limits = Fill(shape=(len(_LIMITS),), values=_LIMITS)
        yield Sample(args=(limits,), dtypes=dt.FLOATING, smooth=False, note="where functions end")
    if arity == 2:
        yield from _with_scalars(dtypes, ranges)
    if arity > 1:
        wrong = [Fill(shape=(2, 3)), *[Fill(shape=(2,))] * (arity - 1)]
        yield Sample(args=tuple(wrong), raises=ShapeError, note="shapes that do not broadcast")
    yield Sample(args=("text",) * arity, raises=DtypeError, note="no tensor")
    refused = next((d for d in (dt.complex64, dt.bool_, dt.float32) if not _takes(op, d)), None)
    if refused is not None:
        fills = (Fill(shape=(2,), dtype=refused),) * arity
        yield Sample(args=fills, raises=DtypeError, note=f"a dtype that it does not take: {refused}")


def _ranges(arity: int, domain: Domain | None) -> tuple[Any, ...]:
    if domain is None or not isinstance(domain[0], (int, float)):
        return domain or (None,) * arity
    return (domain,) * arity


def _fill(shape: Shape, limits: tuple[float, float] | None) -> Fill:
    return Fill(shape=shape) if limits is None else Fill(shape=shape, low=limits[0], high=limits[1])


def _edges(arity: int) -> Iterator[Fill]:
    count = len(EDGES)
    for k in range(arity):  # all with all: each operand has an axis of its own
        yield Fill(shape=tuple(count if k == axis else 1 for axis in range(min(arity, 2))), values=EDGES)


def _with_scalars(dtypes: tuple[DType, ...], ranges: tuple[Any, ...]) -> Iterator[Sample]:
    scalar: bool | int = True if dtypes == dt.BOOL else 1
    yield Sample(args=(_fill((2, 3), ranges[0]), scalar), smooth=False, note="a Python scalar")
    yield Sample(args=(scalar, _fill((2, 3), ranges[1])), smooth=False, note="a Python scalar")
    if dt.int64 in dtypes and ranges == (None, None):
        long = tuple(d for d in dtypes if d in (dt.int64, dt.uint64))
        yield Sample(args=(_fill((2, 3), None), (1 << 53) + 1), dtypes=long, note="a long Python scalar")


def _takes(op: Op[...], dtype: DType) -> bool:
    """Return whether an op takes operands of ``dtype``, which it may cast first."""
    assert op.compute is not None
    try:
        op.compute((dtype,) * len(op.operands))
    except DtypeError:
        return False
    return True
