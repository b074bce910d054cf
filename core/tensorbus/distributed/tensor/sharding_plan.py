"""Sharding plan: how an op runs on distributed tensors of given layouts, made once and cached.

The op's rule says how it can be split along a dimension of the mesh. The plan takes the strategies, one for
each dimension, for which operands are redistributed at the least cost: by the bytes that a rank sends, and
for each collective as many more as are sent while one begins. Where taking the best of each dimension by
itself communicates, all combinations are compared.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...dispatch import kernel_preference
from ...dispatch.modes import is_value_mode
from ...dispatch.plan import new_cache
from ...dispatch.plan import plan as plan_parts
from ...dtypes.definition import DType
from ...ops.definition import Op, Spec, table
from ...ops.sharding_rules import Mark, ShardPart, Strategy
from ...tensor.tensor import Tensor
from ...tracing.active_modes import active_modes
from . import explicit_mode
from .layout import Distributed, MeshLayout, layout_of
from .placements import (
    Partial,
    Placement,
    Placements,
    Replicate,
    Shard,
    StridedShard,
    local_shape,
    mixes_reductions,
    plain,
)
from .redistribute import COLLECTIVE_COST, cost_between
from .redistribute import move as move_part
from .redistribute import plan as steps_between

COLLECTIVE_BYTES: Final = 4 * COLLECTIVE_COST
"""Bytes that are sent in the time that a collective takes to begin."""
MAX_COMBINATIONS: Final = 4096
"""Of strategies along all dimensions of a mesh; where there are more, each dimension has its own best."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShardingPlan:
    """A plan of an op: the layouts that operands move to (None: as they are), those of the results.

    ``attrs`` are those of a rank's op. ``run`` does what the op alone would not on parts. ``decomposes``: the
    op runs by its decomposition, on the tensors as a whole. ``replicates``: no rule serves it. ``bytes`` are
    those that a rank sends; ``stays``: no operand moves.
    """

    op: Op[...]
    moves: tuple[MeshLayout | None, ...]
    results: tuple[MeshLayout, ...]
    attrs: Mapping[str, Any]
    run: Any
    parts: tuple[tuple[ShardPart | None, ...], tuple[ShardPart, ...]]
    decomposes: bool
    replicates: bool
    bytes: int
    stays: bool

    def __call__(self, values: Sequence[Any]) -> Any:
        """Return the value of the result, or a tuple of those of several; never of one that decomposes."""
        op = self.op
        if self.stays:
            locals_ = [v.local if type(v) is Distributed else v for v in values]
        else:
            locals_ = self.moved(values)
        out = None
        if self.run is not None:
            out = self.run(locals_, self.attrs, *self.parts)
        if out is None:
            out = self._on_parts(locals_) if self.attrs else table.function(op.name)(*locals_)
        if not op.results:
            return Distributed(out, self.results[0])
        return tuple([Distributed(x, layout) for x, layout in zip(out, self.results, strict=True)])

    def _on_parts(self, parts: Sequence[Any]) -> Any:
        """Return the result of the op on parts, whose plan is looked up by the sharding plan alone."""
        op, attrs = self.op, self.attrs
        if active_modes or kernel_preference.active():
            return table.run(op.name, parts, attrs)
        known = _part_plans.get(self)
        if known is None:
            known = _learn(self, parts)
        kinds, plan = known
        if plan is None:
            return table.run(op.name, parts, attrs)
        for x, kind in zip(parts, kinds, strict=True):
            if type(x) is not Tensor or x._vtype is not kind or x._node is not None:
                return table.run(op.name, parts, attrs)
        out = Tensor()
        try:
            out._value = plan.run(*[x._value for x in parts])
        except Exception:  # which says more of the operands
            return table.run(op.name, parts, attrs)
        out._vtype, out._node = plan.out, None
        return out

    def moved(self, values: Sequence[Any]) -> list[Any]:
        """Return the parts of the operands in the placements that the op needs."""
        if self.bytes:
            explicit_mode.check(self, values)
        return [
            v if type(v) is not Distributed
            else v.local if move is None
            else move_part(v.local, v.layout, move)
            for v, move in zip(values, self.moves, strict=True)
        ]  # fmt: skip


_MAX_PART_PLANS: Final = 4096
_part_plans: Final[dict[Any, Any]] = new_cache()
"""The types of parts and the plan of the op on them, by sharding plan; None where it depends on more."""


def _learn(plan: ShardingPlan, parts: Sequence[Any]) -> tuple[Sequence[Any], Any]:
    """Keep the plan of an op on parts, where it has a kernel for them, and return it with their types."""
    kinds: list[Any] = [x._vtype if type(x) is Tensor else None for x in parts]
    known: tuple[Sequence[Any], Any] = kinds, None
    plain_parts = all(
        k is not None and k.materialized is k and not is_value_mode(k.device.type) for k in kinds
    )
    if plain_parts and not plan.op.results:
        shapes = None if plan.op.broadcasts else [x._value.shape for x in parts]
        own = plan_parts(plan.op, kinds, shapes, plan.attrs)
        if own.run is not None and own.lift is None:
            known = kinds, own
    if len(_part_plans) >= _MAX_PART_PLANS:
        _part_plans.clear()
    _part_plans[plan] = known
    return known


def plan_op(
    op: Op[...], values: Sequence[Any], dtypes: Sequence[DType | type], attrs: Mapping[str, Any]
) -> ShardingPlan:
    """Plan an op on values, of which those that are distributed lie on one mesh; the others are numbers."""
    layouts = [v.layout if type(v) is Distributed else None for v in values]
    mesh = next(layout.mesh for layout in layouts if layout is not None)
    strided = [
        any(layout is not None and isinstance(layout.placements[dim], StridedShard) for layout in layouts)
        for dim in range(mesh.ndim)
    ]
    pairs = list(zip(values, dtypes, strict=True))
    rule_specs = [Spec(v.shape, v.local.dtype) if type(v) is Distributed else None for v in values]
    outs = op.specs(
        tuple([Spec(v.shape if type(v) is Distributed else (), d) for v, d in pairs]),  # type: ignore[arg-type]
        attrs,
    )
    strategies = [Strategy((None,) * len(values), (None,) * len(outs))]
    if op.shard is not None:
        strategies += [s for s in op.shard(rule_specs, outs, **attrs) if not s.decomposes or op.decompose]
    chosen: list[Strategy] = []
    for dim, size in enumerate(mesh.shape):
        chosen.append(_best(strategies, chosen, layouts, rule_specs, dim, size))
    if mesh.ndim > 1 and len(strategies) ** mesh.ndim <= MAX_COMBINATIONS:
        chosen = _best_together(strategies, chosen, layouts, rule_specs, strided)
    targets = [
        None if layout is None else _placements([s.operands[place] for s in chosen], strided)
        for place, layout in enumerate(layouts)
    ]
    moves = tuple(
        None if layout is None or target is None or target == layout.placements
        else layout_of(mesh, target, layout.shape)
        for layout, target in zip(layouts, targets, strict=True)
    )  # fmt: skip
    decomposes = any(s.decomposes for s in chosen)
    results = tuple(
        layout_of(mesh, _placements([s.results[k] for s in chosen], strided), spec.shape)
        for k, spec in enumerate(outs)
    )
    final = [move or layout for move, layout in zip(moves, layouts, strict=True)]
    parts = tuple(None if layout is None else layout.part for layout in final), tuple(r.part for r in results)
    localize = next((s.attrs for s in chosen if s.attrs is not None), None)
    return ShardingPlan(
        op=op, moves=moves, results=results, parts=parts, decomposes=decomposes,
        attrs=dict(attrs) if localize is None or decomposes else localize(attrs, *parts),
        run=next((s.run for s in chosen if s.run is not None), None), replicates=op.shard is None,
        stays=not any(moves),
        bytes=sum(_bytes(v, move) for v, move in zip(values, moves, strict=True) if move is not None),
    )  # fmt: skip


def _bytes(value: Distributed, move: MeshLayout) -> int:
    """Return how many bytes a rank sends to bring an operand to another layout."""
    layout = value.layout
    steps = steps_between(layout.shape, layout.mesh.shape, layout.placements, move.placements)
    return sum(step.elements for step in steps) * value.local.dtype.itemsize


def _best(
    strategies: Sequence[Strategy], before: Sequence[Strategy], layouts: Sequence[MeshLayout | None],
    specs: Sequence[Spec | None], dim: int, size: int,
) -> Strategy:  # fmt: skip
    """Return the strategy along a dimension of the mesh that costs least, then changes least.

    A part is taken of what each rank has for less than that is made of parts, also where neither costs.
    """

    def cost(strategy: Strategy) -> tuple[float, int]:
        total, changes = 0.0, 0
        for layout, spec, mark in zip(layouts, specs, strategy.operands, strict=True):
            if layout is None or spec is None:
                continue
            source, target = layout.placements[dim], _placement(mark)
            if source != target and not (isinstance(source, StridedShard) and source.dim == mark):
                changes += 1 if isinstance(source, Replicate) else 2
                if share := _share(source, target, size):
                    total += share * _part_size(layout) * spec.dtype.itemsize + COLLECTIVE_BYTES
        return total, changes

    def fits(strategy: Strategy) -> bool:
        return not strategy.divides or strategy.divides % (size * _split_by(strategy, before, layouts)) == 0

    return min((s for s in strategies if fits(s) and not _mixes((*before, s))), key=cost)


def _best_together(
    strategies: Sequence[Strategy], alone: list[Strategy], layouts: Sequence[MeshLayout | None],
    specs: Sequence[Spec | None], strided: Sequence[bool],
) -> list[Strategy]:  # fmt: skip
    """Return the strategies along all dimensions of the mesh that cost least, then change least.

    ``alone`` are those that are best along each by itself: where they cost nothing, none are better.
    """
    known: list[dict[tuple[Mark, ...], tuple[int, int]]] = [{} for _ in layouts]

    def cost(combination: Sequence[Strategy]) -> tuple[int, int]:
        total, changes = 0, 0
        for place, (layout, spec) in enumerate(zip(layouts, specs, strict=True)):
            if layout is None or spec is None:
                continue
            marks = tuple([s.operands[place] for s in combination])
            if marks not in known[place]:
                target = _placements(marks, strided)
                moved = [p for p, q in zip(layout.placements, target, strict=True) if p != q]
                changed = sum(1 if isinstance(p, Replicate) else 2 for p in moved)
                elements, collectives = cost_between(
                    layout.shape, layout.mesh.shape, layout.placements, target
                )
                sent = elements * spec.dtype.itemsize + collectives * COLLECTIVE_BYTES
                known[place][marks] = sent, changed
            sent, changed = known[place][marks]
            total += sent
            changes += changed
        return total, changes

    best, least = alone, cost(alone)
    if not least[0]:
        return alone
    for combination in itertools.product(strategies, repeat=len(alone)):
        if (now := cost(combination)) < least and _fits(combination, layouts):
            best, least = [*combination], now
    return best


def _fits(combination: Sequence[Strategy], layouts: Sequence[MeshLayout | None]) -> bool:
    """Return whether strategies go together: lengths divide, and terms are the same in any order."""
    sizes = next(layout.mesh.shape for layout in layouts if layout is not None)
    for dim, (strategy, size) in enumerate(zip(combination, sizes, strict=True)):
        if strategy.divides and strategy.divides % (size * _split_by(strategy, combination[:dim], layouts)):
            return False
    return not _mixes(combination)


def _mixes(combination: Sequence[Strategy]) -> bool:
    """Return whether some operand or result would be terms that are reduced in different ways."""
    several = zip(*[(*s.operands, *s.results) for s in combination], strict=True)
    return any(mixes_reductions(map(_placement, marks)) for marks in several)


def _split_by(strategy: Strategy, before: Sequence[Strategy], layouts: Sequence[MeshLayout | None]) -> int:
    """Return into how many parts earlier dimensions of the mesh split the same axes."""
    mesh = next(layout.mesh for layout in layouts if layout is not None)
    sizes = zip(before, mesh.shape, strict=False)
    return math.prod(size for earlier, size in sizes if earlier.operands == strategy.operands)


def _part_size(layout: MeshLayout) -> int:
    """Return the elements of the first rank's part, which is the largest: all ranks plan by it."""
    sizes = layout.mesh.shape
    return math.prod(local_shape(layout.shape, layout.placements, sizes, (0,) * len(sizes)))


def _share(source: Placement, target: Placement, size: int) -> float:
    """Return what a rank sends for a change along a dimension of the mesh, in parts of what it has."""
    if isinstance(source, Replicate):
        return 0.0
    others = (size - 1) / size
    if isinstance(source, Shard):
        return others if isinstance(target, Shard) else size - 1
    return others if isinstance(target, Shard) else 2 * others


def _placements(marks: Sequence[Mark], strided: Sequence[bool]) -> Placements:
    """Return the placements that marks stand for, one a dimension of the mesh.

    Dimensions along which an operand lies as ``StridedShard`` split all operands and results after the
    others: it is as though they were the last of the mesh, so that the rule holds.
    """
    chosen = [_placement(mark) for mark in marks]
    return plain(
        StridedShard(p.dim) if last and isinstance(p, Shard) else p
        for p, last in zip(chosen, strided, strict=True)
    )


def _placement(mark: Mark) -> Placement:
    """Return the placement that a rule's mark stands for."""
    if mark is None:
        return _WHOLE
    return Shard(mark) if isinstance(mark, int) else Partial(mark)


_WHOLE = Replicate()
