"""Simplifying keeps every bit: redundant nodes go, and nodes that only seem redundant stay."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import pytest
import tensorbus as tb
from tensorbus.backend_interface.graph import Graph, Node
from tensorbus.decompose.decompose import decompose
from tensorbus.decompose.tracer import PRIMS, trace
from tensorbus.dtypes import definition as dt
from tensorbus.graph.passes.simplify import simplify
from tensorbus.graph.verify import verify
from tensorbus.ops.definition import Spec
from tensorbus.ops.movement.movement import broadcast_to


def ops(function: Callable[..., Any], *shapes: tuple[int, ...], dtype: dt.DType = dt.float32) -> list[str]:
    """Return the ops of the simplified graph of a function."""
    inputs = tuple(Node(op="input", attrs={"index": k}, spec=Spec(s, dtype)) for k, s in enumerate(shapes))
    result = function(*map(PRIMS.wrap, inputs))
    outputs = result if isinstance(result, tuple) else (result,)
    graph = Graph(inputs=inputs, outputs=tuple(x._value for x in outputs))
    simple = verify(simplify(decompose(graph, lambda op: op == "softmax")))
    return [n.op for n in simple if n.op not in ("input", "constant")]


S = (3, 4)


@pytest.mark.parametrize(
    ("function", "left"),
    [
        (lambda x: x * 1, []), (lambda x: x / 1, []), (lambda x: x - 0.0, []), (lambda x: x + -0.0, []),
        (lambda x: x + 0.0, ["add"]), (lambda x: 0.0 - x, ["subtract"]), (lambda x: x * 0, ["multiply"]),
        (lambda x: tb.negative(tb.negative(x)), []), (lambda x: x - -0.0, ["subtract"]),
        (lambda x: tb.reshape(tb.reshape(x, (12,)), S), []),
        (lambda x: tb.reshape(tb.reshape(x, (2, 6)), (12,)), ["reshape"]),
        (lambda x: x.mT.mT, []), (lambda x: x.to(dt.float32), []), (lambda x: broadcast_to(x, S), []),
        (lambda x: x[0:3], []), (lambda x: x[0:2], ["slice"]),
        (lambda x: (tb.exp(x), tb.exp(x)), ["exp"]),
        (lambda x: (tb.exp(x) * 2, tb.exp(x) * 2.0), ["exp", "multiply"]),
        (lambda x: (x * 0.0, x * -0.0), ["multiply", "multiply"]),
        (lambda x: tb.exp(x.mT), ["exp", "permute_dims"]),
        (lambda x: x[:, 0:1].sum(axis=1, keepdims=True), ["slice"]),
    ],
)  # fmt: skip
def test_what_does_nothing_goes_and_the_rest_stays(function: Callable[..., Any], left: list[str]) -> None:
    assert ops(function, S) == left


def test_composites_are_broken_down_except_for_those_kept() -> None:
    x = Node(op="input", attrs={"index": 0}, spec=Spec(S, dt.float32))
    soft = Node(op="softmax", inputs=(x,), attrs={"axis": 1}, spec=x.spec)
    root = Node(
        op="mean", inputs=(soft,), attrs={"axis": (1,), "keepdims": False}, spec=Spec((3,), dt.float32)
    )
    graph = Graph(inputs=(x,), outputs=(root,))
    retained = [n.op for n in verify(decompose(graph, {"softmax"}.__contains__))]
    assert retained[:2] == ["input", "softmax"]
    assert "mean" not in retained
    assert "exp" in [n.op for n in verify(decompose(graph, lambda op: False))]


def test_results_of_an_op_of_several_stay_with_it() -> None:
    graph = trace("slogdet", (Spec((3, 3), dt.float32),), {})
    rewritten = verify(decompose(graph, lambda op: False))
    assert [n.op for n in rewritten] == ["input", "slogdet", "result", "result"]


def test_integers_lose_what_floats_must_keep() -> None:
    assert ops(lambda x: x + 0, S, dtype=dt.int32) == []


def test_sums_of_batches_of_products_are_one_product() -> None:
    batch = ops(lambda x, g: tb.matmul(x.mT, g).sum(axis=0), (5, 8, 3), (5, 8, 4))
    assert batch.count("matmul") == 1
    assert "sum" not in batch
    assert ops(lambda x, w: tb.matmul(x, w), (5, 8, 3), (3, 4)) == ["reshape", "matmul", "reshape"]


@pytest.mark.parametrize(
    "shapes", [((4, 3), (5, 3, 1)), ((4, 3), (2, 5, 3, 1)), ((1, 3), (5, 3, 1))], ids=str
)
def test_columns_that_one_matrix_takes_are_one_product(shapes: Any) -> None:
    rows = ops(tb.matmul, *shapes)
    assert rows.count("matmul") == 1
    assert {*rows} <= {"matmul", "reshape", "permute_dims"}
    m, x = (tb.reshape(tb.arange(prod(s), dtype="float32", device="cpu"), s) for s in shapes)
    right = [(m @ column).tolist() for column in tb.reshape(x, (-1, 3, 1))]
    assert tb.reshape(tb.compile(tb.matmul)(m, x), (-1, shapes[0][0], 1)).tolist() == right


@pytest.mark.parametrize(
    "shapes", [((4, 3), (5, 3, 2)), ((5, 4, 3), (5, 3, 1)), ((4, 3), (0, 3, 1))], ids=str
)
def test_other_batches_of_products_stay(shapes: Any) -> None:
    assert ops(tb.matmul, *shapes) in (["matmul"], ["constant", "broadcast_to"])


def test_a_product_that_is_also_wanted_stays() -> None:
    def both(x: Any, g: Any) -> Any:
        product = tb.matmul(x.mT, g)
        return product, product.sum(axis=0)

    assert "sum" in ops(both, (5, 8, 3), (5, 8, 4))


def test_constants_fold_in_the_precision_of_their_dtype() -> None:
    third = Node(op="constant", attrs={"value": 1.0}, spec=Spec((), dt.float32))
    three = Node(op="constant", attrs={"value": 3.0}, spec=Spec((), dt.float32))
    root = Node(op="divide", inputs=(third, three), spec=Spec((), dt.float32))
    (outputs,) = simplify(Graph(inputs=(), outputs=(root,))).outputs
    assert outputs.op == "constant"
    assert outputs.attrs["value"] == 0.3333333432674408
    zero = Node(op="constant", attrs={"value": 0.0}, spec=Spec((), dt.float32))
    root = Node(op="divide", inputs=(third, zero), spec=Spec((), dt.float32))
    assert simplify(Graph(inputs=(), outputs=(root,))).outputs[0].op == "divide"
