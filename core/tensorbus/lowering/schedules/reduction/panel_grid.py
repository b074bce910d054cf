"""The grid of column reductions by panels: which rows and which columns a task reduces.

A panel is some hundred columns side by side, which stay in cache while rows are added to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ...ir import index_expr as ix
from ...ir.builder import Builder
from ...ir.index_expr import ZERO, const
from ...ir.kernel_task import parallel_loops
from ...ir.loop_ir import Expr, Var
from .blocked_sum import Span
from .chunks import Chunks


def plan_panels(
    shape: Sequence[int], over: Sequence[int], tasks: int, *, width: int, min_rows: int, max_rows: int
) -> Chunks:
    """Return how to cut the longest reduced axis: enough panels of ``width`` columns for all tasks."""
    axis = max(over, key=lambda k: (shape[k], -k))
    results = prod(n for k, n in enumerate(shape[:-1]) if k not in over)
    panels = max(-(-shape[-1] // width) * results, 1)
    count = max(-(-tasks // panels), -(-shape[axis] // max_rows))
    count = max(1, min(count, shape[axis] // min_rows))
    size = max(-(-shape[axis] // count), 1)
    return Chunks(axis=axis, size=size, count=max(-(-shape[axis] // size), 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelGrid:
    """The panel of a task, inside of ``loops``: ``columns`` from ``base`` on, ``spans`` by reduced axis.

    ``begins`` is where its states lie in buffers of them, ``index`` its place along the axes that stay.
    """

    loops: list[tuple[Var, Expr, int]]
    index: list[Expr]
    base: Expr
    columns: Expr
    begins: Expr
    spans: dict[int, Span]


def panel_grid(
    b: Builder, lengths: Sequence[Expr], shape: Sequence[int], over: Sequence[int], chunks: Chunks, width: int
) -> PanelGrid:
    """Emit the beginning of a kernel that reduces the axes ``over``, of which the last one is none."""
    rest = [k for k in range(len(shape) - 1) if k not in over]
    panels = -(-shape[-1] // width)
    numbers = [b.size("chunks", chunks.count), *(lengths[k] for k in rest), b.size("panels", panels)]
    outer, loops = parallel_loops(b, numbers, [chunks.count, *(shape[k] for k in rest), panels])
    index: list[Expr] = [ZERO] * len(shape)
    for k, i in zip(rest, outer[1:-1], strict=True):
        index[k] = i
    base = b.let(ix.multiply(outer[-1], const(width)), "base")
    columns = b.let(ix.minimum(ix.subtract(lengths[-1], base), const(width)), "wide")
    begins = b.let(ix.flatten((*outer[:-1], base), [*numbers[:-1], lengths[-1]]), "begins")
    spans = {k: Span(ZERO, lengths[k], shape[k]) for k in over}
    if chunks.count > 1:
        size = b.size("chunk", chunks.size)
        start = b.let(ix.multiply(outer[0], size), "start")
        stop = b.let(ix.minimum(ix.add(start, size), lengths[chunks.axis]), "stop")
        spans[chunks.axis] = Span(start, stop, chunks.size)
    return PanelGrid(loops=loops, index=index, base=base, columns=columns, begins=begins, spans=spans)
