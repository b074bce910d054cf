"""Nested arguments and results: the leaves of tuples, lists, dicts, named tuples, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def tree_map(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Return ``tree`` with ``function`` applied to each leaf, and to the leaves of ``others`` at its place.

    A tree of ``others`` may stop early: one leaf there then goes with everything below.
    """
    if isinstance(tree, Mapping):
        return {k: tree_map(function, v, *[_at(o, k) for o in others]) for k, v in tree.items()}
    if isinstance(tree, (tuple, list)):
        items = [tree_map(function, v, *[_at(o, k) for o in others]) for k, v in enumerate(tree)]
        return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
    return function(tree, *others)


def _at(tree: Any, key: Any) -> Any:
    return tree[key] if isinstance(tree, (Mapping, tuple, list)) else tree


def leaves(tree: Any) -> list[Any]:
    """Return the leaves in order."""
    items: list[Any] = []
    tree_map(items.append, tree)
    return items
