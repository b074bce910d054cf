"""Samples of convolution and pooling."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...dtypes import definition as dt
from ...errors import ShapeError
from ..sample import Fill, Sample


def _conv_call(x: Any, weight: Any, **kwargs: Any) -> Sample:
    rank = len(x) - 2
    plain = {"stride": (1,) * rank, "padding": (0,) * rank, "dilation": (1,) * rank, "groups": 1}
    return Sample(
        args=(Fill(shape=x, low=-1, high=1), Fill(shape=weight, low=-1, high=1)), kwargs={**plain, **kwargs}
    )


def _conv() -> Iterator[Sample]:
    yield _conv_call((2, 3, 8), (4, 3, 3))
    yield _conv_call((1, 2, 9), (2, 1, 2), stride=(2,), padding=(1,), dilation=(2,), groups=2)
    yield _conv_call((2, 2, 5, 6), (3, 2, 3, 2))
    yield _conv_call((1, 4, 6, 5), (4, 2, 2, 3), stride=(2, 1), padding=(1, 2), dilation=(2, 1), groups=2)
    yield _conv_call((2, 3, 4, 4), (2, 3, 1, 1))
    yield _conv_call((0, 2, 5), (3, 2, 2))
    yield _conv_call((1, 2, 4, 3, 5), (2, 2, 2, 2, 3), padding=(1, 0, 1))
    yield _conv_call((2, 6, 5, 5), (6, 1, 3, 3), padding=(1, 1), groups=6)
    many = _conv_call((1, 4, 92, 94), (8, 4, 3, 3), padding=(1, 1))
    yield Sample(args=many.args, kwargs=many.kwargs, large=True, note="large")
    bad = _conv_call((1, 2, 3), (1, 2, 4))
    yield Sample(args=bad.args, kwargs=bad.kwargs, raises=ShapeError, note="a kernel larger than the input")
    bad = _conv_call((1, 2, 5), (1, 3, 2))
    yield Sample(args=bad.args, kwargs=bad.kwargs, raises=ShapeError, note="channels that do not fit")


def _max_pool() -> Iterator[Sample]:
    wide = tuple(d for d in dt.REAL if d is not dt.float8_e4m3fn)  # it has no infinity to pad with
    for shape, args, kwargs in (
        ((2, 3, 8), (2,), {"rank": 1}), ((1, 2, 9), (3, 2, 1, 2), {"rank": 1}), ((2, 3, 6, 6), (2,), {}),
        ((1, 2, 7, 6), ((3, 2), (2, 1), (1, 1), (1, 2)), {}), ((0, 2, 4, 4), (2,), {}), ((3, 5, 5),
        (3, 1, 1), {}),
    ):  # fmt: skip
        fill = Fill(shape=shape, distinct=True)
        yield Sample(args=(fill, *args), kwargs=kwargs, dtypes=wide if len(args) > 2 else None)
    yield Sample(args=(Fill(shape=(1, 3, 3)), 4), raises=ShapeError)
    yield Sample(args=(Fill(shape=(4,)), 1), raises=ShapeError)
    yield Sample(
        args=(Fill(shape=(1, 4, 4)), 2, 1, 2), raises=ShapeError, note="more padding than half a window"
    )


def _transpose_call(x: Any, weight: Any, **kwargs: Any) -> Sample:
    return _conv_call(x, weight, **{"output_padding": (0,) * (len(x) - 2), **kwargs})


def _conv_transpose() -> Iterator[Sample]:
    yield _transpose_call((2, 3, 4), (3, 4, 3))
    yield _transpose_call((1, 2, 4), (2, 1, 2), stride=(2,), output_padding=(1,), dilation=(2,), groups=2)
    yield _transpose_call(
        (1, 4, 3, 2), (4, 2, 2, 3), stride=(2, 1), padding=(1, 2), dilation=(2, 2), groups=2
    )
    yield _transpose_call((0, 2, 5), (2, 3, 2))
    yield _transpose_call((1, 2, 2, 2, 3), (2, 2, 2, 1, 3), stride=(2, 1, 2), output_padding=(1, 0, 1))
    bad = _transpose_call((1, 2, 3), (3, 2, 2))
    yield Sample(args=bad.args, kwargs=bad.kwargs, raises=ShapeError, note="channels that do not fit")
    bad = _transpose_call((1, 2, 3), (2, 2, 2), output_padding=(1,))
    yield Sample(args=bad.args, kwargs=bad.kwargs, raises=ShapeError, note="more padding than a stride")


def _weight_call(x: Any, grad: Any, kernel: Any, **kwargs: Any) -> Sample:
    return _conv_call(x, grad, kernel=kernel, **kwargs)


def _conv_weight() -> Iterator[Sample]:
    yield _weight_call((2, 3, 8), (2, 4, 6), (3,))
    yield _weight_call((1, 2, 9), (1, 2, 5), (2,), stride=(2,), padding=(1,), dilation=(2,), groups=2)
    yield _weight_call((2, 2, 5, 6), (2, 3, 3, 5), (3, 2))
    yield _weight_call(
        (1, 4, 6, 5), (1, 4, 3, 7), (2, 3), stride=(2, 1), padding=(1, 2), dilation=(2, 1), groups=2
    )
    yield _weight_call((2, 3, 4, 4), (2, 2, 4, 4), (1, 1))
    yield _weight_call((0, 2, 5), (0, 3, 4), (2,))
    yield _weight_call((1, 2, 4, 3, 5), (1, 2, 5, 2, 5), (2, 2, 3), padding=(1, 0, 1))
    bad = _weight_call((1, 2, 5), (1, 3, 5), (2,))
    yield Sample(args=bad.args, kwargs=bad.kwargs, raises=ShapeError, note="a gradient of another shape")


SAMPLES: dict[str, Callable[[], Iterable[Sample]]] = {
    "conv": _conv, "conv_transpose": _conv_transpose, "conv_weight": _conv_weight, "max_pool": _max_pool,
}  # fmt: skip
