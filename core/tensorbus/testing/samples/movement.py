"""Samples of movement: the same elements elsewhere, in shapes with and without elements and axes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import prod
from typing import Any

from ...dtypes import definition as dt
from ...errors import DtypeError, ShapeError
from ...ops.definition import Shape
from ..sample import EDGES, LARGE_SHAPE, Fill, Sample

Rows = Iterable[tuple[Shape, dict[str, Any]]]


def _calls(good: Rows, bad: Rows = ()) -> Callable[[], Iterator[Sample]]:
    """Return what yields a call of one tensor for each row: its shape, and the keywords."""

    def make() -> Iterator[Sample]:
        for shape, kwargs in good:
            large = prod(shape) >= prod(LARGE_SHAPE)
            yield Sample(args=(Fill(shape=shape),), kwargs=kwargs, large=large, note="large" if large else "")
        for shape, kwargs in bad:
            yield Sample(args=(Fill(shape=shape),), kwargs=kwargs, raises=ShapeError)

    return make


def _box(start: Shape, size: Shape, step: Shape) -> dict[str, Any]:
    return {"start": start, "size": size, "step": step}


_SLICES = (
    ((), _box((), (), ())), ((5,), _box((1,), (3,), (1,))), ((5,), _box((4,), (3,), (-2,))),
    ((2, 3, 4), _box((1, 0, 3), (1, 2, 4), (1, 2, -1))), ((2, 3), _box((0, 0), (0, 3), (1, 1))),
    ((0, 3), _box((0, 2), (0, 3), (1, -1))), ((70, 3), _box((1, 0), (23, 3), (3, 1))),
    ((2, 1, 3, 2, 2), _box((1, 0, 2, 0, 1), (1, 1, 2, 2, 1), (1, 1, -2, 1, 1))),
)  # fmt: skip


def _slice_update() -> Iterator[Sample]:
    for shape, box in _SLICES:
        value = Fill(shape=box["size"])
        yield Sample(args=(Fill(shape=shape), value), kwargs={"start": box["start"], "step": box["step"]})
    place = {"start": (20, 7), "step": (1, 2)}
    yield Sample(
        args=(Fill(shape=LARGE_SHAPE), Fill(shape=(270, 240))), kwargs=place, large=True, note="large"
    )
    yield Sample(
        args=(Fill(shape=(2, 3)), Fill(shape=(2, 2))),
        kwargs={"start": (0, 2), "step": (1, 1)},
        raises=ShapeError,
    )


def _view_as_real() -> Iterator[Sample]:
    for shape in ((), (5,), (2, 3, 4), (0,), (3, 0)):
        yield Sample(args=(Fill(shape=shape),))
    yield Sample(args=(Fill(shape=(2,), dtype=dt.float32),), raises=DtypeError, note="a real tensor")


def _concat() -> Iterator[Sample]:
    for axis, *shapes in (
        (0, (2,)), (0, (2,), (0,), (3,)), (1, (2, 3), (2, 1)), (-1, (2, 1, 4), (2, 1, 2), (2, 1, 1)),
        (0, (3, 2), (1, 2)), (None, (2, 3), (2,), ()), (1, (0, 2), (0, 3)), (0, (70, 3), (2, 3)),
        (0, (2, 3), (2, 3), (2, 3)),
    ):  # fmt: skip
        yield Sample(args=([Fill(shape=s) for s in shapes],), kwargs={"axis": axis})
    yield Sample(args=([Fill(shape=(len(EDGES),), values=EDGES)] * 2,), smooth=False)
    many = [Fill(shape=(300, 200)), Fill(shape=(300, 100))]
    yield Sample(args=(many,), kwargs={"axis": 1}, large=True, note="large")
    yield Sample(args=([Fill(shape=(2, 3)), Fill(shape=(3, 2))],), raises=ShapeError)
    yield Sample(args=([Fill(shape=(2, 3)), Fill(shape=(2,))],), raises=ShapeError, note="ranks that differ")
    yield Sample(args=([],), raises=ShapeError, note="of nothing")
    mixed = [Fill(shape=(2,), dtype=dt.int64), Fill(shape=(2,), dtype=dt.uint64)]
    yield Sample(args=(mixed,), raises=DtypeError, note="no common dtype")


def _pad() -> Iterator[Sample]:
    for shape, low, high, value in (
        ((), (), (), 0), ((3,), (2,), (1,), 1), ((2, 3), (0, 1), (2, 0), 0), ((0, 2), (1, 0), (0, 1), 1),
        ((2, 3), (0, 0), (0, 0), 0), ((70, 2), (3, 0), (0, 4), 1),
    ):  # fmt: skip
        yield Sample(args=(Fill(shape=shape), low, high, value))
    yield Sample(args=(Fill(shape=LARGE_SHAPE), (1, 2), (3, 0), 1), large=True, note="large")
    yield Sample(args=(Fill(shape=(2,)), (-1,), (0,)), raises=ShapeError)
    yield Sample(args=(Fill(shape=(2,), dtype=dt.uint8), (1,), (0,), 1.5), raises=DtypeError)


def _window(size: Shape, stride: Shape, dilation: Shape) -> dict[str, Any]:
    return {"size": size, "stride": stride, "dilation": dilation}


def _fold(shape: Shape, stride: Shape, dilation: Shape) -> dict[str, Any]:
    return {"shape": shape, "stride": stride, "dilation": dilation}


SAMPLES: dict[str, Callable[[], Iterable[Sample]]] = {
    "broadcast_to": _calls(
        [((), {"shape": ()}), ((), {"shape": (2, 3)}), ((3,), {"shape": (2, 3)}),
         ((2, 1, 3), {"shape": (2, 4, 3)}),
         ((1,), {"shape": (0,)}), ((0,), {"shape": (2, 0)}), ((1, 3), {"shape": (70, 3)}),
         ((1, 150000), {"shape": (2, 150000)})],
        [((2, 3), {"shape": (3, 2)}), ((2, 3), {"shape": (3,)})],
    ),
    "reshape": _calls(
        [((), {"shape": (1,)}), ((6,), {"shape": (2, 3)}), ((2, 3), {"shape": (-1,)}),
         ((2, 3, 4), {"shape": (4, -1)}),
         ((1, 1), {"shape": ()}), ((0, 3), {"shape": (2, 0)}), ((70, 3), {"shape": (3, 70)}),
         (LARGE_SHAPE, {"shape": (-1,)})],
        [((2, 3), {"shape": (4,)}), ((2, 3), {"shape": (-1, -1)}), ((0, 3), {"shape": (0, -1)}),
         ((2,), {"shape": "ab"})],
    ),
    "permute_dims": _calls(
        [((), {"axes": ()}), ((3,), {"axes": (0,)}), ((2, 3, 4), {"axes": (2, 0, 1)}),
         ((2, 3, 4), {"axes": (-1, 1, 0)}),
         ((2, 0, 3), {"axes": (1, 2, 0)}), ((70, 3), {"axes": (1, 0)}),
         ((2, 1, 3, 1, 2, 2), {"axes": (5, 3, 0, 2, 1, 4)}), (LARGE_SHAPE, {"axes": (1, 0)})],
        [((2, 3), {"axes": (0, 0)}), ((2, 3), {"axes": (0,)})],
    ),
    "flip": _calls(
        [((), {}), ((5,), {}), ((2, 3, 4), {}), ((2, 3), {"axis": -1}), ((2, 3, 4), {"axis": (0, 2)}),
         ((2, 0), {"axis": 0}), ((2, 3), {"axis": ()}), ((2, 1, 3, 1, 2, 2), {"axis": (0, -1)}),
         (LARGE_SHAPE, {"axis": 1})],
        [((2, 3), {"axis": 2}), ((2, 3), {"axis": 0.5})],
    ),
    "slice": _calls(
        [*_SLICES, (LARGE_SHAPE, _box((299, 1), (290, 240), (-1, 2)))],
        [((2, 3), _box((0, 2), (2, 2), (1, 1))), ((2,), _box((0, 0), (1, 1), (1, 1)))],
    ),
    "diagonal": _calls(
        [((3, 3), {"offset": 0}), ((2, 4), {"offset": 1}), ((2, 5, 3), {"offset": -2}),
         ((3, 2), {"offset": 2}), ((2, 3), {"offset": -7}), ((0, 2), {"offset": 0}),
         ((0, 3, 3), {"offset": 1}), ((70, 3), {"offset": -50}), (LARGE_SHAPE, {"offset": 0})],
        [((3,), {"offset": 0})],
    ),
    "view_as_real": _view_as_real,
    "view_as_complex": _calls(
        [((2,), {}), ((5, 2), {}), ((3, 4, 2), {}), ((0, 2), {}), ((3, 0, 2), {})], [((2, 3), {}), ((), {})]
    ),
    "slice_update": _slice_update,
    "concat": _concat,
    "pad": _pad,
    "windows": _calls(
        [((5,), _window((2,), (1,), (1,))), ((2, 7), _window((3,), (2,), (2,))), ((3, 4), _window((2, 2),
         (1, 2), (1, 1))),
         ((0, 4), _window((2,), (1,), (1,))), ((2, 5, 6), _window((2, 3), (2, 1), (1, 2)))],
        [((3,), _window((4,), (1,), (1,))), ((3,), _window((2,), (0,), (1,)))],
    ),
    "fold": _calls(
        [((4, 2), _fold((5,), (1,), (1,))), ((2, 2, 3), _fold((7,), (2,), (2,))),
         ((2, 2, 2, 2), _fold((3, 4), (1, 2), (1, 1))),
         ((0, 3, 2), _fold((4,), (1,), (1,)))],
        [((4, 2), _fold((9,), (1,), (1,)))],
    ),
}  # fmt: skip
