"""Programs run kernel by kernel give what the same ops give eagerly, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus.backend_interface.compilation import CompileRequest
from tensorbus.backend_interface.graph import Graph, Node
from tensorbus.devices.device import Device, ValueType
from tensorbus.dtypes import definition as dt
from tensorbus.dtypes.definition import BY_NAME
from tensorbus.executors.kernel_interpreter import Interpreting
from tensorbus.ops import lazy_families
from tensorbus.ops.definition import Spec, table
from tensorbus.tensor.tensor import wrap
from tensorbus_conformance.agreement import same_bits
from tensorbus_conformance.trial import array

from one_op import graph_of, runs, trials

lazy_families.load_all()


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool", "complex64"])
@pytest.mark.parametrize("device", ["cpu", "refdev"])
@pytest.mark.parametrize("op", [op.name for op in table])
def test_samples_are_bit_equal_to_eager(op: str, device: str, dtype: str) -> None:
    own = BY_NAME[dtype]
    if own not in table[op].dtypes:
        return
    for trial in trials(table[op], device, own):
        if trial.sample.large or not runs(trial):
            continue
        tensors = trial.tensors()
        graph, values = graph_of(trial, tensors)
        result = Interpreting(device).compile(CompileRequest(graph=graph, index=0))(values)
        for value, wanted in zip(result, trial.run(tensors), strict=True):
            got = wrap(value, ValueType.of(wanted.dtype, Device(device, 0)))
            assert same_bits(array(got), array(wanted)), trial.title


def input_node(k: int, *shape: int, **attrs: Any) -> Node:
    return Node(op="input", attrs={"index": k, **attrs}, spec=Spec(shape, dt.float32))


def apply(name: str, *inputs: Node, **attrs: Any) -> Node:
    spec = table[name].specs(tuple(x.spec for x in inputs), attrs)[0]
    return Node(op=name, inputs=inputs, attrs=attrs, spec=spec)


def run(device: str, inputs: tuple[Node, ...], *outputs: Node) -> Any:
    return Interpreting(device).compile(CompileRequest(graph=Graph(inputs=inputs, outputs=outputs), index=0))


def test_numbers_come_anew_with_each_run() -> None:
    x, s = input_node(0, 3), input_node(1, scalar=True)
    program = run("refdev", (x, s), apply("multiply", x, s), apply("add", s, s), s)
    value = tb.asarray([1.0, 2.0, 3.0], device="refdev")._value
    for number in (2.0, 0.5):
        out = [wrap(v, ValueType.of(dt.float32, Device("refdev"))).tolist() for v in program([value, number])]
        assert out == [[number, 2 * number, 3 * number], 2 * number, number]


def test_what_is_needed_no_more_is_let_go() -> None:
    x = input_node(0, 4)
    first = apply("add", x, x)
    program = run("cpu", (x,), apply("multiply", apply("exp", first), x))
    lines = program.stages()["calls"].splitlines()
    assert sum("; del " in line for line in lines) == 2


def test_a_failing_kernel_is_told_with_its_op() -> None:
    x = input_node(0, 2, 3)
    program = run("cpu", (x,), apply("add", x, x))
    with pytest.raises(tb.errors.DeviceError, match=r"add\(float32\[2, 3\]"):
        program(["no array"])


def test_an_error_of_the_data_is_that_of_the_eager_op() -> None:
    x = input_node(0, 2, 2)
    with pytest.raises(tb.errors.LinAlgError):
        run("cpu", (x,), apply("cholesky", x))([-np.eye(2, dtype="f4")])
