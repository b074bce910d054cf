"""Functions of tensors as graphs, which are attributes of the ops that call them.

The function runs once, on values that are nodes, at a level of its own: so it may use transforms inside, and
be used inside of them. Tensors from outside that it reads become inputs. Transforms of a graph are traced the
same way: it is run on nodes inside of ``vjp``, ``jvp`` or ``vmap``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from ..backend_interface.graph import Graph, Node, SubGraph, Symbol
from ..backend_interface.protocols import Call
from ..decompose.tracer import NodeValues
from ..devices.device import Device, ValueType, get_default_device
from ..dispatch.levels import Level, inner_of, levels
from ..dispatch.modes import base_device, register_value_mode
from ..errors import ArgumentError, CaptureError
from ..func.derivatives import jvp, vjp
from ..func.vectorize import vmap
from ..graph.evaluate import run_ops
from ..ops.definition import Op, Shape, Spec
from ..tensor.tensor import Tensor, wrap
from ..tracing.plan_env import PlanEnv
from ..tracing.sym_int import is_open

BODY: Final = "body"


def run_graph(graph: SubGraph, operands: Sequence[Tensor], device: Device) -> list[Tensor]:
    """Run a graph op by op on tensors; what it creates is created on ``device``."""
    return run_ops(graph.graph, operands, device)


def pullback(graph: SubGraph, places: tuple[int, ...]) -> SubGraph:
    """Return the derivative: of the operands, and a gradient for each result that is no integer.

    Its results are the gradients of the operands at ``places``.
    """
    inexact = [k for k, spec in enumerate(graph.outputs) if spec.dtype.is_inexact]
    count = len(graph.inputs)

    def function(device: Device, *values: Tensor) -> Sequence[Tensor]:
        operands = list(values[:count])

        def forward(*chosen: Tensor) -> list[Tensor]:
            for k, x in zip(places, chosen, strict=True):
                operands[k] = x
            outs = run_graph(graph, operands, device)
            return [outs[k] for k in inexact]

        _, pull = vjp(forward, *[operands[k] for k in places])
        grads: tuple[Tensor, ...] = pull(list(values[count:]))
        return grads

    specs = (*graph.inputs, *[graph.outputs[k] for k in inexact])
    return _derived(graph, ("pullback", places), function, specs)


def pushforward(graph: SubGraph) -> SubGraph:
    """Return the forward derivative: of the operands, and a tangent of each that is no integer.

    Its results are those of the graph, and a tangent of each that is no integer.
    """
    moving = [k for k, spec in enumerate(graph.inputs) if spec.dtype.is_inexact]
    inexact = [k for k, spec in enumerate(graph.outputs) if spec.dtype.is_inexact]
    count = len(graph.inputs)

    def function(device: Device, *values: Tensor) -> Sequence[Tensor]:
        operands = list(values[:count])

        def forward(*chosen: Tensor) -> list[Tensor]:
            for k, x in zip(moving, chosen, strict=True):
                operands[k] = x
            return run_graph(graph, operands, levels()[-1].device)

        if not moving:
            return run_graph(graph, operands, device)
        outs, tangents = jvp(forward, tuple(operands[k] for k in moving), tuple(values[count:]))
        return [*outs, *[tangents[k] for k in inexact]]

    specs = (*graph.inputs, *[graph.inputs[k] for k in moving])
    return _derived(graph, "pushforward", function, specs)


def vectorized(graph: SubGraph, varies: tuple[bool, ...], count: int) -> SubGraph:
    """Return the graph of ``count`` examples: along axis 0 of operands that vary, and of all results."""

    def function(device: Device, *values: Tensor) -> Sequence[Tensor]:
        def each(*operands: Tensor) -> tuple[Tensor, ...]:
            return tuple(run_graph(graph, operands, levels()[-1].device))

        outs: tuple[Tensor, ...] = vmap(each, in_dims=tuple([0 if v else None for v in varies]))(*values)
        return outs

    specs = [
        Spec((count, *spec.shape), spec.dtype) if v else spec
        for spec, v in zip(graph.inputs, varies, strict=True)
    ]
    return _derived(graph, ("vectorized", varies, count), function, specs)


def _derived(
    graph: SubGraph, key: Any, function: Callable[..., Sequence[Tensor]], specs: Sequence[Spec]
) -> SubGraph:
    cached: SubGraph | CaptureError | None = graph.derived.get(key)
    if cached is None:
        conditions = _conditions(graph)
        cached = graph_of(function, specs, graph.symbols)
        if more := _conditions(graph)[len(conditions) :]:
            cached = CaptureError(
                f"a derivative or a batch holds only for sizes of which {' and '.join(more)}."
            )
        graph.derived[key] = cached
    if isinstance(cached, CaptureError):
        raise cached
    return cached


def _conditions(graph: SubGraph) -> list[str]:
    """Return what was decided by lengths of a graph that are open."""
    if not graph.symbols:
        return []
    return next((n.env.conditions for node in graph.graph for n in lengths_of(node.spec)), [])


def lengths_of(spec: Spec) -> list[Any]:
    """Return the lengths of a spec that are open."""
    return [n for n in spec.shape if is_open(n)]


class BodyLevel(Level):
    """The level at which a function is traced: its tensors hold nodes, those from outside become inputs."""

    device_type = BODY
    randomness = "error"

    def __init__(
        self, inner: Device, shape: Callable[[Sequence[Any]], Shape], env: PlanEnv | None = None
    ) -> None:
        super().__init__(inner)
        self.shape, self.env = shape, env
        self.inputs: list[Node] = []
        self.outside: list[Tensor] = []
        self._lifted: dict[int, tuple[Node, Tensor, Any, Any, Any]] = {}

    def apply(self, op: Op[...], operands: Sequence[Any], attrs: dict[str, Any]) -> Any:
        """Run an op of values of this level, or one that only the graph can have.

        Its lengths are unknown outside, and where they are open its programs take operands packed: a weight
        that was turned outside would be copied.
        """
        if self.env is not None and (op.name == "permute_dims" or self.env.has_part_in(attrs)):
            operands = [self.lift(x) if isinstance(x, Tensor) else x for x in operands]
            attrs = attrs if operands else {**attrs, "device": self.device}
        return super().apply(op, operands, attrs)

    def input(self, spec: Spec) -> Tensor:
        """Return a tensor that is a new operand of the function."""
        node = Node(op="input", spec=spec)
        self.inputs.append(node)
        return self.hold(node)

    def hold(self, node: Node) -> Tensor:
        """Return a tensor that holds a node."""
        return wrap(node, ValueType.of(node.spec.dtype, self.device))

    def lift(self, x: Tensor) -> Tensor:
        """Return a tensor from outside as one of this level: an operand besides the function's own."""
        if x.device == self.device:
            return x
        known = self._lifted.get(id(x._value))
        if known is None:
            node = Node(op="input", spec=Spec(self.shape(x.shape), x.dtype))
            known = self._lifted[id(x._value)] = node, x, x._value, x._vtype, x._node
            self.outside.append(x._alias())
            self.inputs.append(node)
        return self.hold(known[0])

    def restore(self) -> bool:
        """Undo writes to tensors from outside; return whether there were any."""
        changed = False
        for _, x, value, kind, node in self._lifted.values():
            if x._vtype.device == self.device:
                x._set_value(wrap(value, kind))
                x._node, changed = node, True
        return changed


def plain_shape(shape: Sequence[Any]) -> Shape:
    """Return the lengths as integers: a program inside of another holds for those it was made for."""
    return tuple([int(n) for n in shape])


class _BodyValues(NodeValues):
    """Nodes of the function that a level traces."""

    def prepare(self, op: Op[...], call: Call) -> Callable[..., Any] | None:
        if op.ordered:
            raise CaptureError(
                f"{op.name} does more than compute, and its calls in a graph of the function would be in"
                f" another order, or left out."
            )
        return super().prepare(op, call)

    def lift(self, x: Any, device: Device) -> Any:
        level = levels()[device.index]
        assert isinstance(level, BodyLevel)
        return level.lift(x)

    def lift_operand(self, op: str, x: Any, device: Device) -> Any:
        return self.lift(x, device)

    def inner(self, device: Device) -> Device | None:
        return inner_of(device)


register_value_mode(BODY, _BodyValues())


def traced(
    function: Callable[..., Any], operands: Sequence[Spec], device: Device,
    shape: Callable[[Sequence[Any]], Shape] = plain_shape, symbols: Iterable[Symbol] = (),
    env: PlanEnv | None = None,
) -> tuple[SubGraph, list[Tensor]]:  # fmt: skip
    """Return the graph of a function of tensors, and the tensors from outside that it reads.

    These are its first inputs; ``operands`` are the others. ``function`` returns tensors. ``shape`` makes the
    lengths of a tensor from outside those of the graph, which has ``symbols``, known when it is traced, of
    ``env``. Raises ``ArgumentError`` where it writes to a tensor from outside.
    """
    level = BodyLevel(base_device(device), shape, env)
    own = [level.input(spec) for spec in operands]
    try:
        with level:
            results = [x if x.device == level.device else level.lift(x) for x in function(*own)]
    finally:
        changed = level.restore()
    if changed:
        raise ArgumentError("a tensor from outside is written to; return the new value instead.")
    inputs = (*level.inputs[len(own) :], *level.inputs[: len(own)])
    for k, node in enumerate(inputs):
        node.attrs = {"index": k}
    graph = Graph(inputs=inputs, outputs=tuple([x._value for x in results]))
    return SubGraph(graph, tuple(symbols)), level.outside


def graph_of(
    function: Callable[..., Sequence[Tensor]], specs: Sequence[Spec], symbols: Iterable[Symbol] = ()
) -> SubGraph:
    """Return the graph of a function of the device of its level, and of tensors, which reads no others."""
    here = levels()
    inner = here[-1].device if here else get_default_device()

    def run(*values: Tensor) -> Sequence[Tensor]:
        return function(levels()[-1].device, *values)

    graph, outside = traced(run, specs, inner, symbols=symbols)
    assert not outside, "a graph reads what is among its inputs"
    return graph
