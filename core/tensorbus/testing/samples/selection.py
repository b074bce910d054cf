"""Samples of casts, choices and transfers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ...dtypes import definition as dt
from ...errors import DtypeError, ShapeError
from ..sample import EDGES, Fill, Sample


def _cast() -> Iterator[Sample]:
    real = tuple(d for d in dt.ALL if not d.is_complex)
    for target in dt.ALL:
        takes = dt.ALL if target.is_complex or target is dt.bool_ else real
        smooth = target in (dt.float64, dt.complex128)  # the others round
        yield Sample(args=(Fill(shape=(2, 3)), target), smooth=smooth, dtypes=takes)
        yield Sample(args=(Fill(shape=(len(EDGES),), values=EDGES), target), smooth=False, dtypes=takes)
    for shape in ((), (0,), (2, 0, 3), (70, 3)):
        yield Sample(args=(Fill(shape=shape), dt.float32), smooth=False, dtypes=real)
    yield Sample(args=(Fill(shape=(2,), dtype=dt.complex64), dt.float32), raises=DtypeError)
    yield Sample(args=(Fill(shape=(2,)), "flot32"), raises=DtypeError, note="no such dtype")


def _where() -> Iterator[Sample]:
    for shapes in (
        ((), (), ()), ((5,), (5,), (5,)), ((2, 3), (3,), ()), ((3, 1, 1), (1, 4, 1), (1, 1, 2)), ((0, 2),
        (2,), (1,)),
        ((70, 3), (70, 1), (3,)),
    ):  # fmt: skip
        condition, x, y = shapes
        yield Sample(args=(Fill(shape=condition, dtype=dt.bool_), Fill(shape=x), Fill(shape=y)))
    count = len(EDGES)
    yield Sample(
        args=(Fill(shape=(2, 1), dtype=dt.bool_, values=(True, False)), Fill(shape=(count,), values=EDGES),
              Fill(shape=(count,), values=EDGES[::-1])),
        smooth=False,
    )  # fmt: skip
    test = Fill(shape=(2, 3), dtype=dt.bool_)
    yield Sample(args=(test, Fill(shape=(2, 3)), True), smooth=False, note="a Python scalar")
    yield Sample(args=(test, True, Fill(shape=(3,))), smooth=False, note="a Python scalar")
    yield Sample(args=(test, Fill(shape=(2,)), Fill(shape=(2, 3))), raises=ShapeError)
    yield Sample(args=(Fill(shape=(2,), dtype=dt.float32), *[Fill(shape=(2,))] * 2), raises=DtypeError)


SAMPLES: dict[str, Callable[[], Iterable[Sample]]] = {"cast": _cast, "where": _where}
