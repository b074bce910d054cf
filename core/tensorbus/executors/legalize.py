"""A captured graph, made ready for a code generator."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Final

from ..backend_interface.graph import Graph, Node
from ..decompose.decompose import decompose
from ..decompose.update_bodies import with_bodies
from ..dtypes.definition import DType
from ..graph.passes.fuse_epilogue import fuse_activations, fuse_sums
from ..graph.passes.simplify import simplify
from ..graph.pipeline import Pass, run_passes
from ..graph.rewrite import rewrite
from ..lowering.codegen.dialect import Dialect
from ..lowering.library import Library
from ..lowering.op_sets import INLINED, OPTIONAL, SCHEDULED
from ..lowering.passes.matvec_to_reduction import matvec_to_reduction, where_adjacent
from ..ops.definition import CONTROL_FLOW, USER, table
from ..ops.fused_update import is_fused_update
from ..ops.nn.attention_blocks import NAME as FLEX
from ..ops.nn.attention_blocks import takes_products
from .ordered_calls import expand_ordered


def is_generated(op: str, dialect: Dialect) -> bool:
    """Return whether the code generator has a schedule for an op, and the language what that takes."""
    return op in SCHEDULED or (op in INLINED and (op not in OPTIONAL or OPTIONAL[op] in dialect.expressions))


@dataclass(frozen=True, slots=True, kw_only=True)
class LegalizeContext:
    """Limits of a device: ops that ``keeps`` names stay whole; ``dtypes`` are those of its language.

    None: it has all. ``lacking`` says that the program has others. ``serves`` is what a device with kernels
    of products that add and activate says of such a node; None: it has none. ``row_per_task``: of ``Target``.
    """

    keeps: Callable[[str], bool]
    dtypes: Collection[DType] | None = None
    lacking: bool = False
    serves: Callable[[Node], bool] | None = None
    row_per_task: bool = True


def prepared(graph: Graph, keeps: Callable[[str], bool], dtypes: Collection[DType] | None = None) -> Graph:
    """Return ``graph`` in prims, fused updates, user kernels and what ``keeps`` names, simplified.

    ``dtypes`` are those of the language. Ops on others are calls: they stay whole, and their numbers are
    values, which no generated code has to write. None: the language has all.
    """
    return legalize(graph, LegalizeContext(keeps=keeps, dtypes=dtypes))


def legalize(graph: Graph, context: LegalizeContext) -> Graph:
    """Return ``graph`` as lowering takes it, after the passes of ``LEGALIZE``."""
    dtypes = context.dtypes
    lacking = dtypes is not None and any(node.spec.dtype not in dtypes for node in graph)
    return run_passes(graph, LEGALIZE, replace(context, lacking=lacking))


def shares_rows(context: LegalizeContext) -> bool:
    """Require a target whose workgroups share the rows of a reduction."""
    return not context.row_per_task


def fuses_epilogues(context: LegalizeContext) -> bool:
    """Require a device with kernels of products that add and activate."""
    return context.serves is not None


def lacks_dtypes(context: LegalizeContext) -> bool:
    """Require a program with dtypes that the language lacks."""
    return context.lacking


def _decomposed(graph: Graph, context: LegalizeContext) -> Graph:
    apart = _takes_products if context.row_per_task else _never
    if not context.lacking:
        return decompose(graph, lambda op: _stays(op) or context.keeps(op), apart)
    library = Library(frozenset(), context.dtypes or ())
    own = {node.op for node in graph if not library.lacks(node)}
    lacking = {node.op for node in graph if library.lacks(node)}
    called = {op for op in lacking - own if op in table and not is_fused_update(op)}
    updates = {op for op in lacking if is_fused_update(op)}
    return decompose(
        graph, lambda op: op not in updates and (op in called or _stays(op) or context.keeps(op)), apart
    )


def _takes_products(node: Node) -> bool:
    return node.op == FLEX and takes_products(node.inputs[0].spec.shape, node.attrs)


def _never(node: Node) -> bool:
    return False


def _stays(op: str) -> bool:
    return table[op].family in (USER, CONTROL_FLOW) or is_fused_update(op)


def _with_constants_as_values(graph: Graph, context: LegalizeContext) -> Graph:
    """Return ``graph`` with constants that the language cannot write as values of the device."""
    dtypes = context.dtypes or ()

    def rule(node: Node, _: Node) -> Node | None:
        if node.op != "constant" or node.spec.dtype in dtypes:
            return None
        attrs = {"shape": (), "value": node.attrs["value"], "dtype": node.spec.dtype}
        return Node(op="full", attrs=attrs, spec=node.spec)

    return rewrite(graph, rule)


def _serves(context: LegalizeContext) -> Callable[[Node], bool]:
    return context.serves or (lambda node: False)


LEGALIZE: Final[tuple[Pass[LegalizeContext], ...]] = (
    Pass(name="expand ordered composites", run=lambda graph, _: expand_ordered(graph)),
    Pass(
        name="matvec to reduction", requires=shares_rows,
        run=lambda graph, _: matvec_to_reduction(graph, where_adjacent),
    ),
    Pass(
        name="fuse activations", requires=fuses_epilogues,
        run=lambda graph, context: fuse_activations(graph, _serves(context)),
    ),
    Pass(name="decompose", run=_decomposed),
    Pass(name="simplify", run=lambda graph, _: simplify(graph)),
    Pass(name="decompose fused updates", run=lambda graph, _: with_bodies(graph)),
    Pass(name="constants to values", requires=lacks_dtypes, run=_with_constants_as_values),
    Pass(
        name="fuse sums", requires=fuses_epilogues,
        run=lambda graph, context: fuse_sums(graph, _serves(context)),
    ),
)  # fmt: skip
"""From a captured graph to what lowering takes. ``simplify`` is a list of its own: ``SIMPLIFY``."""
