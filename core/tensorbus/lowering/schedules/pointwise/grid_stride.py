"""Grid-stride loops: a work-item computes several elements, far apart, so that their loads overlap.

Neighbours still read side by side. One element to a work-item would leave memory waiting for the next
work-item.
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir import index_expr as ix
from ...ir.builder import Builder
from ...ir.index_expr import ONE, ZERO, const
from ...ir.kernel_task import Loops
from ...ir.loop_ir import INDEX, Expr, Var
from ...target import Target


def grid_stride_loop(
    b: Builder, target: Target, length: Expr, count: int, emit: Callable[[Expr], None]
) -> Loops:
    """Emit a map over one axis of ``count`` elements; return its loop. ``emit(k)`` writes one element."""
    elements = target.heuristics.grid_stride_elements
    part = count // elements
    size = b.size("part", part)
    item = Var("i0", INDEX)
    with b.loop(ZERO, const(elements), kind="unroll", prefix="u") as u:
        emit(b.let(ix.add(item, ix.multiply(u, size)), "k"))
    if count % elements:
        done = ix.multiply(const(elements), size)
        with b.when(ix.less(item, ix.subtract(length, done))):
            emit(b.let(ix.add(item, done), "k"))
    return [(item, size if part > 1 else ONE, part)]
