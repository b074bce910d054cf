"""Groups that store rows which lie apart: what lies between may be written too, as nobody reads it.

Rows of an odd length have no vectors; rows and gaps together are one stretch of memory, one loop.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from ....backend_interface.graph import Node
from ....backend_interface.strided_array import row_major
from ....ops.definition import Spec
from ...fusion.canonicalize import DomainKernel, collapsed
from ...ir.layout import Layout, Shape
from ...op_sets import ELEMENTWISE

_PLAIN = ELEMENTWISE | {"input", "constant", "full"}


def over_padding(fused: DomainKernel, own: Container[int]) -> DomainKernel:
    """Return a map over rows and gaps; the group itself where it is none, or reads what has no such gaps.

    ``own`` are the slots whose buffers the program makes, gaps and all.
    """
    strides = {o.strides for o in fused.outputs}
    rank = len(fused.domain)
    if fused.reduced or rank < 2 or len(strides) != 1:
        return fused
    (apart,) = strides
    *outer, length = fused.domain
    whole: Shape = (*outer, apart[-2])
    if apart[-2] <= length or 0 in whole or apart != row_major(whole):
        return fused
    if not all(_goes_on(node, length, whole[-1]) for node in fused.graph):
        return fused
    if not all(_has_gaps(x, length, apart, own) for x in fused.inputs.values()):
        return fused
    done: dict[int, Node] = {}
    leaves: dict[int, Layout] = {}
    scalars: dict[int, int] = {}
    for node in fused.graph:
        shape = node.spec.shape
        if len(shape) == rank and shape[-1] == length:
            shape = (*shape[:-1], whole[-1])
        attrs = node.attrs
        if node.op in ("full", "slice") and shape != node.spec.shape:
            attrs = {**attrs, "shape" if node.op == "full" else "size": shape}
        inputs = tuple(done[id(x)] for x in node.inputs)
        padded = replace(node, inputs=inputs, attrs=attrs, spec=Spec(shape, node.spec.dtype))
        if id(node) in fused.inputs:
            leaves[id(padded)] = replace(fused.inputs[id(node)], shape=shape)
        if id(node) in fused.scalars:
            scalars[id(padded)] = fused.scalars[id(node)]
        done[id(node)] = padded
    return collapsed(
        replace(
            fused, domain=whole, nodes=tuple(done[id(n)] for n in fused.nodes), inputs=leaves,
            scalars=scalars, outputs=tuple(replace(o, node=done[id(o.node)]) for o in fused.outputs),
        )
    )  # fmt: skip


def _goes_on(node: Node, length: int, apart: int) -> bool:
    """Return whether a node of rows of ``length`` may have ``apart`` elements, or has to do with no rows.

    A part of longer rows, as those of all classes, goes on in them.
    """
    if node.op in _PLAIN:
        return True
    shapes = [node.spec.shape, *(x.spec.shape for x in node.inputs)]
    if node.op == "slice" and shapes[0][-1:] == (length,):
        start, step = node.attrs["start"][-1], node.attrs["step"][-1]
        return bool(step == 1 and length < shapes[1][-1] and start + apart <= shapes[1][-1])
    return all(shape[-1:] != (length,) for shape in shapes)


def _has_gaps(x: Layout, length: int, apart: Shape, own: Container[int]) -> bool:
    """Return whether an operand may be read in the gaps: it has no such rows, or gaps as well."""
    if x.shape[-1:] != (length,) or x.strides[-1] == 0:
        return True
    return x.strides == apart and x.slot in own and not x.offset and x.late is None
