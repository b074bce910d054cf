"""The passes over the graph that lowering begins with, in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ...backend_interface.graph import Node
from ...graph.pipeline import Pass
from ..library import Calls
from ..target import Target
from .limit_concat_operands import limit_concat_operands
from .matvec_to_reduction import matvec_to_reduction, where_generated
from .split_reductions import split_reductions


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweringContext:
    """The context of passes: the target, its library, and whether all inputs lie packed.

    ``scatters_rows`` says of a scatter whether the schedule of rows serves it.
    """

    target: Target
    library: Calls
    packed: bool
    scatters_rows: Callable[[Node], bool]


def shares_rows(context: LoweringContext) -> bool:
    """Require work-items that exchange registers; without calls also inputs that lie packed."""
    return bool(context.target.subgroup_size) and (context.library is not None or context.packed)


def limits_buffers(context: LoweringContext) -> bool:
    """Require a target whose kernels have a limited number of buffers, and calls beside them."""
    return bool(context.target.max_buffers) and context.library is not None


LOWERING_PASSES: Final[tuple[Pass[LoweringContext], ...]] = (
    Pass(
        name="matvec to reduction",
        run=lambda graph, context: matvec_to_reduction(graph, where_generated(context.library)),
    ),
    Pass(
        name="split reductions", requires=shares_rows,
        run=lambda graph, context: split_reductions(graph, context.target, context.scatters_rows),
    ),
    Pass(
        name="limit concat operands", requires=limits_buffers,
        run=lambda graph, context: limit_concat_operands(graph, context.target.max_buffers - 1),
    ),
)  # fmt: skip
