"""Score programs: what is done to one score of attention, and whether it counts, as a graph of scalars.

A function of indices that a user wrote becomes data, so that a kernel can have it in its innermost loop and
any other device can run it over the grid of a block. This module runs such a graph; it does not capture it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

from ...backend_interface.graph import Graph, Node
from ..creation.creation import full
from ..definition import table
from ..elementwise.family import broadcast_shapes
from ..movement.movement import broadcast_to

LEAD = 5
"""How many inputs are not captured: the score, and the numbers of its batch, head, query and key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedRead:
    """A read of a captured tensor that a derivative reaches.

    ``outputs[gradient]`` belongs to its element at ``outputs[i]`` for each ``i`` of ``indices``.
    """

    captured: int
    gradient: int
    indices: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreProgram:
    """A graph whose values are all scalars but for the captured tensors that it gathers elements of.

    The inputs are the score (float32, of float64 attention float64), then four int32, the numbers of the
    batch, head, query and key, then the captured tensors. Outputs: the new score, then, where it is
    ``masked``, whether the score counts. ``derivative`` has the gradient of the new score as one more input,
    the first; its outputs are the gradient of the score, and what ``reads`` say. None where it is not needed.
    Programs are equal where they compute the same of tensors of the same shapes.
    """

    graph: Graph
    masked: bool
    derivative: Graph | None = None
    reads: tuple[CapturedRead, ...] = ()

    @cached_property
    def text(self) -> str:
        """All that it does, as one text: what it is equal by."""
        return (
            f"{self.graph}" if self.derivative is None else f"{self.graph}\n{self.derivative}\n{self.reads}"
        )

    @property
    def captured(self) -> int:
        """The number of tensors it reads."""
        return len(self.graph.inputs) - LEAD

    @cached_property
    def learned(self) -> tuple[int, ...]:
        """The numbers of the captured tensors that the derivative reaches, in order."""
        return tuple(sorted({read.captured for read in self.reads}))

    @cached_property
    def numbers(self) -> frozenset[int]:
        """The inputs of 1 to 4 that it needs: the numbers of the batch, head, query and key."""
        graphs = [self.graph] if self.derivative is None else [self.graph, self.derivative]
        numbers = set()
        for graph in graphs:
            inputs = graph.inputs[-len(self.graph.inputs) :]
            used = {id(x) for node in graph for x in node.inputs} | {id(x) for x in graph.outputs}
            numbers |= {k for k in range(1, LEAD) if id(inputs[k]) in used}
        return frozenset(numbers)

    def __repr__(self) -> str:
        # Programs are told apart by it, and it stands in one line of an explanation.
        return f"<score program {sha256(self.text.encode()).hexdigest()[:32]}>"

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ScoreProgram) and self.text == other.text


def run_scalars(graph: Graph, inputs: Sequence[Any]) -> list[Any]:
    """Return the outputs of a graph of scalars for tensors that broadcast with each other.

    The inputs that stand for captured tensors are those themselves.
    """
    values: dict[Node, Any] = dict(zip(graph.inputs, inputs, strict=True))
    device = inputs[0].device
    for node in graph:
        if node not in values:
            values[node] = _step(node, values, device)
    return [_tensor(node, values[node], device) for node in graph.outputs]


def _step(node: Node, values: Mapping[Node, Any], device: Any) -> Any:
    if node.op == "constant":
        return node.attrs["value"]
    operands = [values[x] for x in node.inputs]
    if node.op == "gather":
        x, *indices = operands
        places = [_tensor(n, i, device) for n, i in zip(node.inputs[1:], indices, strict=True)]
        shape = broadcast_shapes(*(i.shape for i in places))
        return table.run("gather", [x, *(broadcast_to(i, shape) for i in places)], {})
    has_dtype = [hasattr(x, "dtype") for x in operands]
    if node.op == "where":
        has_dtype[0] = False
    if not any(has_dtype):  # numbers alone have no dtype
        operands = [_tensor(n, x, device) for n, x in zip(node.inputs, operands, strict=True)]
    return table.run(node.op, operands, node.attrs)


def _tensor(node: Node, value: Any, device: Any) -> Any:
    return value if hasattr(value, "dtype") else full((), value, dtype=node.spec.dtype, device=device)
