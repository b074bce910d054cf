"""What is drawn for factorizations, norms and Fourier transforms: matrices that are far from singular."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st
from tensorbus.dtypes import definition as dt
from tensorbus.dtypes.definition import DType
from tensorbus.ops.lazy_families import load_all

from case import Case, Draw, Sample
from samples import Array, Kind, arrays, native, shapes

load_all()


def _adjoint(x: Array) -> Array:
    return np.conj(np.swapaxes(x, -1, -2))


def _regular(draw: Draw, dtype: DType, *lead: int) -> Array:
    """Draw square matrices whose diagonal outweighs the rest."""
    n = draw(st.integers(0, 4))
    return draw(arrays((*lead, n, n), dtype, "unit")) + (2 * n * np.eye(n)).astype(native(dtype))


def _lead(draw: Draw) -> tuple[int, ...]:
    return draw(shapes(0, 2))


def _square(draw: Draw, dtype: DType) -> Sample:
    return Sample((_regular(draw, dtype, *_lead(draw)),))


def _hermitian(draw: Draw, dtype: DType) -> Sample:
    x = _regular(draw, dtype, *_lead(draw))
    return Sample(((x + _adjoint(x)) / 2,))


def _general(draw: Draw, dtype: DType) -> Sample:
    return Sample((draw(arrays((*_lead(draw), *draw(shapes(2, 2))), dtype, "near")),))


def _in_ways(name: str, *values: object) -> Callable[[Draw, DType], Sample]:
    def samples(draw: Draw, dtype: DType) -> Sample:
        return Sample(_general(draw, dtype).operands, {name: draw(st.sampled_from(values))})

    return samples


def _triangular_matrices(draw: Draw, dtype: DType) -> Sample:
    """Draw triangles with 1, 2, ... on the diagonal: their eigenvalues, in this order."""
    x = draw(arrays((*_lead(draw), 4, 4), dtype, "unit"))
    return Sample((np.triu(x, 1) + np.diag(np.arange(1, 5)).astype(x.dtype),))


def _systems(draw: Draw, dtype: DType) -> Sample:
    lead = _lead(draw)
    a = _regular(draw, dtype, *lead)
    b_lead = tuple(1 if draw(st.booleans()) else n for n in lead[draw(st.integers(0, len(lead))) :])
    return Sample((a, draw(arrays((*b_lead, a.shape[-1], draw(st.integers(0, 3))), dtype, "near"))))


def _triangular_systems(draw: Draw, dtype: DType) -> Sample:
    upper, unit = draw(st.booleans()), draw(st.booleans())
    return Sample(_systems(draw, dtype).operands, {"upper": upper, "unit_diagonal": unit})


def _exponents(draw: Draw, dtype: DType) -> Sample:
    n = draw(st.integers(0, 4))
    return Sample((draw(arrays((*_lead(draw), n, n), dtype, "unit")) * draw(st.sampled_from([0.1, 1, 3])),))


def _pseudo(draw: Draw, dtype: DType) -> Sample:
    """Draw wide, tall and square matrices with a diagonal that outweighs the rest."""
    m, n = draw(st.tuples(st.integers(0, 4), st.integers(0, 4)))
    x = draw(arrays((*_lead(draw), m, n), dtype, "unit")) + (8 * np.eye(m, n)).astype(native(dtype))
    return Sample((x, np.full((1, 1), 1e-3, native(dt.real_of(dtype)))))


def _norms(draw: Draw, dtype: DType) -> Sample:
    x = draw(arrays(shapes(least=1), dtype, "small"))
    axes = st.none() | st.lists(st.integers(0, max(x.ndim - 1, 0)), unique=True, max_size=x.ndim).map(tuple)
    orders = st.sampled_from([2, 1, 0, 3, 0.5, -1, -2, float("inf"), -float("inf")])
    return Sample((x,), {"axis": draw(axes), "keepdims": draw(st.booleans()), "ord": draw(orders)})


def _lines(kind: Kind = "near") -> Callable[[Draw, DType], Sample]:
    def samples(draw: Draw, dtype: DType) -> Sample:
        x = draw(arrays(shapes(1, 3, 1), dtype, kind))
        norm = draw(st.sampled_from(["backward", "ortho", "forward"]))
        return Sample((x,), {"axis": draw(st.integers(-x.ndim, x.ndim - 1)), "norm": norm})

    return samples


def _both_ways(draw: Draw, dtype: DType) -> Sample:
    sample = _lines()(draw, dtype)
    return Sample(sample.operands, {**sample.attrs, "inverse": draw(st.booleans())})


def _halves(draw: Draw, dtype: DType) -> Sample:
    sample = _lines()(draw, dtype)
    m = sample.operands[0].shape[sample.attrs["axis"]]
    n = draw(st.sampled_from([max(2 * m - 2, 1), 2 * m - 1]))
    return Sample(sample.operands, {**sample.attrs, "n": n})


LINALG: dict[str, Case] = {
    "solve": Case(samples=_systems),
    "solve_triangular": Case(samples=_triangular_systems),
    "inv": Case(samples=_square),
    "det": Case(samples=_square),
    "slogdet": Case(samples=_square),
    "adjugate": Case(samples=_square),
    "cholesky": Case(samples=_hermitian),
    "lu_factor": Case(samples=_general),
    "qr": Case(samples=_in_ways("mode", "reduced", "complete")),
    "svd": Case(samples=_in_ways("full_matrices", False, True)),
    "svdvals": Case(samples=_general),
    "pinv": Case(samples=_pseudo),
    "eigh": Case(samples=_hermitian),
    "eigvalsh": Case(samples=_hermitian),
    "eig": Case(samples=_triangular_matrices),
    "eigvals": Case(samples=_triangular_matrices),
    "matrix_exp": Case(samples=_exponents),
    "vector_norm": Case(samples=_norms),
    "fft": Case(samples=_both_ways),
    "rfft": Case(samples=_lines()),
    "irfft": Case(samples=_halves),
}  # fmt: skip
