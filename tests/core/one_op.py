"""Sample calls as programs of one op, by which executables are compared with the eager kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tensorbus import Tensor
from tensorbus.backend_interface.graph import Graph, Node
from tensorbus.dtypes.definition import DType
from tensorbus.graph.verify import verify
from tensorbus.ops.definition import Op, Spec, table
from tensorbus.testing.sample import samples_of
from tensorbus_conformance.trial import Trial, caught


def trials(op: Op[...], device: str, dtype: DType) -> Iterator[Trial]:
    """Yield the sample calls of an op that are no bad calls."""
    for place, sample in enumerate(samples_of(op)):
        if sample.raises is None and (sample.dtypes is None or dtype in sample.dtypes):
            yield Trial(op=op, device=device, dtype=dtype, sample=sample, place=place)


def graph_of(trial: Trial, tensors: list[Tensor]) -> tuple[Graph, list[Any]]:
    """Return the call as a graph, and the values of its inputs."""
    bound = trial.bind(tensors)
    inputs: list[Node] = []
    values: list[Any] = []
    nodes: list[Node] = []
    casts = bound.plan.casts or (None,) * len(bound.operands)
    computed = bound.plan.computed
    for k, x in enumerate(bound.operands):
        if not isinstance(x, Tensor):
            nodes.append(Node(op="constant", attrs={"value": x}, spec=Spec((), computed[k])))
            continue
        node = Node(op="input", attrs={"index": len(inputs)}, spec=Spec(x.shape, x.dtype))
        inputs.append(node)
        values.append(x._value)
        target = casts[k]
        if target is not None:
            node = Node(op="cast", inputs=(node,), attrs={"dtype": target}, spec=Spec(x.shape, target))
        nodes.append(node)
    attrs = {k: v for k, v in bound.attrs.items() if k != "device"}
    specs = table[trial.op.name].specs(tuple(n.spec for n in nodes), attrs)
    root = Node(op=trial.op.name, inputs=tuple(nodes), attrs=attrs, spec=specs[0])
    outputs: tuple[Node, ...] = (root,)
    if trial.op.results:
        outputs = tuple(
            Node(op="result", inputs=(root,), attrs={"index": k}, spec=s) for k, s in enumerate(specs)
        )
    return verify(Graph(inputs=tuple(inputs), outputs=outputs)), values


def runs(trial: Trial) -> bool:
    """Return whether the device can run the call at all."""
    return caught(lambda: trial.run(trial.tensors())) is None
