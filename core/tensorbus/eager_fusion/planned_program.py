"""The ops of a derivative, each by the plan that dispatch makes of it, one after the other.

Products and convolutions have kernels of libraries, which no generated program holds. What their derivatives
call is known after one trace: values go from kernel to kernel, and nothing is wrapped or looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final

from ..backend_interface.graph import Node
from ..devices.device import Device, ValueType
from ..dispatch.plan import Plan, plan
from ..graph.rewrite import topological
from ..ops.definition import table

MAX_STEPS: Final = 16
"""The most ops of a program: what has more is better made of generated kernels."""
Run = Callable[[Sequence[Any]], Sequence[Any]]


def planned_program(inputs: Sequence[Node], outputs: Sequence[Node], device: Device) -> Run | None:
    """Return what runs a graph of ops on a device, values in and values out.

    None where an op has no kernel there, has several results, takes a number or makes values of nothing.
    """
    places: dict[Node, int] = {node: k for k, node in enumerate(inputs)}
    steps: list[tuple[Plan, Callable[[Sequence[Any]], Any], bool]] = []
    for node in topological(outputs):
        if node in places:
            continue
        step = _plan_of(node, device)
        if step is None or len(steps) >= MAX_STEPS:
            return None
        own = [places[x] for x in node.inputs]
        steps.append((step, itemgetter(*own), len(own) == 1))
        places[node] = len(inputs) + len(steps) - 1
    results = [places[node] for node in outputs]

    def run(values: Sequence[Any]) -> Sequence[Any]:
        known = [*values]
        for step, operands, is_single in steps:
            known.append(step.run(operands(known)) if is_single else step.run(*operands(known)))
        return [known[place] for place in results]

    return run


def _plan_of(node: Node, device: Device) -> Plan | None:
    """Return the plan of a node, by which its kernel is called as the node says."""
    if node.op not in table or table[node.op].results or not node.inputs:
        return None
    op = table[node.op]
    kinds = [ValueType.of(x.spec.dtype, device) for x in node.inputs]
    shapes = None if op.broadcasts else [x.spec.shape for x in node.inputs]
    step = plan(op, kinds, shapes, dict(node.attrs))
    if step.run is None or step.source is None or step.out != ValueType.of(node.spec.dtype, device):
        return None
    return step if dict(step.source[1].attrs) == dict(node.attrs) else None
