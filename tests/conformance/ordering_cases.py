"""What is drawn for sorting, searching, scans, and reading and writing along an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tensorbus.dtypes import definition as dt
from tensorbus.dtypes.definition import DType

from case import Case, Draw, Sample
from samples import Kind, arrays, shapes

SHAPES = shapes(1)


def _along(kind: Kind, **choices: Any) -> Callable[[Draw, DType], Sample]:
    def samples(draw: Draw, dtype: DType) -> Sample:
        x = draw(arrays(SHAPES, dtype, kind))
        attrs = {name: draw(st.sampled_from(values)) for name, values in choices.items()}
        return Sample((x,), {"axis": draw(st.integers(-x.ndim, x.ndim - 1)), **attrs})

    return samples


def _part_samples(draw: Draw, dtype: DType) -> Sample:
    x = draw(arrays(SHAPES, dtype, "any"))
    axis = draw(st.integers(-x.ndim, x.ndim - 1))
    start = draw(st.integers(0, x.shape[axis]))
    count = draw(st.integers(0, x.shape[axis] - start))
    attrs = {"axis": axis, "start": start, "count": count, "descending": draw(st.booleans())}
    return Sample((x,), attrs)


def _take_samples(draw: Draw, dtype: DType) -> Sample:
    x = draw(arrays(shapes(1, least=1), dtype))
    axis = draw(st.integers(0, x.ndim - 1))
    length = draw(st.integers(0, 4))
    shape = tuple(length if k == axis else draw(st.sampled_from((1, n))) for k, n in enumerate(x.shape))
    top = x.shape[axis]
    indices = draw(hnp.arrays(np.int64, shape, elements=st.integers(-top, top - 1)))
    if draw(st.booleans()):  # lengths of 1 broadcast, whichever has them
        x = x[tuple(slice(None) if k == axis else slice(0, 1) for k in range(x.ndim))]
        shape = tuple(
            max(n, m) if k != axis else m for k, (n, m) in enumerate(zip(x.shape, shape, strict=True))
        )
        indices = np.broadcast_to(indices, shape)
    return Sample((x, np.ascontiguousarray(indices)), {"axis": draw(st.sampled_from((axis, axis - x.ndim)))})


def modes(dtype: DType) -> tuple[str, ...]:
    """Return the modes of scatter that a dtype has."""
    if dtype is dt.bool_:
        return ("set", "add")
    return ("set", "add", "multiply") if dtype.is_complex else ("set", "add", "multiply", "min", "max")


def _put_samples(draw: Draw, dtype: DType) -> Sample:
    x = draw(arrays(shapes(1, least=1), dtype, "small"))
    axis, length = draw(st.integers(0, x.ndim - 1)), draw(st.integers(0, 4))
    shape = tuple(length if k == axis else n for k, n in enumerate(x.shape))
    top = x.shape[axis]
    indices = draw(hnp.arrays(np.int64, shape, elements=st.integers(-top, top - 1)))
    values = draw(arrays(shape, dtype, "small"))
    return Sample((x, indices, values), {"axis": axis, "mode": draw(st.sampled_from(modes(dtype)))})


def _search_samples(draw: Draw, dtype: DType) -> Sample:
    lead = draw(st.sampled_from([(), (), (2,), (2, 1)]))
    line = draw(arrays((*lead, draw(st.integers(0, 9))), dtype))
    # NumPy puts a NaN of bfloat16 or of 8 bits anywhere.
    wide = np.float32 if dtype.itemsize <= 2 and dtype.is_floating else line.dtype
    line = np.sort(line.astype(wide), axis=-1).astype(line.dtype)
    shape = (*lead, draw(st.integers(0, 4))) if lead else draw(shapes())
    return Sample((line, draw(arrays(shape, dtype))), {"side": draw(st.sampled_from(("left", "right")))})


ORDERING: dict[str, Case] = {
    "sort": Case(samples=_along("any", descending=(False, True))),
    "argsort": Case(samples=_along("any", descending=(False, True))),
    "argsort_part": Case(samples=_part_samples),
    "cumulative_prod": Case(samples=_along("small")),
    "cumulative_max": Case(samples=_along("any")),
    "cumulative_min": Case(samples=_along("any")),
    "logcumsumexp": Case(samples=_along("moderate")),
    "take_along_axis": Case(samples=_take_samples),
    "scatter_along_axis": Case(samples=_put_samples),
    "searchsorted": Case(samples=_search_samples),
}  # fmt: skip
