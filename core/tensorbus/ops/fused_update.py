"""Bundles: elementwise ops of several results, each what a few ops make of operands of one shape.

A captured program has one node for a bundle where it would have a dozen, and a device that generates code
opens it when it makes the kernel, once for all equal ones. Everybody else decomposes it. Bundles are in no
list of ops: a function that has one runs as plain ops wherever nothing is captured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..dtypes.definition import FLOATING, DType
from .definition import Op, Spec, table
from .elementwise.family import broadcast_shapes, common_dtype


def bundle(
    name: str, operands: tuple[str, ...], results: tuple[str, ...], function: Callable[..., Any]
) -> Op[...]:
    """Return the op, by its name in the table, that is ``function`` of ``operands``.

    It must give a tuple of ``results``, each of the shape that the operands broadcast to and in their common
    dtype, by nothing but elementwise ops, and depend on nothing else. ``inside``, among its attributes, is
    its decomposition in a program that is being lowered. Raises ``PluginError`` for a name that is taken.
    """

    def compute(given: tuple[DType | type, ...]) -> tuple[DType, ...]:
        return (common_dtype(given),) * len(given)

    def infer(specs: tuple[Spec, ...], inside: Any = None) -> tuple[Spec, ...]:
        return (Spec(broadcast_shapes(*(s.shape for s in specs)), specs[0].dtype),) * len(results)

    made: Op[...] = Op(
        name=name, family="elementwise", operands=operands, results=results,
        arguments=lambda *given: (given, {}), infer=infer, compute=compute, decompose=function,
        dtypes=FLOATING, broadcasts=True, cost="light", recompute=True, method=False, doc="",
    )  # fmt: skip
    return table.add_unlisted(made, "tensorbus")


def is_bundle(op: str) -> bool:
    """Return whether the op of this name is a bundle."""
    return op in table and bool(table[op].results) and table[op].family == "elementwise"
