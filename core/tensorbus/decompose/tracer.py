"""``GraphTracer``: runs a function of tensors on values that are nodes of a graph, and so gives its graph.

A decomposition written for tensors becomes a ``Graph`` without knowing it. The values lie on a pseudo device
of the tracer's; as a mode over values (see ``dispatch.modes``) it makes a node of each op that it keeps, and
lets the others decompose. The modes around a function do not see the ops that it calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

from ..autograd.engine import no_grad
from ..backend_interface.graph import Graph, Node
from ..backend_interface.protocols import Call
from ..devices.device import Device, ValueType
from ..dispatch.modes import below_modes, register_value_mode
from ..dtypes.definition import DType
from ..errors import DeviceError
from ..ops.definition import Op, Spec, table
from ..tensor.tensor import Tensor, wrap


class NodeValues:
    """The rules of a mode over values that are nodes of a graph (see ``dispatch.modes``)."""

    def prepare(self, op: Op[...], call: Call) -> Callable[..., Any] | None:
        """Return what makes a node of an op, of the nodes and Python scalars that it is called with."""

        def run(*values: Any) -> Any:
            inputs = tuple([operand_node(v, d) for v, d in zip(values, call.dtypes, strict=True)])
            return node_of_op(op, inputs, call.attrs)

        return run

    def depth(self, device: Device) -> int:
        """Return the number of the level."""
        return device.index

    def parts(self, value: Node) -> tuple[Any, ...]:
        """Return no tensor: the values have none."""
        return ()

    def map_parts(self, value: Node, function: Callable[[Any], Any]) -> Node:
        """Return the node."""
        return value

    def detach(self, value: Node) -> Node:
        """Return the node: graphs know no derivatives."""
        return value

    def readable(self, value: Node) -> None:
        """Return None: there are no elements."""


class GraphTracer(NodeValues):
    """Traces functions on the pseudo device type ``name``; ``keeps(op)`` says which ops become nodes."""

    def __init__(self, name: str, keeps: Callable[[Op[...]], bool]) -> None:
        self.device = Device(name, 0)
        self.keeps = keeps
        register_value_mode(name, self)

    def prepare(self, op: Op[...], call: Call) -> Callable[..., Any] | None:
        """Return what makes a node of an op that is kept; None: it decomposes."""
        return super().prepare(op, call) if self.keeps(op) else None

    def lift(self, x: Any, device: Device) -> NoReturn:
        """Refuse a tensor that is not among the inputs of what is traced."""
        raise DeviceError(f"a tensor on {x.device} is no input of the function that is traced on {device}.")

    def lift_operand(self, op: str, x: Any, device: Device) -> NoReturn:
        """Refuse a tensor that is not among the inputs of what is traced."""
        self.lift(x, device)

    def inner(self, device: Device) -> None:
        """Return None: the values stand for no others."""

    def wrap(self, node: Node) -> Tensor:
        """Return a tensor that holds a node."""
        return wrap(node, ValueType.of(node.spec.dtype, self.device))

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function of tensors that hold nodes; return its result, which holds nodes too."""
        with no_grad():
            return below_modes(lambda: function(*args, **kwargs))

    def run_decomposition(
        self, op: Op[...], operands: Sequence[Any], attrs: Mapping[str, Any]
    ) -> tuple[Node, ...]:
        """Return the results of a composite's decomposition, of tensors that hold nodes and of scalars."""
        arguments = {"device": self.device, **attrs} if op.family == "creation" else attrs
        assert op.decompose is not None
        result = self.run(op.decompose, *([] if op.family == "creation" else operands), **arguments)
        return tuple([x._value for x in (result if op.results else (result,))])

    def trace(self, function: Callable[..., Any], specs: Sequence[Spec]) -> tuple[tuple[Node, ...], Any]:
        """Return the inputs of the graph of a function of tensors, and what it returned: tensors of nodes."""
        inputs = _inputs(specs)
        return inputs, self.run(function, *map(self.wrap, inputs))


def operand_node(value: Any, dtype: DType) -> Node:
    """Return the node of an operand in the dtype that its op computes in."""
    if not isinstance(value, Node):
        return Node(op="constant", attrs={"value": value}, spec=Spec((), dtype))
    if value.spec.dtype is dtype:
        return value
    return Node(op="cast", inputs=(value,), attrs={"dtype": dtype}, spec=Spec(value.spec.shape, dtype))


def node_of_op(op: Op[...], inputs: tuple[Node, ...], attrs: Mapping[str, Any]) -> Any:
    """Return the node of an op; of one with several results, a tuple of the nodes that take them apart."""
    specs = op.specs(tuple([n.spec for n in inputs]), attrs)
    node = Node(op=op.name, inputs=inputs, attrs=dict(attrs), spec=specs[0])
    if not op.results:
        return node
    return tuple(Node(op="result", inputs=(node,), attrs={"index": k}, spec=s) for k, s in enumerate(specs))


PRIMS: Final = GraphTracer("graph", lambda op: op.is_prim)
"""Traces down to prims."""
OPS: Final = GraphTracer("ops", lambda op: True)
"""Traces every op as it is called, composites as they are."""


def trace(op: str, operands: Sequence[Spec], attrs: Mapping[str, Any]) -> Graph:
    """Return the graph of one op: of its decomposition, down to prims; a prim is a graph of itself.

    ``operands`` have the dtypes that the op computes in, ``attrs`` are as kernels see them.
    """
    definition = table[op]
    if definition.decompose is None:
        return graph_of_op(op, operands, attrs)
    inputs = _inputs(operands)
    outputs = PRIMS.run_decomposition(definition, [*map(PRIMS.wrap, inputs)], attrs)
    return Graph(inputs=inputs, outputs=outputs)


def graph_of_op(op: str, operands: Sequence[Spec], attrs: Mapping[str, Any]) -> Graph:
    """Return the graph of one op, which stays whole: its results are the outputs."""
    definition, inputs = table[op], _inputs(operands)
    results = node_of_op(definition, inputs, attrs)
    return Graph(inputs=inputs, outputs=results if definition.results else (results,))


def _inputs(specs: Sequence[Spec]) -> tuple[Node, ...]:
    return tuple([Node(op="input", attrs={"index": k}, spec=s) for k, s in enumerate(specs)])
