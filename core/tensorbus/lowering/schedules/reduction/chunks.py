"""The chunks of a reduction: how it is cut where it has too few results for the device, or is too long.

Long sums are always cut into chunks and lanes, so that float32 sums stay accurate as well as parallel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ....backend_interface.graph import Graph
from ...ir.loop_ir import Expr
from ...op_sets import calls_function
from ...target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """An axis of a reduction's domain."""

    length: Expr
    value: int
    reduced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunks:
    """Axis ``axis`` cut into ``count`` pieces of ``size``, which run in parallel.

    ``interleaved`` pieces take every ``count``-th element, so that work-items side by side read side by side.
    """

    axis: int
    size: int
    count: int
    interleaved: bool = False


def plan_chunks(
    axes: Sequence[Axis], wanted: int, rows: bool, target: Target, *, floating: bool, alone: int = 0
) -> Chunks | None:  # fmt: skip
    """Return how to cut a reduction that has too few outputs for the device, or is too long to be exact.

    Up to ``alone`` elements in all are left to one task. Pieces of rows are whole ``lanes`` of the target,
    but for the last one, and many of them; otherwise other axes are cut.
    """
    limits, lanes = target.heuristics, target.lanes
    over = [k for k, a in enumerate(axes) if a.reduced]
    if not over or any(a.value == 0 for a in axes):
        return None
    outputs = prod(a.value for a in axes if not a.reduced)
    total = prod(axes[k].value for k in over)
    if outputs * total <= alone:
        return None
    axis = max(over, key=lambda k: (axes[k].value, -k))
    length = axes[axis].value
    least = limits.row_min_chunk if rows else target.min_chunk
    count = min(-(-wanted // outputs), max(total // least, 1)) if outputs < wanted else 1
    if floating and (rows or total > limits.sum_max_length):
        count = max(count, -(-total // limits.sum_max_length))
    if not rows and outputs >= limits.column_chunk and length >= 4 * limits.column_chunk:
        # Work-items of a workgroup go down side by side; a short loop keeps what they share in cache.
        count = max(count, length // limits.column_chunk)
    count = min(count, length)
    if count < 2:
        return None
    size = -(-length // count)
    if rows and axis == len(axes) - 1:
        size = -(-size // lanes) * lanes
        outer = max(over[:-1], key=lambda k: (axes[k].value, -k), default=axis)
        if size < limits.row_piece_min_vectors * lanes and min(count, axes[outer].value) >= -(
            -length // size
        ):
            axis, length = outer, axes[outer].value  # whole rows are read faster than pieces
            size = -(-length // min(count, length))
    interleaved = not rows and axis == len(axes) - 1
    chunks = Chunks(axis=axis, size=size, count=-(-length // size), interleaved=interleaved)
    return chunks if chunks.count > 1 else None


def is_window(target: Target, lengths: Sequence[int]) -> bool:
    """Return whether what a work-item goes over is a window, small enough to be written out."""
    limits = target.heuristics
    return not target.row_per_task and len(lengths) > 1 and prod(lengths) <= limits.window_unroll


def single_task_limit(target: Target, graph: Graph, *, rows: bool) -> int:
    """Return how many elements of a reduction are left to one work-item: it may be the last one of others."""
    limits = target.heuristics
    if not target.last_task_epilogue or any(calls_function(n.op) for n in graph):
        return 0
    return (
        limits.single_task_elements if rows else limits.single_task_elements // 8
    )  # which no vectors add up


def workgroup_chunks(axes: Sequence[Axis], target: Target) -> Chunks | None:
    """Return how to cut rows of a reduction over its last axes for workgroups."""
    limits = target.heuristics
    over = [k for k, a in enumerate(axes) if a.reduced]
    if target.row_per_task or over != list(range(len(axes) - len(over), len(axes))):
        return None
    rows, length = prod(a.value for a in axes if not a.reduced), prod(axes[k].value for k in over)
    count = max(
        min(
            -(-target.work_items_to_fill // (rows * limits.workgroup_max)),
            length // (limits.workgroup_max * limits.workgroup_read_ahead),
        ),
        1,
    )
    size = -(-length // (count * limits.workgroup_max)) * limits.workgroup_max
    return Chunks(axis=over[0], size=size, count=-(-length // size)) if length > size else None
