"""Sample calls as programs of one op, by which executables are compared with the eager kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from tensorbus import Tensor, plugins
from tensorbus.backend_interface.compilation import CompileRequest
from tensorbus.backend_interface.graph import Graph, Node
from tensorbus.devices.device import Device, ValueType
from tensorbus.dtypes.definition import BY_NAME, DType
from tensorbus.executors.kernel_interpreter import Interpreting
from tensorbus.graph.verify import verify
from tensorbus.ops.definition import Op, Spec, table
from tensorbus.tensor.tensor import wrap
from tensorbus.testing.sample import samples_of
from tensorbus_conformance.agreement import difference, same_bits
from tensorbus_conformance.checks.expected import expected
from tensorbus_conformance.trial import Trial, array, caught

ULPS = 8
"""How far generated code may be from a device's library, in units of the largest element of a result."""


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


def differences(name: str, device: str, dtype: str) -> list[str]:
    """Compile each sample call of an op; return where that gives something else than the eager op.

    Where an op loses digits the two may lie further apart: then the results are held to the op's reference.
    """
    op, own = table[name], BY_NAME[dtype]
    found: list[str] = []
    if own not in op.dtypes:
        return found
    lowering = plugins.backend(device).lowering() or Interpreting(device)
    for trial in trials(op, device, own):
        if trial.sample.large or not runs(trial):
            continue
        tensors = trial.tensors()
        graph, values = graph_of(trial, tensors)
        made = lowering.compile(CompileRequest(graph=graph, index=0))(values)
        eager = trial.run(tensors)
        got = [
            array(wrap(v, ValueType.of(x.dtype, Device(device, 0)))) for v, x in zip(made, eager, strict=True)
        ]
        wrong = [_difference(mine, array(x)) for mine, x in zip(got, eager, strict=True)]
        if any(wrong) and expected(trial).problem(got) is not None:
            found += [f"{trial.title}: {text}" for text in wrong if text is not None]
    return found


def _difference(got: Any, wanted: Any) -> str | None:
    if same_bits(got, wanted):
        return None
    if wanted.dtype.kind in "biu":
        return difference(got, wanted, 0)
    wide = wanted.astype(np.complex128 if wanted.dtype.kind == "c" else np.float64)
    finite = np.abs(wide[np.isfinite(wide)])
    return difference(got, wide, ULPS, scale=float(finite.max()) if finite.size else 0.0)
