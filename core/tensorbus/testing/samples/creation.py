"""Samples of creation and of random bits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ...dtypes import definition as dt
from ...errors import DtypeError, ShapeError
from ..sample import INF, LARGE_SHAPE, NAN, Fill, Sample


def _full() -> Iterator[Sample]:
    for shape in ((), (5,), (2, 3, 4), (0,), (2, 0, 3), (70, 3), LARGE_SHAPE):
        yield Sample(args=(shape, 1), kwargs={"dtype": ...})
    for value in (0, 0.0, -0.0, 100, -1, -2.5, INF, -INF, NAN, 2**63 - 1):
        exact = isinstance(value, int)
        kinds = dt.FLOATING + dt.COMPLEX if not exact else dt.SIGNED if value < 0 else dt.INTEGER
        takes = tuple(d for d in kinds if not exact or dt.integer_range(d)[1] >= value)
        if value != value or value in (INF, -INF):
            takes = tuple(d for d in dt.FLOATING if d is not dt.float8_e4m3fn)  # it has no infinities
        yield Sample(args=((2, 3), value), kwargs={"dtype": ...}, dtypes=takes)
    yield Sample(args=((2,), True), kwargs={"dtype": ...}, dtypes=dt.BOOL)
    yield Sample(args=((2,), 1 - 2j), kwargs={"dtype": ...}, dtypes=dt.COMPLEX)
    yield Sample(args=((2,), 300), kwargs={"dtype": dt.uint8}, raises=DtypeError)
    yield Sample(args=((2,), NAN), kwargs={"dtype": dt.int64}, raises=DtypeError)
    yield Sample(args=((-1,), 0), kwargs={"dtype": ...}, raises=ShapeError)
    yield Sample(args=((1 << 40, 1 << 40), 0), kwargs={"dtype": ...}, raises=ShapeError)


def _iota() -> Iterator[Sample]:
    for length, start, step in ((0, 0, 1), (1, 3, 2), (5, 0, 1), (7, 2, 3), (6, 10, -2), (40, 1, 1)):
        yield Sample(args=(length, start, step), kwargs={"dtype": ...})
    wide = (dt.float32, dt.float64, *(d for d in dt.INTEGER if dt.integer_range(d)[1] > 1 << 18))
    yield Sample(args=(1 << 17, 3, 1), kwargs={"dtype": ...}, dtypes=wide, note="many")
    yield Sample(args=(300,), kwargs={"dtype": ...}, dtypes=dt.INTEGER, note="integers wrap")
    for bits in (24, 53):  # where float32 and float64 end
        kinds = tuple(d for d in dt.INTEGER if dt.integer_range(d)[1] > 1 << bits)
        yield Sample(args=(5, (1 << bits) + 1, 1), kwargs={"dtype": ...}, dtypes=kinds, note="large")
    yield Sample(args=(9, -1.5, 0.25), kwargs={"dtype": ...}, dtypes=dt.FLOATING)
    yield Sample(args=(3,), kwargs={"dtype": dt.bool_}, raises=DtypeError)
    yield Sample(args=(3, 0, 0.5), kwargs={"dtype": dt.int32}, raises=DtypeError)
    yield Sample(args=(-1,), kwargs={"dtype": ...}, raises=ShapeError)


def _random_bits() -> Iterator[Sample]:
    for seed, block, shape in (
        (0, 0, ()), (7, 0, (5,)), (2**64 - 100, 3, (2, 3)), (1, 2**32 - 1, (9,)), (5, 2**40, (0,)),
        (3, 1, (70, 3)),
    ):  # fmt: skip
        yield Sample(args=(Fill(shape=(2,), values=(seed, block)), shape))
    yield Sample(args=(Fill(shape=(3,)), (2,)), raises=ShapeError)
    yield Sample(args=(Fill(shape=(2,), dtype=dt.float32), (2,)), raises=ShapeError)


SAMPLES: dict[str, Callable[[], Iterable[Sample]]] = {
    "full": _full, "iota": _iota, "random_bits": _random_bits,
}  # fmt: skip
