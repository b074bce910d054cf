"""The order in which nodes were recorded, and which of them are behind others."""

from __future__ import annotations

import itertools
from collections.abc import Container, Sequence
from typing import Any, Final

from ..tensor.leaf import Leaf

order: Final = itertools.count(1)
"""The next number for a node: what was recorded later has the greater one."""


def reached_from(roots: Sequence[Any], ends: Container[int] = ()) -> list[Any]:
    """Return every node behind ``roots``, later ones first: users before what they use.

    ``ends`` are the ids of nodes behind which nothing is looked for.
    """
    seen: dict[int, Any] = {}
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node is None or id(node) in seen:
            continue
        seen[id(node)] = node
        if not isinstance(node, Leaf) and id(node) not in ends:
            stack.extend(node.parents)
    return _with_leaves_early(sorted(seen.values(), key=lambda node: -node.order))


def _with_leaves_early(nodes: list[Any]) -> list[Any]:
    """Return nodes, users first, with the leaves that have hooks right behind the last of their users."""
    early: dict[Any, None] = {}
    for node in reversed(nodes):  # leaves are last
        if not isinstance(node, Leaf):
            break
        if getattr(node, "hooks", None):
            early[node] = None
    if not early:
        return nodes
    placed: list[Any] = []
    for node in reversed(nodes):  # from the last user on
        if node in early:
            continue
        for parent in () if isinstance(node, Leaf) else node.parents:
            if parent in early:
                del early[parent]
                placed.append(parent)
        placed.append(node)
    placed += early  # a leaf that is an output itself
    return placed[::-1]


def leading_to(targets: set[int], nodes: Sequence[Any]) -> set[int]:
    """Return the nodes of ``nodes`` (users first) from which a target is reached; no other is visited."""
    leading: set[int] = set()
    for node in reversed(nodes):
        behind = () if isinstance(node, Leaf) else node.parents
        if id(node) in targets or any(id(parent) in leading for parent in behind):
            leading.add(id(node))
    return leading
