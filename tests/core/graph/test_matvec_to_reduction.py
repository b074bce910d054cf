"""Products of one row become sums over neighbouring elements, with the same values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus.backend_interface.compilation import CompileRequest
from tensorbus.backend_interface.graph import Graph, Node
from tensorbus.dtypes import definition as dt
from tensorbus.executors.kernel_interpreter import Interpreting
from tensorbus.graph.verify import verify
from tensorbus.lowering.passes.matvec_to_reduction import matvec_to_reduction, where_adjacent
from tensorbus.ops.definition import Spec


def graph_of(x: tuple[int, ...], y: tuple[int, ...], dtype: dt.DType, turned: str) -> Graph:
    """Return a product whose operands lie with their last axes exchanged where ``turned`` names them."""
    inputs, operands = [], []
    for k, (name, shape) in enumerate(zip("xy", (x, y), strict=True)):
        lies = (*shape[:-2], shape[-1], shape[-2]) if name in turned else shape
        node = Node(op="input", attrs={"index": k}, spec=Spec(lies, dtype))
        inputs.append(node)
        if name in turned:
            axes = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
            node = Node(op="permute_dims", inputs=(node,), attrs={"axes": axes}, spec=Spec(shape, dtype))
        operands.append(node)
    batch = np.broadcast_shapes(x[:-2], y[:-2])
    out = Node(op="matmul", inputs=tuple(operands), spec=Spec((*batch, x[-2], y[-1]), dtype))
    return Graph(inputs=tuple(inputs), outputs=(out,))


def values(graph: Graph, device: str) -> Any:
    generator = np.random.default_rng(3)
    operands = [
        tb.asarray(generator.integers(-3, 4, n.spec.shape), device=device, dtype=n.spec.dtype)._value
        for n in graph.inputs
    ]
    (result,) = Interpreting(device).compile(CompileRequest(graph=graph, index=0))(operands)
    return np.asarray(result, dtype=np.float64)


SUMS = [
    ((1, 24), (24, 40), "y"), ((1, 1, 24), (24, 40), "y"), ((3, 1, 24), (3, 24, 5), "y"),
    ((40, 24), (24, 1), ""), ((2, 40, 24), (2, 24, 1), ""), ((1, 24), (24, 1), "y"), ((1, 24), (24, 1), "xy"),
    ((1, 0), (0, 4), "y"),
]  # fmt: skip
LEFT = [
    ((1, 24), (24, 40), ""), ((40, 24), (24, 1), "x"), ((2, 24), (24, 40), "y"), ((3, 1, 24), (24, 5), "y"),
    ((2, 1, 24), (1, 24, 5), "y"),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64, dt.bfloat16, dt.float16])
@pytest.mark.parametrize(("x", "y", "turned"), SUMS)
def test_a_row_times_a_matrix_is_a_sum(x: Any, y: Any, turned: str, dtype: dt.DType) -> None:
    graph = graph_of(x, y, dtype, turned)
    rewritten = verify(matvec_to_reduction(graph, where_adjacent))
    ops = {node.op for node in rewritten}
    assert "sum" in ops
    assert "matmul" not in ops
    assert rewritten.outputs[0].spec == graph.outputs[0].spec
    summed = next(node for node in rewritten if node.op == "sum")
    assert summed.spec.dtype is (dt.float64 if dtype is dt.float64 else dt.float32)
    np.testing.assert_array_equal(values(rewritten, "cpu"), values(graph, "cpu"))


@pytest.mark.parametrize("turned", ["", "y"])
def test_one_term_is_a_product_of_elements(turned: str) -> None:
    graph = graph_of((5, 1), (1, 7), dt.float32, turned)
    rewritten = verify(matvec_to_reduction(graph, where_adjacent))
    assert not {"matmul", "sum"} & {node.op for node in rewritten}
    np.testing.assert_array_equal(values(rewritten, "cpu"), values(graph, "cpu"))


@pytest.mark.parametrize(("x", "y", "turned"), LEFT)
def test_other_products_stay_what_they_are(x: Any, y: Any, turned: str) -> None:
    graph = graph_of(x, y, dt.float32, turned)
    rewritten = matvec_to_reduction(graph, where_adjacent)
    assert [node.op for node in rewritten] == [node.op for node in graph]


@pytest.mark.parametrize("dtype", [dt.int32, dt.complex64])
def test_integers_and_complex_numbers_stay_products(dtype: dt.DType) -> None:
    graph = graph_of((1, 8), (8, 4), dtype, "y")
    assert matvec_to_reduction(graph, where_adjacent).outputs[0].op == "matmul"
