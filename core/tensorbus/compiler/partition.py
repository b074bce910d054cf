"""Which values a forward program keeps for its backward program, and which are computed again.

A minimal cut: of all ways to give the backward program what it needs, one that keeps the fewest bytes, where
only ops that cost little beside the traffic of reading a value may run twice. Cuts by augmenting paths:
Edmonds and Karp 1972.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import prod
from typing import Final

from ..ops.op import table
from .recording import Recording

_FAMILIES: Final = frozenset({"elementwise", "movement", "cast", "creation", "indexing"})
_ENDLESS: Final = 1 << 62
_SOURCE, _SINK = -1, -2


def saved(recording: Recording, forward: int, grads: Sequence[int], inputs: Sequence[int]) -> list[int]:
    """Return the places below ``forward`` that the backward program takes from the forward one.

    ``grads`` are what the backward program computes, from ``inputs`` and what is saved.
    """
    entries = recording.entries
    needed = recording.needed(grads, inputs)
    given = {*inputs}
    used = {x for p in needed if p >= forward and p not in given for x in entries[p].operands if x < forward}
    used |= {p for p in grads if p < forward}
    edges: dict[int, dict[int, int]] = {_SOURCE: {}, _SINK: {}}

    def edge(a: int, b: int, capacity: int) -> None:
        edges.setdefault(a, {})[b] = capacity
        edges.setdefault(b, {}).setdefault(a, 0)

    for place in (p for p in needed if p < forward):
        e = entries[place]
        if place in given or e.op == "constant":
            continue
        edge(2 * place, 2 * place + 1, max(prod(e.spec.shape) * e.spec.dtype.itemsize, 1))
        if e.op != "result" and (e.op not in table or table[e.op].family not in _FAMILIES):
            edge(_SOURCE, 2 * place, _ENDLESS)
        for x in e.operands:
            if x not in given and entries[x].op != "constant":
                edge(2 * x + 1, 2 * place, _ENDLESS)
        if place in used:
            edge(2 * place + 1, _SINK, _ENDLESS)
    while (path := _path(edges)) is not None:
        room = min(edges[a][b] for a, b in path)
        for a, b in path:
            edges[a][b] -= room
            edges[b][a] += room
    near = _near(edges)
    return sorted(p // 2 for p in near if p >= 0 and p % 2 == 0 and p + 1 not in near)


def _path(edges: dict[int, dict[int, int]]) -> list[tuple[int, int]] | None:
    """Return a shortest path with room left from the source to the sink."""
    before: dict[int, int] = {_SOURCE: _SOURCE}
    queue = deque([_SOURCE])
    while queue:
        at = queue.popleft()
        for to, room in edges[at].items():
            if room > 0 and to not in before:
                before[to] = at
                if to == _SINK:
                    path = []
                    while to != _SOURCE:
                        path.append((before[to], to))
                        to = before[to]
                    return path
                queue.append(to)
    return None


def _near(edges: dict[int, dict[int, int]]) -> set[int]:
    """Return what is on the source's side of the cut."""
    found = {_SOURCE}
    queue = deque([_SOURCE])
    while queue:
        at = queue.popleft()
        for to, room in edges[at].items():
            if room > 0 and to not in found:
                found.add(to)
                queue.append(to)
    return found
