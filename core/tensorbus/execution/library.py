"""Steps of a compiled program that are calls of the device's eager kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..device import Device
from ..graph.graph import Graph, Node
from ..lowering.builder import Late
from ..ops.op import table
from .interpret import Interpreted

if TYPE_CHECKING:
    from ..lowering.steps import Call


def library_call(call: Call, device: Device) -> Interpreted:
    """Return what runs a program's call: it takes the operands in order and returns the results.

    Operands that are ``Late`` are Python numbers. An op that has no kernel runs as its decomposition.
    """
    inputs = tuple(
        Node(op="input", attrs={"index": k, **({"scalar": True} if isinstance(x, Late) else {})}, spec=spec)
        for k, (x, spec) in enumerate(zip(call.inputs, call.specs, strict=True))
    )
    whole = Node(op=call.op, inputs=inputs, attrs=call.attrs, spec=call.out_specs[0])
    outputs: tuple[Node, ...] = (whole,)
    if table[call.op].results:
        outputs = tuple(
            Node(op="result", inputs=(whole,), attrs={"index": k}, spec=spec)
            for k, spec in enumerate(call.out_specs)
        )
    return Interpreted(Graph(inputs=inputs, outputs=outputs), device)
