"""From a function of a score and its indices to a score program: captured once, as a graph of scalars.

The function runs on values that stand for one score and the numbers of its batch, head, query and key. What
it does to these becomes nodes; what it does to tensors from outside alone is done there and then, with a
history; and a tensor from outside that meets one of the values is captured.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final

from ...autograd.engine import grad
from ...backend_interface.graph import Graph, Node
from ...decompose.tracer import GraphTracer
from ...devices.device import Device
from ...dispatch.modes import Mode, base_device, is_value_mode
from ...dtypes import definition as dt
from ...dtypes.definition import DType
from ...errors import ArgumentError, DeviceError, DtypeError, ShapeError, UnsupportedOpError
from ...ops.definition import Op, Spec, table
from ...ops.nn.score_program import LEAD, CapturedRead, ScoreProgram
from ...tensor.grad_mode import GradMode
from ...tensor.tensor import Tensor

Mod = Callable[..., Any]
_TRACER: Final = GraphTracer("score", lambda op: op.is_prim)
_ROLES: Final = ("score_mod", "mask_mod")


def _takes(function: Mod, count: int) -> bool:
    """Return whether a function may be called with so many arguments, as far as can be said."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:
        pass
    return True


@dataclass(slots=True)
class Captured:
    """A program, and the tensors that it captured, in order.

    ``whole``: the functions computed nothing of tensors from outside alone.
    """

    program: ScoreProgram
    tensors: tuple[Tensor, ...]
    whole: bool = True


def capture(score_mod: Mod | None, mask_mod: Mod | None, dtype: DType, device: Device) -> Captured:
    """Return the program of both functions, for scores of ``dtype``, and what they captured on ``device``.

    Raises ``UnsupportedOpError`` for an op that has no meaning for a single score, ``DtypeError`` for a mask
    that is not bool, and ``DeviceError`` for a captured tensor that lies elsewhere.
    """
    inputs = [_input(k, dtype if k == 0 else dt.int32) for k in range(LEAD)]
    mode = _Capture(device, inputs)
    scalars = _Scalars()
    values = [_TRACER.wrap(x) for x in inputs]
    outputs = [inputs[0]]
    if score_mod is not None:
        score = mode.call("score_mod", score_mod, values)
        outputs = [scalars.result("score_mod", score if score.spec.dtype is dtype else _cast(score, dtype))]
    if mask_mod is not None:
        counts = mode.call("mask_mod", mask_mod, values[1:])
        if counts.spec.dtype is not dt.bool_:
            raise DtypeError(
                f"mask_mod returned {counts.spec.dtype}, and must return a bool: whether the score of q_idx"
                " and kv_idx counts. A function that changes scores is a score_mod."
            )
        outputs.append(scalars.result("mask_mod", counts))
    graph = Graph(inputs=tuple(inputs), outputs=tuple(outputs))
    wanted = {k for k, x in enumerate(mode.tensors) if x.dtype.is_floating and _is_varied(x)}
    derivative, reads = _derivative(graph, wanted)
    program = ScoreProgram(
        graph=graph, masked=mask_mod is not None, derivative=derivative, reads=tuple(reads)
    )
    return Captured(program, tuple(mode.tensors), mode.whole)


def _is_varied(x: Tensor) -> bool:
    """Return whether there may be a derivative by a tensor; one that stands for others may have a tangent."""
    return x._node is not None or is_value_mode(x.device.type)


def _input(index: int, dtype: DType, shape: tuple[int, ...] = ()) -> Node:
    return Node(op="input", attrs={"index": index}, spec=Spec(shape, dtype))


def _cast(node: Node, dtype: DType) -> Node:
    return Node(op="cast", inputs=(node,), attrs={"dtype": dtype}, spec=Spec(node.spec.shape, dtype))


class _Capture(Mode):
    """Makes nodes of the ops that one of the values takes part in, and captures the tensors they meet."""

    def __init__(self, device: Device, inputs: list[Node]) -> None:
        self.device, self.inputs = device, inputs
        self.tensors: list[Tensor] = []
        self.whole = True
        self._lifted: dict[int, Tensor] = {}
        self._views: dict[int, tuple[Tensor, Op[...], Tensor, dict[str, Any]]] = {}

    def call(self, role: str, function: Mod, values: Sequence[Tensor]) -> Node:
        """Return what a user's function makes of the values."""
        try:
            with self:
                result = function(*values)
        except TypeError as error:
            if _takes(function, len(values)):
                raise
            parameters = ("score", "b", "h", "q_idx", "kv_idx")[-len(values) :]
            raise ArgumentError(f"{role} is a function of ({', '.join(parameters)}): {error}.") from error
        if isinstance(result, (bool, int, float)):
            kind = dt.bool_ if isinstance(result, bool) else dt.float32
            return Node(op="constant", attrs={"value": result}, spec=Spec((), kind))
        if not isinstance(result, Tensor):
            raise ArgumentError(f"{role} must return a tensor of shape (), got {type(result).__name__}.")
        node: Node = self._lift(result)._value
        return node

    def apply(self, op: Op[...], operands: Sequence[Any], attrs: dict[str, Any]) -> Any:
        """Record an op of the values; hand on what is done to tensors from outside."""
        mine = any(isinstance(x, Tensor) and x.device == _TRACER.device for x in operands)
        if not mine and attrs.get("device") != _TRACER.device:
            if not _is_plain_view(op, operands, attrs):
                self.whole = False
                return NotImplemented
            view = self.below(op, operands, attrs)
            self._views[id(view)] = view, op, operands[0], attrs
            return view
        lifted = [self._lift(x) if isinstance(x, Tensor) else x for x in operands]
        return table.run(op.name, lifted, attrs, below=True)

    def _lift(self, x: Tensor) -> Tensor:
        if x.device == _TRACER.device:
            return x
        known = self._lifted.get(id(x))
        if known is None and id(x) in self._views:
            _, op, source, attrs = self._views[id(x)]
            known = self._lifted[id(x)] = table.run(op.name, [self._lift(source)], attrs, below=True)
        if known is None:
            if base_device(x.device) != base_device(self.device):
                raise DeviceError(
                    f"a tensor of shape {x.shape} that score_mod or mask_mod captured is on {x.device};"
                    f" query, key and value are on {self.device}. Move it with .to({str(self.device)!r})."
                )
            node = _input(len(self.inputs), x.dtype, x.shape)
            self.inputs.append(node)
            self.tensors.append(x)
            known = self._lifted[id(x)] = _TRACER.wrap(node)
        return known


def _is_plain_view(op: Op[...], operands: Sequence[Any], attrs: Mapping[str, Any]) -> bool:
    """Return whether an element of the result of a view lies where a sum or two of its index say."""
    if op.name == "reshape":
        return [n for n in operands[0].shape if n != 1] == [n for n in attrs["shape"] if n != 1]
    return op.name in ("permute_dims", "slice")


def _derivative(graph: Graph, wanted: set[int]) -> tuple[Graph, list[CapturedRead]]:
    """Return the derivative of a program by its score, and by what it reads of the tensors ``wanted``."""
    seed = _input(0, graph.outputs[0].spec.dtype)
    learned = {graph.inputs[k + LEAD]: k for k in wanted}
    places: list[Node] = []

    def run() -> list[Any]:
        values: dict[Node, Tensor] = {x: _TRACER.wrap(x) for x in graph.inputs}
        leaves = [values[graph.inputs[0]].requires_grad_()]
        places.append(graph.inputs[0])
        with GradMode(True):
            for node in Graph(inputs=graph.inputs, outputs=graph.outputs[:1]):
                read = learned if not node.spec.shape else {}
                if node in read or (node.op == "gather" and node.inputs[0] in learned):
                    values[node] = values.get(node, _TRACER.wrap(node)).requires_grad_()
                    leaves.append(values[node])
                    places.append(node)
                elif node not in values:
                    values[node] = _again(node, values)
            out = values[graph.outputs[0]]
            if out._node is None:
                return [None] * len(leaves)
            return list(grad([out], leaves, [_TRACER.wrap(seed)], allow_unused=True))

    gradients = _TRACER.run(run)
    scalars = _Scalars()
    outputs = [
        Node(op="constant", attrs={"value": 0.0}, spec=seed.spec) if gradients[0] is None
        else scalars.result("score_mod", gradients[0]._value)
    ]  # fmt: skip
    reads: list[CapturedRead] = []
    for node, gradient in zip(places[1:], gradients[1:], strict=True):
        if gradient is None:
            continue
        x, *indices = node.inputs if node.op == "gather" else (node,)
        first = len(outputs)
        outputs += [scalars.result("score_mod", gradient._value), *indices]
        at = tuple(range(first + 1, len(outputs)))
        reads.append(CapturedRead(captured=learned[x], gradient=first, indices=at))
    return Graph(inputs=(seed, *graph.inputs), outputs=tuple(outputs)), reads


def _again(node: Node, values: Mapping[Node, Tensor]) -> Tensor:
    """Return what a node of a program makes of tensors."""
    if node.op == "constant":
        return _TRACER.wrap(node)
    result: Tensor = table.run(node.op, [values[x] for x in node.inputs], node.attrs)
    return result


@dataclass(slots=True)
class _Scalars:
    """Rewrites nodes so that all of them are scalars: each element that is read, where it is read.

    Views and rows of captured tensors become reads of their elements.
    """

    known: dict[tuple[int, tuple[int, ...]], Node] = field(default_factory=dict)
    alive: list[Node] = field(default_factory=list)

    def result(self, role: str, node: Node) -> Node:
        """Return a node of the user's function as a scalar."""
        if node.spec.shape:
            raise ShapeError(
                f"{role} returned a tensor of shape {node.spec.shape}; it is a function of one score, and"
                " returns one value, of shape (). Index captured tensors by all of their axes."
            )
        return self.element(role, node, ())

    def element(self, role: str, node: Node, index: tuple[Node, ...]) -> Node:
        """Return the element of a node at an index."""
        key = id(node), tuple([id(i) for i in index])
        element = self.known.get(key)
        if element is None:
            element = self.known[key] = self._new_element(role, node, index)
            self.alive += [node, *index]  # whose ids are keys
        return element

    def _new_element(self, role: str, node: Node, index: tuple[Node, ...]) -> Node:
        op, attrs = node.op, node.attrs
        if op == "input":
            return node if not index else _node("gather", (node, *index))
        if op == "constant" or (op == "full" and not node.inputs):
            return Node(op="constant", attrs={"value": attrs["value"]}, spec=Spec((), node.spec.dtype))
        if op in table and table[op].family in ("elementwise", "cast"):
            operands = tuple([self._aligned(role, x, index) for x in node.inputs])
            return (
                operands[2] if op == "where" and _counts_from_zero(*operands) else _node(op, operands, attrs)
            )
        if op == "gather":
            x, *indices = node.inputs
            rank = len(indices[0].spec.shape)
            places = tuple([self.element(role, i, index[:rank]) for i in indices])
            return self.element(role, x, (*places, *index[rank:]))
        if op == "iota":
            kind = node.spec.dtype
            step = _node("multiply", (_as(index[0], kind), _number(attrs["step"], kind)))
            return _node("add", (step, _number(attrs["start"], kind)))
        if op == "broadcast_to":
            return self._aligned(role, node.inputs[0], index)
        if op == "permute_dims":
            axes = attrs["axes"]
            return self.element(role, node.inputs[0], tuple([index[axes.index(k)] for k in range(len(axes))]))
        if op == "slice":
            moved = [
                _plus(_times(i, step), start)
                for i, start, step in zip(index, attrs["start"], attrs["step"], strict=True)
            ]
            return self.element(role, node.inputs[0], tuple(moved))
        if op == "flip":
            back = [
                _node("subtract", (_number(n - 1, dt.int64), i)) if k in attrs["axis"] else i
                for k, (i, n) in enumerate(zip(index, node.spec.shape, strict=True))
            ]
            return self.element(role, node.inputs[0], tuple(back))
        if op == "reshape":
            return self.element(
                role, node.inputs[0], _reshaped(index, node.spec.shape, node.inputs[0].spec.shape)
            )
        raise UnsupportedOpError(
            f"{role} uses {op!r}, which is not made element by element. It may use elementwise ops, and"
            " index captured tensors; compute what else it needs outside, and capture that."
        )

    def _aligned(self, role: str, x: Node, index: tuple[Node, ...]) -> Node:
        """Return the element of what is broadcast to the shape that ``index`` is of."""
        lead = len(index) - len(x.spec.shape)
        zero = _number(0, dt.int64)
        at = tuple([zero if n == 1 else i for n, i in zip(x.spec.shape, index[lead:], strict=True)])
        return self.element(role, x, at)


def _node(op: str, inputs: tuple[Node, ...], attrs: Mapping[str, Any] | None = None) -> Node:
    specs = table[op].specs(tuple([x.spec for x in inputs]), attrs or {})
    return Node(op=op, inputs=inputs, attrs=dict(attrs or {}), spec=specs[0])


def _counts_from_zero(negative: Node, wrapped: Node, index: Node) -> bool:
    """Return whether an index that may count from the end is one of a score's own numbers: those never do.

    It is ``wrapped``, the index plus a length, where the signs of the two differ.
    """
    number = index.inputs[0] if index.op == "cast" else index
    return (
        number.op == "input" and 0 < number.attrs["index"] < LEAD
        and wrapped.op == "add" and wrapped.inputs[0] is index and wrapped.inputs[1].op == "constant"
        and negative.op == "less" and negative.inputs[0].op == "bitwise_xor"
        and negative.inputs[0].inputs == (index, wrapped)
    )  # fmt: skip


def _number(value: Any, dtype: DType) -> Node:
    return Node(op="constant", attrs={"value": value}, spec=Spec((), dtype))


def _as(node: Node, dtype: DType) -> Node:
    return node if node.spec.dtype is dtype else _cast(node, dtype)


def _plus(node: Node, value: int) -> Node:
    return _node("add", (node, _number(value, dt.int64))) if value else node


def _times(node: Node, value: int) -> Node:
    return node if value == 1 else _node("multiply", (node, _number(value, dt.int64)))


def _reshaped(index: Sequence[Node], shape: Sequence[int], own: Sequence[int]) -> tuple[Node, ...]:
    """Return the index into ``own`` of the element at ``index`` of the same elements as ``shape``."""
    if [n for n in shape if n != 1] == [n for n in own if n != 1]:
        rest = [i for i, n in zip(index, shape, strict=True) if n != 1]
        return tuple([_number(0, dt.int64) if n == 1 else rest.pop(0) for n in own])
    place = _number(0, dt.int64)
    for axis, i in enumerate(index):
        place = _node("add", (place, _times(i, prod(shape[axis + 1 :]))))
    tensors = []
    for axis, n in enumerate(own):
        tail = prod(own[axis + 1 :])
        at = place if tail == 1 else _node("floor_divide", (place, _number(tail, dt.int64)))
        tensors.append(at if axis == 0 else _node("remainder", (at, _number(n, dt.int64))))
    return tuple(tensors)
