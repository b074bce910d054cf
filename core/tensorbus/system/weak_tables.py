"""Weak sets and tables whose upkeep runs no Python, past interrupts.

Those of the standard library forget what is gone in a callback written in Python; a Ctrl-C that arrives
there is printed and dropped. Here the callback is a method of a builtin set or dict: nothing can be
interrupted. Keys and members are told apart by identity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final, Generic, TypeVar, overload
from weakref import ref

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")


def forget_when_gone(x: K, entries: dict[int, Any]) -> ref[K]:
    """Return a weak reference to ``x`` that removes the entry of its ``id`` when ``x`` is gone.

    >>> class Node: pass
    >>> node = Node()
    >>> seen = {id(node): "here"}
    >>> watch = forget_when_gone(node, seen)
    >>> del node
    >>> seen
    {}
    """
    forget: Callable[[Any], Any] = partial(
        entries.pop, id(x)
    )  # the reference is what ``pop`` returns without one
    return ref(x, forget)


class WeakTable(Generic[K, V]):
    """Values of keys while these live.

    >>> class Node: pass
    >>> node, ages = Node(), WeakTable()
    >>> ages[node] = 3
    >>> ages.get(node), len(ages)
    (3, 1)
    >>> del node
    >>> len(ages)
    0
    """

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: Final[dict[int, tuple[ref[K], V]]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __setitem__(self, key: K, value: V) -> None:
        self._entries[id(key)] = forget_when_gone(key, self._entries), value

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: D) -> V | D: ...
    def get(self, key: K, default: Any = None) -> Any:
        """Return the value of a key, or the default."""
        entry = self._entries.get(id(key))
        return default if entry is None else entry[1]

    def setdefault(self, key: K, value: V) -> V:
        """Return the value of a key, which becomes this one where there is none."""
        return self._entries.setdefault(id(key), (forget_when_gone(key, self._entries), value))[1]

    def pop(self, key: K, default: D) -> V | D:
        """Remove a key; return its value, or the default."""
        entry = self._entries.pop(id(key), None)
        return default if entry is None else entry[1]


class WeakSet(Generic[K]):
    """Members while these live. Iterates over those of the moment at which it begins."""

    __slots__ = ("_references",)

    def __init__(self) -> None:
        self._references: Final[dict[int, ref[K]]] = {}

    def __len__(self) -> int:
        return len(self._references)

    def __iter__(self) -> Iterator[K]:
        live = (reference() for reference in list(self._references.values()))
        return iter([x for x in live if x is not None])

    def add(self, x: K) -> None:
        """Make ``x`` a member."""
        self._references[id(x)] = forget_when_gone(x, self._references)

    def update(self, members: Iterable[K]) -> None:
        """Make all of these members."""
        for x in members:
            self.add(x)

    def discard(self, x: K) -> None:
        """Remove ``x`` where it is a member."""
        self._references.pop(id(x), None)


class WeakValues(Generic[K, V]):
    """Values by hashable keys, while the values live.

    >>> class Node: pass
    >>> node, nodes = Node(), WeakValues()
    >>> nodes["first"] = node
    >>> nodes.get("first") is node
    True
    >>> del node
    >>> nodes.get("first") is None
    True
    """

    __slots__ = ("_references",)

    def __init__(self) -> None:
        self._references: Final[dict[K, ref[V]]] = {}

    def __len__(self) -> int:
        return len(self._references)

    def __setitem__(self, key: K, value: V) -> None:
        forget: Callable[[Any], Any] = partial(self._references.pop, key)
        self._references[key] = ref(value, forget)

    def get(self, key: K) -> V | None:
        """Return the value of a key, if it has one."""
        reference = self._references.get(key)
        return None if reference is None else reference()

    def pop(self, key: K) -> V | None:
        """Remove a key; return its value, if it has one."""
        reference = self._references.pop(key, None)
        return None if reference is None else reference()

    def clear(self) -> None:
        """Forget all keys."""
        self._references.clear()

    def items(self) -> list[tuple[K, V]]:
        """Return the keys and values of the moment."""
        pairs = [(key, reference()) for key, reference in list(self._references.items())]
        return [(key, value) for key, value in pairs if value is not None]
