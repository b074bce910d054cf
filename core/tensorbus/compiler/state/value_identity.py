"""Exact identity of values, where ``==`` takes 1, 1.0 and True for equal.

No code of the user's runs here, other than ``==`` and ``hash`` of keys of dicts, which a dict calls too.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from contextlib import suppress
from operator import is_
from types import MemberDescriptorType
from typing import Any, Final

from ...dispatch.modes import CompositeValue, is_value_mode
from ...tensor.tensor import Tensor

_SCALARS: Final = frozenset(
    {type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented), range}
)
_ABSENT: Final = object()


def exact_isinstance(x: Any, kinds: type | tuple[type, ...]) -> bool:
    """Return whether ``x`` is an instance by its type alone: ``isinstance`` would read ``__class__`` too."""
    return issubclass(type(x), kinds)


def is_scalar(x: Any) -> bool:
    """Return whether ``x`` is immutable and known by its value."""
    kind = type(x)
    if kind is slice:
        return is_scalar(x.start) and is_scalar(x.stop) and is_scalar(x.step)
    return kind in _SCALARS or (
        kind.__module__ == "numpy" and getattr(x, "shape", 0) == () and not hasattr(kind, "__setitem__")
    )


def identity_key(x: Any) -> Any:
    """Return a key that differs for any other object in the place of ``x``."""
    return (type(x), repr(x)) if is_scalar(x) else id(x)


def same_items(items: Iterable[Any], expected: Sequence[Any]) -> bool:
    """Return whether keys of a dict, or items of a set, are exactly those known, in their order."""
    listed = [*items]
    if len(listed) != len(expected):
        return False
    return all(map(is_, listed, expected)) or all(
        map(_is_same_item, listed, expected)
    )  # mostly the very same


def _is_same_item(key: Any, expected: Any) -> bool:
    if key is expected:
        return True
    if type(key) is not type(expected) or exact_isinstance(key, (Tensor, type, enum.Enum)):
        return False
    if is_scalar(key):
        return repr(key) == repr(expected)
    if type(key) in (tuple, frozenset):
        return same_items(key, expected)
    return (
        hash(key) == hash(expected)
        and bool(key == expected)
        and same_items(_attribute_items(key), _attribute_items(expected))
    )


def _attribute_items(key: Any) -> list[tuple[str, Any]]:
    """Return the attributes of a key: equal keys may differ in attributes that ``==`` does not compare."""
    attributes = [*getattr(key, "__dict__", {}).items()]
    for base in type(key).__mro__:
        for name, slot in vars(base).items():
            if type(slot) is MemberDescriptorType:
                with suppress(AttributeError):
                    attributes.append((name, slot.__get__(key)))
    return attributes


class DictItems:
    """The items of a dict, read without ``__missing__``: a ``defaultdict`` would add an absent one."""

    __slots__ = ("_of",)

    def __init__(self, of: dict[Any, Any]) -> None:
        self._of = of

    def __getitem__(self, key: Any) -> Any:
        value = dict.get(self._of, key, _ABSENT)
        if value is _ABSENT:
            raise KeyError(key)
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        self._of[key] = value


def is_transformed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether an argument is a tensor of a transform."""
    return any(exact_isinstance(x, Tensor) and stands_for_others(x) for x in (*args, *kwargs.values()))


def stands_for_others(x: Tensor) -> bool:
    """Return whether a tensor's value lives no longer than a call of a transform."""
    return is_value_mode(x.device.type) and not isinstance(x._value, CompositeValue)
