"""What is drawn for reductions, running sums and matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from tensorbus.dtypes import definition as dt
from tensorbus.dtypes.definition import DType

from case import Case, Draw, Sample
from samples import Kind, arrays, shapes


def _axes(draw: Draw, rank: int) -> Any:
    if not rank:
        return draw(st.none() | st.just(()))
    return draw(
        st.none() | st.integers(-rank, rank - 1) | st.lists(st.integers(0, rank - 1), unique=True).map(tuple)
    )


def _over(kind: Kind, *, least: int = 0) -> Callable[[Draw, DType], Sample]:
    def samples(draw: Draw, dtype: DType) -> Sample:
        x = draw(arrays(shapes(least=least), dtype, kind))
        return Sample((x,), {"axis": _axes(draw, x.ndim), "keepdims": draw(st.booleans())})

    return samples


def _along(kind: Kind, *, least: int = 0) -> Callable[[Draw, DType], Sample]:
    def samples(draw: Draw, dtype: DType) -> Sample:
        x = draw(arrays(shapes(1, least=least), dtype, kind))
        return Sample((x,), {"axis": draw(st.integers(-x.ndim, x.ndim - 1))})

    return samples


def _arg_samples(draw: Draw, dtype: DType) -> Sample:
    x = draw(arrays(shapes(1, least=1), dtype))
    whole = draw(st.booleans())
    axis = None if whole else draw(st.integers(-x.ndim, x.ndim - 1))
    return Sample((x,), {"axis": axis, "keepdims": not whole and draw(st.booleans())})


def _matmul_samples(draw: Draw, dtype: DType) -> Sample:
    lead = draw(shapes(0, 2))
    m, k, n = draw(st.tuples(*(st.integers(0, 4),) * 3))
    x = draw(arrays((*lead, m, k), dtype, "moderate"))
    drop = draw(st.integers(0, len(lead)))
    y_lead = tuple(1 if draw(st.booleans()) else length for length in lead[drop:])
    return Sample((x, draw(arrays((*y_lead, k, n), dtype, "moderate"))))


def _affine_samples(draw: Draw, dtype: DType) -> Sample:
    product = _matmul_samples(draw, dtype)
    x, y = product.operands
    *lead, rows, columns = (*x.shape[:-1], y.shape[-1])
    shapes = ((columns,), (rows, columns), (rows, 1), (*lead, rows, columns))
    chosen = draw(st.lists(st.sampled_from(shapes), max_size=2))
    return Sample((x, y, *(draw(arrays(shape, dtype, "moderate")) for shape in chosen)))


def _scaled_samples(draw: Draw, dtype: DType) -> Sample:
    product = _matmul_samples(draw, dtype)
    x, y = product.operands
    rows, columns = draw(st.sampled_from([(), (x.shape[-2], 1)])), draw(st.sampled_from([(), (y.shape[-1],)]))
    scales = tuple(draw(arrays(shape, dt.float32, "small")) for shape in (rows, columns))
    return Sample((x, y, *scales), {"dtype": draw(st.sampled_from((dt.float32, dt.float16)))})


REDUCTIONS: dict[str, Case] = {
    "sum": Case(samples=_over("moderate")),
    "prod": Case(samples=_over("small")),
    "max": Case(samples=_over("any", least=1)),
    "min": Case(samples=_over("any", least=1)),
    "any": Case(samples=_over("any"), dtypes=dt.ALL),
    "all": Case(samples=_over("any"), dtypes=dt.ALL),
    "mean": Case(samples=_over("moderate")),
    "argmax": Case(samples=_arg_samples),
    "argmin": Case(samples=_arg_samples),
    "cumulative_sum": Case(samples=_along("moderate")),
    "matmul": Case(samples=_matmul_samples),
    "affine": Case(samples=_affine_samples),
    "scaled_matmul": Case(samples=_scaled_samples),
    "softmax": Case(samples=_along("moderate")),
    "log_softmax": Case(samples=_along("moderate")),
}  # fmt: skip
