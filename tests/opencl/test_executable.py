"""Compiled programs on opencl: launches that follow each other without a wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import plugins
from tensorbus.backend_interface.compilation import CompileRequest
from tensorbus.backend_interface.graph import Graph, Node
from tensorbus.devices.device import Device, ValueType
from tensorbus.dtypes import definition as dt
from tensorbus.dtypes.definition import DType
from tensorbus.errors import IndexingError
from tensorbus.ops.definition import Spec, table
from tensorbus.tensor.tensor import wrap

from error_bounds import assert_within, gamma, of_sum

RNG = np.random.default_rng(5)


def input_node(k: int, *shape: int, dtype: DType = dt.float32, **attrs: Any) -> Node:
    return Node(op="input", attrs={"index": k, **attrs}, spec=Spec(shape, dtype))


def apply(name: str, *inputs: Node, **attrs: Any) -> Node:
    spec = table[name].specs(tuple(x.spec for x in inputs), attrs)[0]
    return Node(op=name, inputs=inputs, attrs=attrs, spec=spec)


def number(value: float) -> Node:
    return Node(op="constant", attrs={"value": value}, spec=Spec((), dt.float32))


def compiled(inputs: tuple[Node, ...], *outputs: Node, replaces: Mapping[int, int] | None = None) -> Any:
    lowering = plugins.backend("opencl").lowering()
    assert lowering is not None
    order = CompileRequest(graph=Graph(inputs=inputs, outputs=outputs), index=0, replaces=replaces or {})
    return lowering.compile(order)


def floats(*shape: int) -> Any:
    return RNG.normal(size=shape).astype("f4")


def put(x: Any) -> Any:
    return tb.asarray(x, device="opencl")._value


def got(value: Any, dtype: DType = dt.float32) -> Any:
    return wrap(value, ValueType.of(dtype, Device("opencl", 0))).numpy()


def test_results_are_those_of_numpy() -> None:
    x, y = input_node(0, 7, 5), input_node(1, 5)
    inner = apply("multiply", apply("add", x, y), y)
    program = compiled((x, y), inner, apply("sum", inner, axis=(1,), keepdims=False), x)
    a, b = floats(7, 5), floats(5)
    for _ in range(3):
        product, total, same = program([put(a), put(b)])
        exact = (a.astype("f8") + b) * b
        terms = (abs(a) + abs(b)) * abs(b)
        assert_within(got(product), exact, gamma(2, "float32") * terms)
        assert_within(got(total), exact.sum(1), of_sum(terms, 1, "float32"))
        np.testing.assert_array_equal(got(same), a)


@pytest.mark.parametrize(
    "view", [lambda x: tb.permute_dims(x, (1, 0)), lambda x: x[2:, :], lambda x: x[::-1]]
)
def test_inputs_come_in_any_layout(view: Any) -> None:
    whole = tb.asarray(floats(6, 6), device="opencl")
    x = view(whole)
    node = input_node(0, *x.shape)
    program = compiled((node,), apply("add", node, number(1.0)), apply("permute_dims", node, axes=(1, 0)))
    more, turned = program([x._value])
    np.testing.assert_array_equal(got(more), x.numpy() + 1)
    np.testing.assert_array_equal(got(turned), x.numpy().T)
    plain = put(x.numpy())
    np.testing.assert_array_equal(got(program([plain])[0]), x.numpy() + 1)


def test_numbers_come_anew_with_each_run() -> None:
    x, s = input_node(0, 5), input_node(1, scalar=True)
    program = compiled((x, s), apply("multiply", x, s))
    a = floats(5)
    for value in (0.5, 3, -2.25):
        np.testing.assert_array_equal(got(program([put(a), value])[0]), a * np.float32(value))


def test_kernels_of_the_host_stand_between_generated_ones() -> None:
    x = input_node(0, 4, 4)
    inner = apply("inv", apply("add", x, number(1.0)))
    program = compiled((x,), apply("multiply", inner, number(2.0)), inner)
    a = floats(4, 4) + 4 * np.eye(4, dtype="f4")
    doubled, plain = program([put(a)])
    inverse = np.linalg.inv(a.astype("f8") + 1)
    bound = gamma(4 * 4, "float32") * np.linalg.cond(a + 1) * np.linalg.norm(inverse, 2)
    assert_within(got(plain), inverse, bound)
    np.testing.assert_array_equal(got(doubled), got(plain) * 2)


def test_a_bad_index_is_reported_when_it_is_waited_for() -> None:
    rows, at = input_node(0, 50, 4), input_node(1, 6, dtype=dt.int64)
    program = compiled((rows, at), apply("gather", rows, at))
    a = floats(50, 4)
    (out,) = program([put(a), put(np.array([0, 1, 2, 3, 50, 4]))])
    with pytest.raises(IndexingError, match=r"gather.*50"):
        got(out)
    (out,) = program([put(a), put(np.array([0, 1, 2, 3, 49, 4]))])
    np.testing.assert_array_equal(got(out), a[[0, 1, 2, 3, 49, 4]])


def test_the_kernels_of_a_program_are_kept_on_disk(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORBUS_CACHE_DIR", str(tmp_path))
    x = input_node(0, 3, 5)
    names = ("exp", "tanh", "sqrt")
    outputs = [apply("sum", apply(n, x), axis=(1,), keepdims=False) for n in names]
    compiler = plugins.backend("opencl").runtime.compiler
    compiler.loaded._known.clear()
    compiled((x,), *outputs)
    before = compiler.built
    compiler.loaded._known.clear()
    program = compiled((x,), *outputs)
    assert compiler.built == before
    a = np.abs(floats(3, 5))
    roots = np.sqrt(a.astype("f8"))
    assert_within(got(program([put(a)])[2]), roots.sum(1), of_sum(roots, 1, "float32"))
