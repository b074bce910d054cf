"""Tensors cut at places, put on a diagonal, or combined in all ways. Names are PyTorch's."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from ...dtypes.promotion import promote
from ...errors import ArgumentError, ShapeError
from ...tracing.sym_int import index
from ..call_errors import with_form
from ..creation.creation import full, meshgrid
from ..elementwise.where_cast import cast
from ..indexing.gather_scatter import gather
from ..reduction.scan import cut
from .family import as_shape, normalize_axis
from .movement import concat, pad, reshape, stack
from .tile_roll_split import check_parts


@with_form
def tensor_split(x: Any, indices_or_sections: int | Sequence[int], /, axis: int = 0) -> tuple[Any, ...]:
    """Return the parts of ``x`` along ``axis``: so many, as equal as can be, or cut before each index.

    The first parts are one longer where the length does not divide. Indices may count from the end or lie
    beyond it, as in a Python slice. A tensor of indices is read, which waits for the device. Raises
    ``ArgumentError`` for a number of parts below 1.

    >>> import tensorbus as tb
    >>> [part.tolist() for part in tb.tensor_split(tb.arange(5), 2)]
    [[0, 1, 2], [3, 4]]
    >>> [part.tolist() for part in tb.tensor_split(tb.arange(5), (1, 3))]
    [[0], [1, 2], [3, 4]]
    """
    place = normalize_axis("tensor_split", axis, len(x.shape))
    length = x.shape[place]
    sections: Any = indices_or_sections
    if hasattr(sections, "shape"):
        if len(sections.shape) > 1:
            raise ShapeError(f"tensor_split: indices have at most 1 dimension, got shape {sections.shape}.")
        sections = sections.tolist()
    if hasattr(sections, "__index__"):
        count = index(sections)
        check_parts("tensor_split", count)
        size, longer = length // count, length % count
        ends = [(k + 1) * size + min(k + 1, longer) for k in range(count)]
        starts = [0, *ends[:-1]]
    else:
        ends = [slice(0, k).indices(length)[1] for k in as_shape("tensor_split", sections)]
        starts, ends = [0, *ends], [*ends, length]
    return tuple(cut(x, place, start, end) for start, end in zip(starts, ends, strict=True))


def _split_method(name: str, axis: int, least: int) -> Any:
    def function(x: Any, indices_or_sections: int | Sequence[int], /) -> tuple[Any, ...]:
        rank = len(x.shape)
        if rank < least:
            raise ShapeError(f"{name}: at least {least} dimension(s) are needed, got shape {x.shape}.")
        place = min(axis, rank - 1)
        sections: Any = indices_or_sections
        if hasattr(sections, "__index__"):
            count = index(sections)
            check_parts(name, count)
            if x.shape[place] % count:
                raise ShapeError(
                    f"{name}: {count} equal parts are not possible along axis {place} of shape {x.shape};"
                    f" tensor_split makes some one longer."
                )
        return tensor_split(x, sections, axis=place)

    function.__name__ = function.__qualname__ = name
    return with_form(function)


hsplit = _split_method("hsplit", 1, 1)
hsplit.__doc__ = """Return the parts of ``x`` along axis 1: so many equal ones, or cut before each index.

    What has one axis is cut along that. Raises ``ShapeError`` where the parts would not be equal, or for a
    single number, ``ArgumentError`` for a number of parts below 1. See ``tensor_split``.

    >>> import tensorbus as tb
    >>> [part.tolist() for part in tb.hsplit(tb.asarray([[1, 2], [3, 4]]), 2)]
    [[[1], [3]], [[2], [4]]]
    """
vsplit = _split_method("vsplit", 0, 2)
vsplit.__doc__ = """Return the parts of ``x``, of 2 axes or more, along axis 0: see ``hsplit``."""
dsplit = _split_method("dsplit", 2, 3)
dsplit.__doc__ = """Return the parts of ``x``, of 3 axes or more, along axis 2: see ``hsplit``."""


@with_form
def block_diag(*xs: Any) -> Any:
    """Return the matrix that has the given ones along its diagonal, and zeros elsewhere.

    Vectors and single numbers count as matrices of one row; of none there is one row of no elements. The
    matrices may come in one sequence. Raises ``ShapeError`` for more than 2 dimensions.

    >>> import tensorbus as tb
    >>> tb.block_diag(tb.asarray([[1, 2]]), tb.asarray(3)).tolist()
    [[1, 2, 0], [0, 0, 3]]
    """
    matrices = tuple(xs[0]) if len(xs) == 1 and isinstance(xs[0], (list, tuple)) else xs
    if not matrices:
        return full((1, 0), 0.0)
    if any(len(x.shape) > 2 for x in matrices):
        raise ShapeError(f"block_diag: matrices are needed, got shapes {[x.shape for x in matrices]}.")
    blocks = [x if len(x.shape) == 2 else reshape(x, (1, x.size)) for x in matrices]
    width, before, rows = sum(x.shape[1] for x in blocks), 0, []
    for x in blocks:
        value = False if x.dtype.kind == "bool" else 0
        rows.append(pad(x, (0, before), (0, width - before - x.shape[1]), value))
        before += x.shape[1]
    return concat(rows, axis=0)


@with_form
def cartesian_prod(*xs: Any) -> Any:
    """Return all combinations of one element of each 1-dimensional tensor, a row each, the last one fastest.

    One tensor comes back as it is. Raises ``ShapeError`` for other ranks, or no tensor.

    >>> import tensorbus as tb
    >>> tb.cartesian_prod(tb.asarray([1, 2]), tb.asarray([3, 4])).tolist()
    [[1, 3], [1, 4], [2, 3], [2, 4]]
    """
    if not xs or any(len(x.shape) != 1 for x in xs):
        raise ShapeError(
            f"cartesian_prod: tensors of 1 dimension are needed, at least one, got shapes"
            f" {[x.shape for x in xs]}."
        )
    if len(xs) == 1:
        return xs[0].clone()
    dtype = xs[0].dtype
    for x in xs[1:]:
        dtype = promote(dtype, x.dtype)
    grids = meshgrid(*(x if x.dtype is dtype else cast(x, dtype) for x in xs), indexing="ij")
    return stack([reshape(g, (g.size,)) for g in grids], axis=-1)


@with_form
def combinations(x: Any, /, r: int = 2, with_replacement: bool = False) -> Any:
    """Return the combinations of ``r`` elements of a 1-dimensional tensor, a row each, in order of places.

    ``itertools.combinations`` of the elements, or ``combinations_with_replacement``; of no elements each,
    none. Raises ``ShapeError`` for another rank, ``ArgumentError`` for ``r`` below 0.

    >>> import tensorbus as tb
    >>> tb.combinations(tb.asarray([1, 2, 3])).tolist()
    [[1, 2], [1, 3], [2, 3]]
    """
    if len(x.shape) != 1:
        raise ShapeError(f"combinations: a tensor of 1 dimension is needed, got shape {x.shape}.")
    taken = index(r)
    if taken < 0:
        raise ArgumentError(f"combinations: r must be >= 0, got {r}.")
    if not taken:
        return cut(x, 0, 0, 0)
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    places = [list(chosen) for chosen in choose(range(int(x.shape[0])), taken)]
    if not places:
        return reshape(cut(x, 0, 0, 0), (0, taken))
    return gather(x, x.tensor_like_device(places))
