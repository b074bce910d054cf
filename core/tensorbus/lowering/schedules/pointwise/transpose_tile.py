"""The schedule of maps with a transposed operand: a work-item takes a tile, and turns it in its own memory.

Rows of memory are then read and written whole, lines of the cache are used up while they are there, and
strides that are powers of two do no harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ....backend_interface.graph import Node
from ....dtypes.definition import bool_
from ....tracing.sym_int import always_same, near
from ...heuristics import Heuristics
from ...ir import index_expr as ix
from ...ir.builder import Builder
from ...ir.index_expr import ZERO, const
from ...ir.inline import Index
from ...ir.kernel_task import KernelTask, LaunchList, element_offset
from ...ir.layout import Layout, packed
from ...ir.loop_ir import INDEX, Apply, Expr, Kind, Load, Var


def lower_transpose_tiles(
    task: KernelTask, steps: LaunchList, across: int, transposed: Sequence[Node]
) -> None:
    """Append the launch of a map in which the ``transposed`` inputs lie packed along axis ``across``."""
    tile_side = steps.target.heuristics.transpose_tile_side
    b = Builder(f"tb_{task.root.op}_tiles")
    inliner, slots = task.inliner(b)
    shape = task.root.spec.shape
    lengths = inliner.lengths(task.root)
    last = len(shape) - 1
    counts = [-(-n // tile_side) if k in (across, last) else n for k, n in enumerate(shape)]
    inner, outer, rest = Var("i0", INDEX), Var("i1", INDEX), Var("i2", INDEX)
    loops = [(inner, b.size("tiles", counts[last]), counts[last])]
    loops.append((outer, b.size("lines", counts[across]), counts[across]))
    others = [k for k in range(last) if k != across and shape[k] != 1]
    index: list[Expr] = [ZERO] * len(shape)
    if others:
        total = prod(shape[k] for k in others)
        loops.append((rest, b.size("outer", total) if len(others) > 1 else lengths[others[0]], total))
        for k, i in zip(others, ix.unflatten(rest, [lengths[k] for k in others]), strict=True):
            index[k] = i if isinstance(i, Var) else b.let(i, "i")
    side = const(tile_side)
    bases = [b.let(ix.multiply(var, side), "base") for var in (outer, inner)]
    ends = [
        b.let(ix.minimum(ix.subtract(lengths[k], base), side), "side")
        for k, base in zip((across, last), bases, strict=True)
    ]
    layout = packed(task.out, shape) if task.strides is None else Layout(task.out, shape, task.strides)
    tiles = [b.array(node.spec.dtype, tile_side * tile_side) for node in transposed]
    out = b.buffer("out", task.root.spec.dtype, writes=True)

    def at(line: Expr, column: Expr) -> Index:
        index[across], index[last] = ix.add(bases[0], line), ix.add(bases[1], column)
        return tuple(index)

    def turn(whole: bool) -> None:
        lines, columns = (side, side) if whole else (ends[0], ends[1])
        kind: Kind = "unroll" if whole else "serial"
        with b.loop(ZERO, columns) as column, b.loop(ZERO, lines, kind=kind) as line, inliner.scope():
            for tile, node in zip(tiles, transposed, strict=True):
                to = ix.add(ix.multiply(line, side), column)
                b.store(tile, to, inliner.value(node, at(line, column)))
        with b.loop(ZERO, lines) as line, b.loop(ZERO, columns, kind=kind) as column, inliner.scope():
            where = at(line, column)
            for tile, node in zip(tiles, transposed, strict=True):
                element = Load(tile, ix.add(ix.multiply(line, side), column), node.spec.dtype)
                inliner.bind(node, where, element)
            b.store(out, element_offset(b, "out", where, lengths, layout), inliner.value(task.root, where))

    full = ix.both([Apply("equal", (end, side), bool_) for end in ends])
    whole = b.let(full, "whole")
    with b.when(whole):
        turn(True)
    with b.when(Apply("logical_not", (whole,), bool_)):
        turn(False)
    steps.add(b.finish(loops, task=True), {**slots, "out": task.out})


def transposed_inputs(task: KernelTask, limits: Heuristics) -> tuple[int, list[Node]] | None:
    """Return the axis along which transposed operands lie packed, and those operands; None without any."""
    shape = task.root.spec.shape
    last, least = len(shape) - 1, limits.transpose_min_length
    by_axis: dict[int, list[Node]] = {}
    for node in task.graph:
        layout = task.inputs.get(id(node))
        if layout is None or not shape or not always_same(layout.shape, shape):
            continue
        if abs(layout.strides[-1]) <= 1:
            continue
        strides = [(abs(s), k) for k, s in enumerate(layout.strides) if s and near(shape[k]) >= least]
        if strides and min(strides)[1] != last:
            by_axis.setdefault(min(strides)[1], []).append(node)
    return max(by_axis.items(), key=lambda pair: len(pair[1])) if by_axis else None
