"""Nested Python sequences as a shape and flat numbers, with the dtype that they ask for.

Parts may be arrays, tensors and NumPy's scalars, which know their dtype. Python's numbers are weak beside
them, as everywhere.
"""

from __future__ import annotations

from math import prod
from typing import Any

from ..dtypes import definition as dt
from ..dtypes.definition import DType, Scalar, plain
from ..dtypes.promotion import common_dtype, scalar_dtype
from ..errors import DtypeError, ShapeError
from ..ops.definition import MAX_RANK, Shape

_WEAK = frozenset({bool, int, float, complex})


def numbers(obj: Any) -> tuple[Shape, list[Scalar], DType]:
    """Return shape, numbers in C order and dtype of a number or nested sequences.

    Raises ``ShapeError`` for ragged ones and ``DtypeError`` for elements that are no numbers.

    >>> numbers([[1, 2.5]])
    ((1, 2), [1, 2.5], tensorbus.float32)
    """
    known: set[DType] = set()
    shape, flat = _flatten(obj, 0, known)
    kinds = {type(x) for x in flat}
    if not kinds <= _WEAK:
        flat = [_number(x, known) for x in flat]
        kinds = {type(x) for x in flat}
    return shape, flat, _common(kinds, known, flat)


def _common(kinds: set[type], known: set[DType], flat: list[Any]) -> DType:
    if known:
        return common_dtype([*sorted(known, key=lambda d: d.name), *kinds])
    top: type = next((k for k in (complex, float, int, bool) if k in kinds), float)
    common = scalar_dtype(top(0))
    wide = common is dt.int64 and flat and max(flat) > dt.integer_range(dt.int64)[1]
    return dt.uint64 if wide else common


def _number(x: Any, known: set[DType]) -> Scalar:
    x = plain(x)
    number: Scalar
    if type(x) in _WEAK:
        number = x
        return number
    if hasattr(x, "item") and getattr(x, "shape", None) == ():
        _note(x, known)
        x = x.item()
    if type(x) not in _WEAK:
        raise DtypeError(
            f"asarray: {type(x).__name__} is no number; tensors hold bools, ints, floats, complex."
        )
    number = x
    return number


def _note(x: Any, known: set[DType]) -> None:
    """Remember the dtype of a part, where it is one that tensors have."""
    dtype = dt.BY_NAME.get(getattr(getattr(x, "dtype", None), "name", ""))
    if dtype is not None:
        known.add(dtype)


def _flatten(obj: Any, depth: int, known: set[DType]) -> tuple[Shape, list[Any]]:
    if not isinstance(obj, (list, tuple, range)):
        if not getattr(obj, "shape", ()) or not hasattr(obj, "tolist"):
            return (), [obj]
        _note(obj, known)
        obj = obj.tolist()
        known = set()  # the Python numbers of an array are of its dtype
    if depth >= MAX_RANK:
        raise ShapeError(
            f"asarray: a sequence is nested more than {MAX_RANK} deep; a tensor has at most so many axes."
        )
    parts = [_flatten(x, depth + 1, known) for x in obj]
    shapes = {shape for shape, _ in parts}
    if len(shapes) > 1:
        raise ShapeError(
            f"asarray: a nested sequence has parts of shapes {sorted(shapes)}; they must be equal."
        )
    inner = shapes.pop() if shapes else ()
    return (len(parts), *inner), [x for _, flat in parts for x in flat]


def arranged(flat: list[Any], shape: Shape) -> Any:
    """Return the elements in C order as nested lists of this shape; the only one itself for no axes.

    >>> arranged([1, 2, 3, 4], (2, 2)), arranged([5], ())
    ([[1, 2], [3, 4]], 5)
    """
    if not shape:
        return flat[0]
    if len(shape) == 1:
        return flat
    block = prod(shape[1:])
    return [arranged(flat[k * block : (k + 1) * block], shape[1:]) for k in range(shape[0])]
