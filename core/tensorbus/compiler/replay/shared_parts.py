"""Parts of values that more than one tensor has: a run writes over no memory of theirs.

What a run replaces it writes over where nobody else refers to it, which is what Python counts. Of a value of
parts, as that of a distributed tensor, the value and the parts may be shared as well.
"""

from __future__ import annotations

from collections.abc import Iterable
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


_UNSHARED: Final = _references(
    SimpleNamespace(_value=SimpleNamespace(PARTS=("part",), part=SimpleNamespace()))
)


def shared_parts(tensors: Iterable[Any]) -> list[Any]:
    """Return what the parts of those tensors hold whose values others refer to; held, it is not alone.

    >>> from types import SimpleNamespace as Value
    >>> x = Value(_value=Value(PARTS=("part",), part=Value(_value="elements")))
    >>> shared_parts([x])
    []
    >>> part = x._value.part
    >>> shared_parts([x])
    ['elements']
    """
    return [
        getattr(x._value, name)._value
        for x in tensors if _references(x) > _UNSHARED
        for name in x._value.PARTS
    ]  # fmt: skip
