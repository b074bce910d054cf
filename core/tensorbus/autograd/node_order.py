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
    return sorted(seen.values(), key=lambda node: -node.order)


def leading_to(targets: set[int], nodes: Sequence[Any]) -> set[int]:
    """Return the nodes of ``nodes`` (users first) from which a target is reached; no other is visited."""
    leading: set[int] = set()
    for node in reversed(nodes):
        behind = () if isinstance(node, Leaf) else node.parents
        if id(node) in targets or any(id(parent) in leading for parent in behind):
            leading.add(id(node))
    return leading
