"""From a graph to a program: passes, placement, fusion groups, schedules, the order of steps.

Each stage takes what the one before it returned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...backend_interface.graph import Graph, Node
from ...graph.pipeline import run_passes
from ...system.env import verifying
from ..fusion.fusion_groups import FusionGroup, GroupBuilder
from ..fusion.placement import BufferPlacement, LoweringInput, place, read_by_calls
from ..fusion.rematerialize import rematerialized
from ..ir.layout import Layout
from ..library import Calls
from ..passes.pass_list import LOWERING_PASSES, LoweringContext
from ..target import Target
from .emit import emit, output_buffers
from .program import Program
from .step_order import Begin, finish_kernels, make_program, order_steps, reuse_buffers
from .verify import verify_program


def lower(
    graph: Graph, inputs: Sequence[Layout | None], target: Target, sized: bool = False,
    library: Calls = None, replaces: Mapping[int, int] | None = None, begin: Begin | None = None,
) -> Program:  # fmt: skip
    """Return the program of ``graph``. An input that is None is a Python scalar, given at each call.

    ``sized`` says that float constants may come from lengths: they are parameters then, and the code serves
    other lengths. ``library`` names the ops that the device runs by calls of its own; ops that nobody can
    generate become calls as well. None: there are no calls, and every step is a launch. ``replaces`` says of
    outputs which input they take the place of; ``Program.replaceable`` then has those that may be written
    over it. ``begin`` is given the launches as soon as their kernels are what they will be: compiling may
    begin. Raises ``UnsupportedOpError`` for an op that is no call and has no schedule.
    """
    context = LoweringContext(
        target=target, library=library, packed=all(x is None or x.is_contiguous for x in inputs),
        scatters_rows=lambda node: _scatters_rows(node, target),
    )  # fmt: skip
    graph = run_passes(graph, LOWERING_PASSES, context)
    asked = LoweringInput.of(graph, inputs, target, library, sized=sized, replaces=replaces or {})
    placement = place(asked)
    groups = _fusion_groups(asked, placement)
    recomputed = _recomputed(asked, placement, groups)
    if recomputed:
        placement = placement.without(recomputed)
        groups = _fusion_groups(asked, placement)
    steps = reuse_buffers(emit(asked, placement, groups), asked)
    steps = finish_kernels(steps, asked)
    if begin is not None and asked.whole:
        begin(steps.launches())
    program = make_program(order_steps(steps, asked), asked)
    return verify_program(program, inputs) if verifying() else program


def _scatters_rows(node: Node, target: Target) -> bool:
    from ..schedules.scatter.scatter_row_gpu import serves

    return serves(node, target) is True


def _fusion_groups(asked: LoweringInput, placement: BufferPlacement) -> list[FusionGroup]:
    """Return the groups of what has a buffer, each after those that it reads from."""
    return list(GroupBuilder(asked.nodes, placement.buffered, asked.target, asked.calls).ordered())


def _recomputed(asked: LoweringInput, placement: BufferPlacement, groups: Sequence[FusionGroup]) -> set[int]:
    """Return the ids of the nodes that kernels had better compute again than read."""
    if not asked.whole or len(groups) < 2:
        return set()
    shown = output_buffers(asked, placement) | read_by_calls(asked.calls)
    return rematerialized(groups, placement.buffered, placement.where, asked.nodes, shown, asked.target)
