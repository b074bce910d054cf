"""Maps over many elements for light items: each makes several, far apart, so that their loads overlap.

Neighbours still read side by side. One element to an item would leave memory waiting for the next item.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...ir import index_expr as ix
from ...ir.builder import Builder
from ...ir.index_expr import ONE, ZERO, const
from ...ir.kernel_task import LaunchList, Loops
from ...ir.loop_ir import INDEX, Expr, Var

LANES: Final = 4
LEAST: Final = 1 << 20
"""How many elements keep a device busy with several to an item."""


def fits(steps: LaunchList, shape: tuple[int, ...]) -> bool:
    """Return whether a map is walked like this: it goes over one long axis."""
    return not steps.target.row_per_task and len(shape) == 1 and shape[0] >= LEAST


def streams(b: Builder, length: Expr, count: int, emit: Callable[[Expr], None]) -> Loops:
    """Emit a map over one axis of ``count`` elements; return its loop. ``emit(k)`` writes one element."""
    part = count // LANES
    size = b.size("part", part)
    item = Var("i0", INDEX)
    with b.loop(ZERO, const(LANES), kind="unroll", prefix="u") as u:
        emit(b.let(ix.add(item, ix.multiply(u, size)), "k"))
    if count % LANES:
        done = ix.multiply(const(LANES), size)
        with b.when(ix.less(item, ix.subtract(length, done))):
            emit(b.let(ix.add(item, done), "k"))
    return [(item, size if part > 1 else ONE, part)]
