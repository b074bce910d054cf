"""Partition of a joint graph: the values that the forward program saves, the others are recomputed.

A minimal cut: of all ways to supply the backward program, one that saves the fewest bytes, where only ops
that cost little beside the traffic of reading a value may run twice. Cuts by blocking flows: Dinitz 1970.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Final

from ...ops.definition import table
from ..programs.op_trace import OpTrace

_INFINITE: Final = 1 << 62
_SOURCE, _SINK = -1, -2


def saved_values(trace: OpTrace, forward: int, grads: Sequence[int], inputs: Sequence[int]) -> list[int]:
    """Return the places below ``forward`` that the forward program saves for the backward one.

    ``grads`` are the outputs of the backward program, computed from ``inputs`` and the saved values.
    """
    entries = trace.nodes
    needed = trace.needed(grads, inputs)
    input_places = {*inputs}
    used = {
        x
        for p in needed
        if p >= forward and p not in input_places
        for x in entries[p].operands
        if x < forward
    }
    used |= {p for p in grads if p < forward}
    edges: dict[int, dict[int, int]] = {_SOURCE: {}, _SINK: {}}

    def edge(a: int, b: int, capacity: int) -> None:
        edges.setdefault(a, {})[b] = capacity
        edges.setdefault(b, {}).setdefault(a, 0)

    for place in (p for p in needed if p < forward):
        e = entries[place]
        if place in input_places or e.op == "constant":
            continue
        size = max(prod(e.spec.shape) * e.spec.dtype.itemsize, 1)
        several = e.op in table and table[e.op].results  # each of which is a value, and the op itself is none
        edge(2 * place, 2 * place + 1, _INFINITE if several else size)
        if e.op != "result" and (e.op not in table or not table[e.op].recompute):
            edge(_SOURCE, 2 * place, _INFINITE)
        for x in e.operands:
            if x not in input_places and entries[x].op != "constant":
                edge(2 * x + 1, 2 * place, _INFINITE)
        if place in used:
            edge(2 * place + 1, _SINK, _INFINITE)
    while _SINK in (steps := _levels(edges)):
        _send_blocking_flow(edges, steps)
    return sorted(p // 2 for p in steps if p >= 0 and p % 2 == 0 and p + 1 not in steps)


def _levels(edges: dict[int, dict[int, int]]) -> dict[int, int]:
    """Return the distance from the source, in edges with residual capacity, of all that it reaches."""
    distances = {_SOURCE: 0}
    queue = deque([_SOURCE])
    while queue:
        at = queue.popleft()
        for to, room in edges[at].items():
            if room > 0 and to not in distances:
                distances[to] = distances[at] + 1
                queue.append(to)
    return distances


def _send_blocking_flow(edges: dict[int, dict[int, int]], steps: dict[int, int]) -> None:
    """Send a blocking flow along shortest paths: each has a saturated edge afterwards."""
    ways = {at: [to for to in edges[at] if steps.get(to) == n + 1] for at, n in steps.items()}
    path = [_SOURCE]
    while path:
        at = path[-1]
        if at == _SINK:
            pairs = list(pairwise(path))
            room = min(edges[a][b] for a, b in pairs)
            for a, b in pairs:
                edges[a][b] -= room
                edges[b][a] += room
            full = next(k for k, (a, b) in enumerate(pairs) if edges[a][b] == 0)
            del path[full + 1 :]
        elif ways[at] and edges[at][ways[at][-1]] > 0:
            path.append(ways[at][-1])
        elif ways[at]:
            ways[at].pop()
        else:
            path.pop()
            if path:
                ways[path[-1]].pop()
