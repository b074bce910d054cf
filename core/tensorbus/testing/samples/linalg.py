"""Samples of factorizations, of ops that use them, of norms, and of Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from ...dtypes import definition as dt
from ...errors import ArgumentError, LinAlgError, ShapeError
from ...ops.definition import Shape
from ..sample import INF, NAN, Fill, Sample

_SQUARES: tuple[Shape, ...] = ((1, 1), (3, 3), (2, 3, 3), (2, 1, 2, 2), (0, 3, 3), (9, 9), (12, 2, 2))
_ANY: tuple[Shape, ...] = (*_SQUARES, (4, 3), (3, 4), (2, 5, 1), (1, 4), (9, 7))
_REAL, _COMPLEX = (dt.float32, dt.float64), (dt.complex64, dt.complex128)


def _filled(shape: Shape, matrix: str = "") -> Fill:
    return Fill(shape=shape, matrix=matrix) if matrix else Fill(shape=shape, low=-2, high=2)


def _bad(square: bool) -> Iterator[Sample]:
    yield Sample(args=(Fill(shape=(3,)),), raises=ShapeError, note="a vector")
    if square:
        yield Sample(args=(Fill(shape=(2, 3)),), raises=ShapeError, note="not square")


def _of_square(matrix: str = "regular", smooth: bool = True, singular: bool = False) -> Iterator[Sample]:
    """Yield the samples of an op on square matrices; ``singular`` ones are an error where that is so."""
    for shape in (*_SQUARES, (0, 0)):
        yield Sample(args=(_filled(shape, matrix),), smooth=smooth)
    if singular:
        yield Sample(args=(Fill(shape=(3, 3), values=(0,)),), raises=LinAlgError, note="singular")
    yield from _bad(square=True)


def _of_any(**kwargs: Any) -> Iterator[Sample]:
    for shape in (*_ANY, (0, 3), (3, 0)):
        yield Sample(args=(_filled(shape, "regular" if shape[-1] == shape[-2] else ""),), kwargs=kwargs)
    yield from _bad(square=False)


def _svd() -> Iterator[Sample]:
    for shape in (*_ANY, (0, 3), (3, 0)):
        for full in (False, True):
            fill, kwargs = _filled(shape), {"full_matrices": full}
            free = full and shape[-1] != shape[-2]
            yield Sample(args=(fill,), kwargs=kwargs, smooth=not free, dtypes=_REAL)
            yield Sample(args=(fill,), kwargs=kwargs, smooth=False, dtypes=_COMPLEX, note="phases are free")
    yield _stack(full_matrices=False)
    yield from _bad(square=False)


def _svdvals() -> Iterator[Sample]:
    yield from _of_any()
    yield _stack()


def _stack(**kwargs: Any) -> Sample:
    return Sample(args=(_filled((9, 36, 33)),), kwargs=kwargs, smooth=False, large=True, note="large")


def _qr() -> Iterator[Sample]:
    yield from _of_any(mode="reduced")
    yield Sample(args=(_filled((4, 3)),), kwargs={"mode": "complete"}, smooth=False)
    yield Sample(args=(_filled((3, 4)),), kwargs={"mode": "complete"})
    yield Sample(args=(_filled((3, 3)),), kwargs={"mode": "r"}, raises=ArgumentError)


_SYSTEMS: tuple[tuple[Shape, Shape], ...] = (
    ((3, 3), (3, 2)), ((2, 3, 3), (3, 1)), ((3, 3), (2, 3, 4)), ((2, 1, 2, 2), (3, 2, 2)),
    ((9, 9), (9, 3)), ((0, 0), (0, 2)), ((3, 3), (3, 0)),
)  # fmt: skip


def _systems(matrix: str, **kwargs: Any) -> Iterator[Sample]:
    for a, b in _SYSTEMS:
        yield Sample(args=(_filled(a, matrix), _filled(b)), kwargs=kwargs)
    zeros = Fill(shape=(3, 3), values=(0,))
    if not kwargs.get("unit_diagonal"):
        yield Sample(args=(zeros, _filled((3, 2))), kwargs=kwargs, raises=LinAlgError, note="singular")
    for a, b in (((2, 3), (2, 1)), ((3, 3), (2, 1)), ((3, 3), (3,)), ((2, 3, 3), (3, 3, 1))):
        yield Sample(args=(_filled(a), _filled(b)), kwargs=kwargs, raises=ShapeError)


def _triangular() -> Iterator[Sample]:
    yield from _systems("lower", upper=False)
    yield from _systems("upper", upper=True)
    ones = {"upper": False, "unit_diagonal": True}
    yield Sample(args=(_filled((3, 3), "lower"), _filled((3, 2))), kwargs=ones)


def _cholesky() -> Iterator[Sample]:
    yield from _of_square("definite", smooth=False)
    yield Sample(args=(Fill(shape=(2, 2), values=(-1, 0, 0, 1)),), raises=LinAlgError, note="not definite")


_hermitian = partial(_of_square, "symmetric", smooth=False)
_unordered = partial(_of_square, smooth=False)


def _slogdet() -> Iterator[Sample]:
    yield from _of_square()
    yield Sample(args=(Fill(shape=(2, 3, 3), values=(0,)),), smooth=False, note="singular")


def _pinv() -> Iterator[Sample]:
    tolerance = Fill(shape=(1, 1), dtype=dt.float32, values=(2.0**-13,))
    for shape in (*_ANY, (0, 3)):
        yield Sample(args=(_filled(shape, "regular" if shape[-1] == shape[-2] else ""), tolerance))
    yield Sample(args=(Fill(shape=(3,)), tolerance), raises=ShapeError, note="a vector")


def _vector_norm() -> Iterator[Sample]:
    for ord in (2, 1, 0, -1, -2, 3, 0.5, INF, -INF):
        for shape, axis in (((5,), None), ((2, 3, 4), 1), ((2, 3), (0, -1)), ((3, 2), ())):
            args = (Fill(shape=shape, low=0.5, high=2, distinct=True),)
            kwargs = {"ord": ord, "axis": axis, "keepdims": axis == 1}
            yield Sample(args=args, kwargs=kwargs, dtypes=dt.FLOATING)
            extreme = abs(ord) == INF  # complex numbers with exchanged parts are equally large
            yield Sample(args=args, kwargs=kwargs, dtypes=dt.COMPLEX, smooth=not extreme)
        yield Sample(args=(Fill(shape=(3, 0)),), kwargs={"ord": ord, "axis": 1}, note="of nothing")
        yield Sample(args=(Fill(shape=(3,), values=(0,)),), kwargs={"ord": ord}, smooth=False, note="zero")
    edges = Fill(shape=(2, 2), values=(NAN, 1, INF, -1))
    yield Sample(args=(edges,), kwargs={"axis": 1}, smooth=False, note="edges")
    yield Sample(args=(Fill(shape=(3,)),), kwargs={"ord": "fro"}, raises=ArgumentError)
    yield Sample(args=(Fill(shape=(3,)),), kwargs={"axis": 1}, raises=ShapeError)


_LINES: tuple[tuple[Shape, int], ...] = (
    ((1,), 0), ((2,), 0), ((7,), -1), ((8,), 0), ((2, 3, 4), 1), ((0, 5), 1), ((3, 101), -1)
)  # fmt: skip


def _transform(back: bool = False, **attrs: Any) -> Iterator[Sample]:
    """Yield the samples of a transform; ``back`` is for the one that takes half a spectrum and a length."""
    for shape, axis in _LINES:
        for norm in ("backward", "ortho", "forward"):
            lengths = [n for n in (2 * shape[axis] - 2, 2 * shape[axis] - 1) if n > 0] if back else [None]
            for n in lengths:
                kwargs = {"axis": axis, "norm": norm, **attrs, **({} if n is None else {"n": n})}
                yield Sample(args=(Fill(shape=shape, low=-2, high=2),), kwargs=kwargs)
    attrs |= {"n": 4} if back else {}
    yield Sample(args=(Fill(shape=(2, 3)),), kwargs={"axis": 2, **attrs}, raises=ShapeError)
    attrs["axis"] = 1
    yield Sample(args=(Fill(shape=(2, 0)),), kwargs=attrs, raises=ShapeError, note="of nothing")


def _both_ways() -> Iterator[Sample]:
    for inverse in (False, True):
        yield from _transform(inverse=inverse)


SAMPLES: dict[str, Callable[[], Iterable[Sample]]] = {
    "solve": partial(_systems, "regular"), "solve_triangular": _triangular, "cholesky": _cholesky,
    "inv": partial(_of_square, singular=True), "det": _of_square, "slogdet": _slogdet, "adjugate": _of_square,
    "lu_factor": _of_any, "qr": _qr, "svd": _svd, "svdvals": _svdvals, "pinv": _pinv, "eigh": _hermitian,
    "eigvalsh": _hermitian, "eig": _unordered, "eigvals": _unordered,
    "matrix_exp": partial(_of_square, ""), "vector_norm": _vector_norm, "fft": _both_ways,
    "rfft": _transform, "irfft": partial(_transform, back=True),
}  # fmt: skip
