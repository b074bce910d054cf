"""Tensors beside one another under NumPy's and PyTorch's names, which ask no axis.

All are composed of ``concat`` and ``stack``; scalars and vectors are given the axes that they lack.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...errors import ShapeError
from ..call_errors import with_form
from .movement import concat, expand_dims, flatten, reshape


def _deepened(name: str, xs: Sequence[Any], deepen: Callable[[Any], Any]) -> list[Any]:
    """Return the tensors with the axes that they need. Raises ``ShapeError`` where there are none."""
    if not len(xs):
        raise ShapeError(f"{name}: needs at least one tensor, got an empty sequence.")
    return [deepen(x) for x in xs]


@with_form
def atleast_1d(x: Any, /) -> Any:
    """Return ``x``, a single number with an axis of length 1.

    >>> import tensorbus as tb
    >>> tb.atleast_1d(tb.asarray(3)).tolist()
    [3]
    """
    return x if x.shape else flatten(x)


@with_form
def atleast_2d(x: Any, /) -> Any:
    """Return ``x``, a vector or a single number as a matrix of one row.

    >>> import tensorbus as tb
    >>> tb.atleast_2d(tb.asarray([1, 2])).tolist()
    [[1, 2]]
    """
    return x if len(x.shape) > 1 else reshape(x, (1, x.size))


@with_form
def atleast_3d(x: Any, /) -> Any:
    """Return ``x``, a matrix with a third axis of length 1 and a vector with another before it as well.

    >>> import tensorbus as tb
    >>> tb.atleast_3d(tb.asarray([1, 2])).shape
    (1, 2, 1)
    """
    return x if len(x.shape) > 2 else expand_dims(atleast_2d(x), -1)


def _columns(x: Any) -> Any:
    return x if len(x.shape) > 1 else reshape(x, (x.size, 1))


@with_form
def vstack(xs: Sequence[Any], /) -> Any:
    """Return the tensors one below another: along the first axis, with vectors as rows.

    Raises ``ShapeError`` for tensors that do not agree in all other axes.

    >>> import tensorbus as tb
    >>> tb.vstack([tb.asarray([1, 2]), tb.asarray([[3, 4], [5, 6]])]).tolist()
    [[1, 2], [3, 4], [5, 6]]
    """
    return concat(_deepened("vstack", xs, atleast_2d), axis=0)


@with_form
def hstack(xs: Sequence[Any], /) -> Any:
    """Return the tensors side by side: along the second axis, vectors along their only one.

    Raises ``ShapeError`` for tensors that do not agree in all other axes.

    >>> import tensorbus as tb
    >>> tb.hstack([tb.asarray([1, 2]), tb.asarray([3])]).tolist()
    [1, 2, 3]
    >>> tb.hstack([tb.ones((2, 1)), tb.zeros((2, 3))]).shape
    (2, 4)
    """
    tensors = _deepened("hstack", xs, atleast_1d)
    return concat(tensors, axis=0 if len(tensors[0].shape) == 1 else 1)


@with_form
def dstack(xs: Sequence[Any], /) -> Any:
    """Return the tensors one behind another: along a third axis, which matrices and vectors are given.

    Raises ``ShapeError`` for tensors that do not agree in all other axes.

    >>> import tensorbus as tb
    >>> tb.dstack([tb.asarray([1, 2]), tb.asarray([3, 4])]).tolist()
    [[[1, 3], [2, 4]]]
    """
    return concat(_deepened("dstack", xs, atleast_3d), axis=2)


@with_form
def column_stack(xs: Sequence[Any], /) -> Any:
    """Return the tensors side by side along the second axis, with vectors as columns.

    Raises ``ShapeError`` for tensors that do not agree in all other axes.

    >>> import tensorbus as tb
    >>> tb.column_stack([tb.asarray([1, 2]), tb.asarray([3, 4])]).tolist()
    [[1, 3], [2, 4]]
    """
    return concat(_deepened("column_stack", xs, _columns), axis=1)
