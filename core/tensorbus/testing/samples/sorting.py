"""Samples of sorting and of searching in what is sorted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ...dtypes import definition as dt
from ...errors import ArgumentError, DtypeError, ShapeError
from ..sample import INF, INTEGER_LIMITS, LARGE_SHAPE, NAN, Fill, Sample


def _sort() -> Iterator[Sample]:
    for shape, kwargs in (
        ((5,), {}), ((2, 3, 4), {"axis": 1}), ((3, 2), {"axis": 0, "descending": True}), ((0,), {}),
        ((2, 0), {}),
        ((70, 2), {"axis": 0}), ((2, 33), {"axis": -1, "descending": True}), ((1, 1), {}),
    ):  # fmt: skip
        yield Sample(args=(Fill(shape=shape, distinct=True),), kwargs=kwargs)
    for axis in (0, 1):
        fill = Fill(shape=LARGE_SHAPE, low=-50, high=50)
        yield Sample(args=(fill,), kwargs={"axis": axis}, large=True, note="large")
    rows = (3, NAN, 1, -INF, 2, 2, 0.0, INF, 1, 0, 1, 2)
    for descending in (False, True):
        fill = Fill(shape=(4, 3), values=rows)
        yield Sample(
            args=(fill,), kwargs={"axis": 0, "descending": descending}, smooth=False, note="equal ones"
        )
        ends = Sample(
            args=(Fill(shape=(12,), values=INTEGER_LIMITS),), kwargs={"descending": descending},
            dtypes=dt.INTEGER, smooth=False, note="ends of integers",
        )  # fmt: skip
        yield ends
    yield Sample(args=(Fill(shape=(2, 3)),), kwargs={"axis": 2}, raises=ShapeError)


def _argsort_part() -> Iterator[Sample]:
    for shape, kwargs in (
        ((5,), {"count": 2}), ((2, 3, 4), {"axis": 1, "start": 1, "count": 1}),
        ((4,), {"start": 4, "count": 0}), ((3, 2), {"axis": 0, "count": 3, "descending": True}),
        ((3, 0), {"axis": 0, "count": 2}),
        ((70, 2), {"axis": 0, "start": 5, "count": 40}), ((2, 33), {"count": 1, "descending": True}),
    ):  # fmt: skip
        yield Sample(args=(Fill(shape=shape, distinct=True),), kwargs=kwargs)
    for axis in (0, 1):
        fill = Fill(shape=LARGE_SHAPE, low=-50, high=50)
        yield Sample(args=(fill,), kwargs={"axis": axis, "count": 9}, large=True, note="large")
    rows = (3, NAN, 1, -INF, 2, 2, 0.0, INF, 1, 0, 1, 2)
    for descending in (False, True):
        fill = Fill(shape=(2, 8200, 1), low=-50, high=50)
        kwargs = {"axis": 1, "start": 2, "count": 9, "descending": descending}
        yield Sample(args=(fill,), kwargs=kwargs, large=True, note="long")
        for start in (0, 2):
            fill = Fill(shape=(4, 3), values=rows)
            kwargs = {"axis": 0, "start": start, "count": 2, "descending": descending}
            yield Sample(args=(fill,), kwargs=kwargs, smooth=False, note="equal ones")
    yield Sample(args=(Fill(shape=(2, 3)),), kwargs={"count": 4}, raises=ShapeError)
    yield Sample(args=(Fill(shape=(2, 3)),), kwargs={"start": -1, "count": 1}, raises=ShapeError)


def _searchsorted() -> Iterator[Sample]:
    rising = Fill(shape=(6,), values=(0, 1, 2, 3, 5, 7))
    for shape in ((), (4,), (2, 3), (0,)):
        for side in ("left", "right"):
            values = Fill(shape=shape, values=(1, 4, 0, 7, 100, 2, 3))
            yield Sample(args=(rising, values), kwargs={"side": side}, dtypes=dt.REAL)
    yield Sample(args=(Fill(shape=(0,)), Fill(shape=(2,))), dtypes=dt.REAL)
    flags = Fill(shape=(4,), values=(False, True, True, True))
    yield Sample(args=(flags, Fill(shape=(3,), values=(True, False))), dtypes=dt.BOOL)
    rows = Fill(shape=(2, 3), values=(0, 2, 4, 1, 1, 5))
    yield Sample(
        args=(rows, Fill(shape=(2, 4), values=(1, 0, 5, 3))), dtypes=dt.REAL, note="a line for each row"
    )
    wide = tuple(d for d in dt.FLOATING if d is not dt.float8_e4m3fn)  # it has no infinities
    edges = Fill(shape=(6,), values=(NAN, -INF, INF, 0.0, -0.0, 3))
    yield Sample(args=(Fill(shape=(5,), values=(-INF, 0.0, 1, 3, NAN)), edges), dtypes=wide, note="edges")
    yield Sample(args=(Fill(shape=()), Fill(shape=(2,))), raises=ShapeError)
    yield Sample(args=(rows, Fill(shape=(3, 4))), raises=ShapeError)
    yield Sample(args=(rising, Fill(shape=(2,))), kwargs={"side": "middle"}, raises=ArgumentError)
    complex_line = Fill(shape=(2,), dtype=dt.complex64)
    yield Sample(args=(complex_line, complex_line), raises=DtypeError, note="no order")


SAMPLES: dict[str, Callable[[], Iterable[Sample]]] = {
    "sort": _sort, "argsort": _sort, "argsort_part": _argsort_part, "searchsorted": _searchsorted,
}  # fmt: skip
