"""Parts of values that more than one tensor has: a run writes over no memory of theirs.

What a run replaces it writes over where nobody else refers to it, which is what Python counts. Of a value of
parts, as that of a distributed tensor, the value and the parts may be shared as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from sys import getrefcount
from types import SimpleNamespace
from typing import Any, Final


def _references(x: Any) -> int:
    """Return how many references there are to the value of a tensor, or to the part that has the most."""
    value = x._value
    most = getrefcount(value)
    for name in value.PARTS:
        part = getattr(value, name)
        most = max(most, getrefcount(part))
    return most


def _counts(objects: Iterable[Any], of: Callable[[Any], Any]) -> list[int]:
    """Return how many references there are to what ``of`` takes from each object."""
    return [*map(getrefcount, map(of, objects))]


_VALUE, _KIND = attrgetter("_value"), attrgetter("_value.__class__")
_TENSOR: Final = SimpleNamespace(_value=SimpleNamespace(PARTS=("part",), part=SimpleNamespace()))
_UNSHARED: Final = _references(_TENSOR)
_UNSHARED_COUNT: Final = _counts([_TENSOR], _VALUE)[0]


def shared_parts(tensors: Sequence[Any]) -> list[Any]:
    """Return what the parts of those tensors hold whose values others refer to; held, it is not alone.

    >>> from types import SimpleNamespace as Value
    >>> x = Value(_value=Value(PARTS=("part",), part=Value(_value="elements")))
    >>> shared_parts([x])
    []
    >>> part = x._value.part
    >>> shared_parts([x])
    ['elements']
    """
    alone = [_UNSHARED_COUNT] * len(tensors)
    if len({*map(_KIND, tensors)}) == 1 and _counts(tensors, _VALUE) == alone:
        ways = [attrgetter(f"_value.{name}") for name in tensors[0]._value.PARTS]
        if all(_counts(tensors, way) == alone for way in ways):
            return []
    return [
        getattr(x._value, name)._value
        for x in tensors if _references(x) > _UNSHARED
        for name in x._value.PARTS
    ]  # fmt: skip
