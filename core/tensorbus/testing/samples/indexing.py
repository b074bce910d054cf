"""Samples of reading and writing at places that tensors name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ...dtypes import definition as dt
from ...errors import ArgumentError, IndexingError, ShapeError
from ...ops.definition import Shape
from ..sample import LARGE_SHAPE, Fill, Sample


def places(shape: Shape, length: int, dtype: dt.DType = dt.int64) -> Fill:
    """Return indices into an axis of ``length``."""
    return Fill(shape=shape, dtype=dtype, low=0, high=length - 1)


_GATHERS: tuple[tuple[Shape, int, Shape], ...] = (
    ((5,), 1, ()), ((5,), 1, (7,)), ((3, 4), 1, (2, 2)), ((3, 4), 2, (5,)), ((2, 3, 4), 2, (2, 3)),
    ((2, 3), 1, (0,)),
    ((70, 3), 1, (9,)), ((2, 0), 1, (3,)),
)  # fmt: skip
"""The shape of the operand, how many of its axes are indexed, and the shape of the indices."""


def _gather() -> Iterator[Sample]:
    for shape, depth, common in _GATHERS:
        yield Sample(args=(Fill(shape=shape), *(places(common, n) for n in shape[:depth])))
    yield Sample(args=(Fill(shape=LARGE_SHAPE), places((700,), LARGE_SHAPE[0])), large=True, note="large")
    yield Sample(args=(Fill(shape=(4, 2)), places((3,), 4, dt.int32)), note="indices of another dtype")
    yield Sample(args=(Fill(shape=(2, 3)), places((2,), 2), places((3,), 3)), raises=ShapeError)
    yield Sample(args=(Fill(shape=(2,)), places((2,), 2), places((2,), 2)), raises=ShapeError)
    yield Sample(args=(Fill(shape=(2, 3)), Fill(shape=(2,), dtype=dt.float32)), raises=IndexingError)
    beyond = Fill(shape=(2,), dtype=dt.int64, values=(0, 2))
    yield Sample(args=(Fill(shape=(2, 3)), beyond), raises=IndexingError, note="an index beyond")
    below = Fill(shape=(2,), dtype=dt.int64, values=(0, -1))
    yield Sample(args=(Fill(shape=(2, 3)), below), raises=IndexingError, note="an index below 0")


def _scatter() -> Iterator[Sample]:
    for mode in ("set", "add", "multiply", "min", "max"):
        takes = dt.ALL if mode == "set" else dt.REAL if mode in ("min", "max") else dt.NUMERIC
        for shape, depth, common in _GATHERS:
            value = Fill(shape=(*common, *shape[depth:]), low=-2, high=2, distinct=mode in ("min", "max"))
            indices = [places(common, n) for n in shape[:depth]]
            fill = Fill(shape=shape, low=-2, high=2)
            yield Sample(args=(fill, value, *indices), kwargs={"mode": mode}, dtypes=takes)
    for mode, takes in (("set", dt.ALL), ("add", dt.NUMERIC)):
        fills = (Fill(shape=LARGE_SHAPE, low=-2, high=2), Fill(shape=(400, LARGE_SHAPE[1]), low=-2, high=2))
        at = places((400,), LARGE_SHAPE[0])
        yield Sample(args=(*fills, at), kwargs={"mode": mode}, dtypes=takes, large=True, note="large")
    x, at = Fill(shape=(2, 3)), places((2,), 2)
    yield Sample(args=(x, Fill(shape=(2,)), at), raises=ShapeError)
    yield Sample(args=(x, Fill(shape=(2, 3)), at), kwargs={"mode": "sum"}, raises=ArgumentError)
    beyond = Fill(shape=(2,), dtype=dt.int64, values=(0, 2))
    yield Sample(args=(x, Fill(shape=(2, 3)), beyond), raises=IndexingError, note="an index beyond")
    below = Fill(shape=(2,), dtype=dt.int64, values=(0, -1))
    yield Sample(args=(x, Fill(shape=(2, 3)), below), raises=IndexingError, note="an index below 0")


_ALONG: tuple[tuple[Shape, Shape, int], ...] = (
    ((5,), (3,), 0), ((2, 3), (2, 5), 1), ((3, 2), (4, 2), 0), ((2, 3, 4), (2, 2, 4), -2), ((70, 2),
    (9, 2), 0),
    ((2, 3), (2, 0), 1),
)  # fmt: skip
"""The shape of the operand and of the indices, and the axis that they point into."""


def _take_along() -> Iterator[Sample]:
    for shape, index, axis in _ALONG:
        yield Sample(args=(Fill(shape=shape), places(index, shape[axis])), kwargs={"axis": axis})
    many = (Fill(shape=LARGE_SHAPE), places((200, LARGE_SHAPE[1]), LARGE_SHAPE[0]))
    yield Sample(args=many, kwargs={"axis": 0}, large=True, note="large")
    last = Fill(shape=(2, 2), dtype=dt.int64, values=(-1, 0, -3, 2))
    yield Sample(args=(Fill(shape=(2, 3)), last), note="counted from the end")
    yield Sample(args=(Fill(shape=(2, 3)), places((1, 2), 3)), note="indices that broadcast")
    yield Sample(args=(Fill(shape=(2, 3)), places((3,), 3)), raises=ShapeError)
    yield Sample(args=(Fill(shape=(2, 3)), places((3, 3), 3)), raises=ShapeError)
    yield Sample(args=(Fill(shape=(2, 3)), Fill(shape=(2, 2), dtype=dt.float32)), raises=IndexingError)
    beyond = Fill(shape=(2, 1), dtype=dt.int64, values=(0, 3))
    yield Sample(args=(Fill(shape=(2, 3)), beyond), raises=IndexingError, note="an index beyond")


def _put_along() -> Iterator[Sample]:
    for mode in ("set", "add", "multiply", "min", "max"):
        takes = dt.ALL if mode == "set" else dt.REAL if mode in ("min", "max") else dt.NUMERIC
        for shape, index, axis in _ALONG:
            fill = Fill(shape=shape, low=-2, high=2)
            values = Fill(shape=index, low=-2, high=2, distinct=mode in ("min", "max"))
            kwargs = {"axis": axis, "mode": mode}
            yield Sample(args=(fill, places(index, shape[axis]), values), kwargs=kwargs, dtypes=takes)
    x, at = Fill(shape=(2, 3)), places((2, 2), 3)
    yield Sample(args=(x, at, Fill(shape=(2, 2))), kwargs={"mode": "sum"}, raises=ArgumentError)
    yield Sample(args=(x, places((3, 2), 3), Fill(shape=(3, 2))), raises=ShapeError)
    beyond = Fill(shape=(2, 1), dtype=dt.int64, values=(0, 3))
    yield Sample(args=(x, beyond, Fill(shape=(2, 1))), raises=IndexingError, note="an index beyond")


SAMPLES: dict[str, Callable[[], Iterable[Sample]]] = {
    "gather": _gather, "scatter": _scatter, "take_along_axis": _take_along, "scatter_along_axis": _put_along,
}  # fmt: skip
