"""Fused updates: elementwise ops of several results, each a few ops on operands of one shape.

An optimizer's step is one for each parameter (PyTorch's ``foreach``). A captured program has one node for it
where it would have a dozen, and a device that generates code expands it when it makes the kernel, once for
all equal ones. Others decompose it. These ops are not listed in the table: a function that has one runs as
plain ops wherever nothing is captured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..dtypes.definition import FLOATING, DType
from ..dtypes.promotion import common_dtype
from .definition import Op, Spec, table
from .elementwise.family import broadcast_shapes


def fused_update_op(
    name: str, operands: tuple[str, ...], results: tuple[str, ...], function: Callable[..., Any]
) -> Op[...]:
    """Register ``function`` of ``operands`` as an op, by its name in the table; return the op.

    It must return a tuple of ``results``, each of the shape that the operands broadcast to and in their
    common dtype, by nothing but elementwise ops, and depend on nothing else. ``inside``, among its
    attributes, is its decomposition in a program that is being lowered. Raises ``PluginError`` for a name
    that is taken.
    """

    def compute(operands: tuple[DType | type, ...]) -> tuple[DType, ...]:
        return (common_dtype(operands),) * len(operands)

    def infer(specs: tuple[Spec, ...], inside: Any = None) -> tuple[Spec, ...]:
        return (Spec(broadcast_shapes(*(s.shape for s in specs)), specs[0].dtype),) * len(results)

    op: Op[...] = Op(
        name=name, family="elementwise", operands=operands, results=results,
        arguments=lambda *operands: (operands, {}), infer=infer, compute=compute, decompose=function,
        dtypes=FLOATING, broadcasts=True, cost="light", recompute=True, method=False, doc="",
    )  # fmt: skip
    return table.add_unlisted(op, "tensorbus")


def is_fused_update(op: str) -> bool:
    """Return whether the op of this name is a fused update."""
    return op in table and bool(table[op].results) and table[op].family == "elementwise"
