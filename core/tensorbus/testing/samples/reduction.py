"""Samples of reductions and scans: over one axis, several, all or none; over no elements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...dtypes.definition import BOOL, COMPLEX, INTEGER, REAL, DType
from ...errors import ShapeError
from ...ops.definition import Op, Shape
from ..sample import EDGES, INF, INTEGER_LIMITS, LARGE_SHAPE, NAN, Fill, Sample

_OVER: tuple[tuple[Shape, dict[str, Any]], ...] = (
    ((), {}), ((5,), {}), ((2, 3, 4), {}), ((2, 3, 4), {"axis": 1}), ((2, 3, 4), {"axis": -1,
    "keepdims": True}),
    ((2, 3, 4), {"axis": (0, -1)}), ((3, 2), {"axis": 0}), ((2, 3), {"axis": (0, 1), "keepdims": True}),
    ((130, 2), {"axis": 0}), ((2, 130), {"axis": 1}), ((3, 0), {"axis": 0}),
    ((2, 1, 3, 1, 2, 2), {"axis": -2}),
    ((2, 1, 3, 1, 2, 2), {"axis": (0, 2, 5)}),
)  # fmt: skip
_AXES = ({"axis": ()}, {"axis": (1, 0)})


def of_op(op: Op[...]) -> Iterator[Sample]:
    """Yield the samples of a reduction."""
    limit: Any = None if op.domain is None else op.domain[1]
    return reduction(identity=op.identity, limit=limit)


def reduction(
    *, identity: bool = True, several: bool = True, distinct: bool = False, limit: float | None = None
) -> Iterator[Sample]:
    """Yield the samples of a reduction. Where it is not ``several`` at once it takes one axis or all.

    ``distinct`` elements have one largest; ``limit`` keeps elements between its negative and itself.
    """
    low = None if limit is None else -limit
    for shape, kwargs in _OVER:
        if several or not isinstance(kwargs.get("axis"), tuple):
            fill = Fill(shape=shape, low=low, high=limit, distinct=distinct)
            yield Sample(args=(fill,), kwargs=kwargs)
    if several:
        for kwargs in _AXES:
            yield Sample(args=(Fill(shape=(2, 3), low=low, high=limit, distinct=distinct),), kwargs=kwargs)
    rows = (NAN, 1, 2, 0.0, -0.0, 0, INF, -INF, 1, 3, INF, 2)
    yield Sample(args=(Fill(shape=(4, 3), values=rows),), kwargs={"axis": 1}, smooth=False, note="edges")
    yield Sample(
        args=(Fill(shape=(len(EDGES), 1), values=EDGES),), kwargs={"axis": 1}, smooth=False, note="one each"
    )
    yield _ends()
    yield from _large(distinct, limit)
    if limit is None:  # all of one sign, so that rounding errors of one long sum do not cancel
        fill = Fill(shape=LARGE_SHAPE, low=0, high=0.4, distinct=distinct)
        yield Sample(args=(fill,), large=True, note="all of many")
    for value in (0, 1):
        yield Sample(args=(Fill(shape=(7,), values=(value,)),), smooth=False, note="all the same")
    empty = Sample(args=(Fill(shape=(2, 0)),), kwargs={"axis": 1}, note="of nothing")
    yield (
        empty
        if identity
        else Sample(args=empty.args, kwargs=empty.kwargs, raises=ShapeError, note=empty.note)
    )
    yield from _bad_axes((Fill(shape=(2, 3)),))
    if several:
        yield Sample(
            args=(Fill(shape=(2, 3)),), kwargs={"axis": (0, -2)}, raises=ShapeError, note="an axis twice"
        )


def along_axis(*, distinct: bool = False, limit: float | None = None) -> Iterator[Sample]:
    """Yield the samples of an op that works along one axis and keeps the shape."""
    low = None if limit is None else -limit
    cases: tuple[tuple[Shape, int], ...] = (
        ((5,), 0), ((2, 3, 4), 1), ((2, 3, 4), -1), ((3, 2), 0), ((2, 70), 1), ((70, 2), 0), ((2, 0), 1),
        ((0, 3), 1), ((3, 1), 1), ((2, 1, 3, 1, 2, 2), 2),
    )  # fmt: skip
    for shape, axis in cases:
        fill = Fill(shape=shape, low=low, high=limit, distinct=distinct)
        yield Sample(args=(fill,), kwargs={"axis": axis})
    yield _ends()
    yield from _large(distinct, limit)
    rows = (1, NAN, 2, 0.0, -0.0, 0, INF, 1, 3, 2, -INF, 1)
    yield Sample(args=(Fill(shape=(4, 3), values=rows),), kwargs={"axis": 1}, smooth=False, note="edges")
    yield from _bad_axes((Fill(shape=(2, 3)),))


def _ends() -> Sample:
    fill = Fill(shape=(4, 3), values=INTEGER_LIMITS)
    return Sample(args=(fill,), kwargs={"axis": 1}, dtypes=INTEGER, smooth=False, note="ends of integers")


def _large(distinct: bool, limit: float | None) -> Iterator[Sample]:
    """Yield many elements along either axis; next to 1 where they are multiplied, for nothing to overflow."""
    spans: tuple[tuple[float | None, float | None, tuple[DType, ...] | None], ...] = ((None, None, None),)
    if limit is not None:
        spans = ((0.99, 1.01, REAL + BOOL), (0.7, 0.714, COMPLEX))
    for low, high, dtypes in spans:
        fill = Fill(shape=LARGE_SHAPE, low=low, high=high, distinct=distinct)
        for axis in (0, 1):
            yield Sample(args=(fill,), kwargs={"axis": axis}, dtypes=dtypes, large=True, note="large")


def _bad_axes(args: tuple[Fill, ...]) -> Iterator[Sample]:
    yield Sample(args=args, kwargs={"axis": 2}, raises=ShapeError, note="an axis beyond")
    yield Sample(args=args, kwargs={"axis": 0.5}, raises=ShapeError, note="an axis of a fraction")


def _arg() -> Iterator[Sample]:
    return reduction(identity=False, several=False, distinct=True)


def _scan(limit: float | None = None, distinct: bool = False) -> Callable[[], Iterator[Sample]]:
    def make() -> Iterator[Sample]:
        yield from along_axis(limit=limit, distinct=distinct)
        yield Sample(args=(Fill(shape=(2, 3)),), raises=ShapeError, note="no axis where one is needed")

    return make


SAMPLES: dict[str, Callable[[], Iterable[Sample]]] = {
    "argmax": _arg, "argmin": _arg, "softmax": along_axis, "log_softmax": along_axis, "logsumexp": reduction,
    "cumulative_sum": _scan(), "cumulative_prod": _scan(1.2), "cumulative_max": _scan(distinct=True),
    "cumulative_min": _scan(distinct=True), "logcumsumexp": _scan(),
}  # fmt: skip
