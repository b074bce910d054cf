"""Nested arguments and results: the leaves of tuples, lists, dicts, named tuples, and back.

Trees are walked without a call of Python's for each level, of which there may be more than Python allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import ArgumentError


class _Frame(NamedTuple):
    """A container that is being walked, and what was made of its parts so far."""

    tree: Any
    rest: Iterator[tuple[Any, Any]]
    others: Sequence[Any]
    parts: list[Any]


def tree_map(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Return ``tree`` with ``function`` applied to each leaf, and to the leaves of ``others`` at its place.

    A tree of ``others`` may stop early: one leaf there then goes with everything below. Raises
    ``ArgumentError`` for a container that holds itself.
    """
    if not isinstance(tree, (Mapping, tuple, list)):
        return function(tree, *others)
    frames, above = [_Frame(tree, _parts(tree), others, [])], {id(tree)}
    while True:
        frame = frames[-1]
        for key, part in frame.rest:
            at = [_at(other, key) for other in frame.others]
            if isinstance(part, (Mapping, tuple, list)):
                if id(part) in above:
                    raise ArgumentError(f"a {type(part).__name__} holds itself, and so has no leaves.")
                above.add(id(part))
                frames.append(_Frame(part, _parts(part), at, []))
                break
            frame.parts.append(function(part, *at))
        else:
            frames.pop()
            above.discard(id(frame.tree))
            whole = _rebuilt(frame.tree, frame.parts)
            if not frames:
                return whole
            frames[-1].parts.append(whole)


def _parts(tree: Any) -> Iterator[tuple[Any, Any]]:
    return iter(tree.items()) if isinstance(tree, Mapping) else enumerate(tree)


def _rebuilt(tree: Any, parts: list[Any]) -> Any:
    if isinstance(tree, Mapping):
        return dict(zip(tree, parts, strict=True))
    return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)


def _at(tree: Any, key: Any) -> Any:
    return tree[key] if isinstance(tree, (Mapping, tuple, list)) else tree


def leaves(tree: Any) -> list[Any]:
    """Return the leaves in order."""
    items: list[Any] = []
    tree_map(items.append, tree)
    return items


def have_equal_structure(tree: Any, other: Any) -> bool:
    """Return whether two trees are nested alike; lists count as tuples, and dicts in any order."""
    left = [(tree, other)]
    while left:
        one, two = left.pop()
        if isinstance(one, Mapping) and isinstance(two, Mapping):
            if one.keys() != two.keys():
                return False
            left += [(one[key], two[key]) for key in one]
        elif isinstance(one, (tuple, list)) and isinstance(two, (tuple, list)):
            if len(one) != len(two):
                return False
            left += zip(one, two, strict=True)
        elif isinstance(one, (Mapping, tuple, list)) or isinstance(two, (Mapping, tuple, list)):
            return False
    return True
