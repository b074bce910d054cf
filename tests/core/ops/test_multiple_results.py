"""Ops of multiple results: calls, gradients of some and of all, capture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import tensorbus as tb
from tensorbus.decompose.tracer import trace
from tensorbus.dtypes.definition import FLOATING, float32
from tensorbus.graph.verify import GraphError, verify
from tensorbus.ops.definition import Op, Spec, table


def _define(name: str, **rules: Any) -> Op[...]:
    return Op(
        name=name, family="pair", operands=("x",), arguments=lambda x: ((x,), {}),
        results=("square", "triple"), infer=lambda specs: (specs[0], specs[0]), dtypes=FLOATING, **rules,
    )  # fmt: skip


@pytest.fixture(params=["own derivative", "through the decomposition"])
def pair(request: pytest.FixtureRequest) -> Iterator[Op[...]]:
    rules: dict[str, Any] = {"decompose": lambda x: (x * x, x * 3)}
    if request.param == "own derivative":
        rules["vjp"] = lambda g, out, x: (g[0] * 2 * x + g[1] * 3 + 0 * out[0],)
    op = table.add(_define("a_pair", **rules))
    yield op
    table.discard("a_pair")


def test_a_call_returns_a_named_tuple(pair: Op[...]) -> None:
    result: Any = pair(tb.asarray([2.0, 3.0]))
    assert (result.square.tolist(), result.triple.tolist()) == ([4.0, 9.0], [6.0, 9.0])
    assert result._fields == ("square", "triple")


def test_gradients_of_one_result_and_of_all(pair: Op[...]) -> None:
    x = tb.asarray([2.0, 3.0]).requires_grad_()
    result: Any = pair(x)
    (result.square.sum() + result.triple.sum()).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [7.0, 9.0]
    result = pair(x)
    (alone,) = tb.grad(result.triple.sum(), x)
    assert alone is not None
    assert alone.tolist() == [3.0, 3.0]


def test_one_result_used_twice_and_second_derivatives(pair: Op[...]) -> None:
    x = tb.asarray([2.0]).requires_grad_()
    result: Any = pair(x)
    (first,) = tb.grad(result.square * result.square, x, create_graph=True)
    assert first is not None
    assert first.tolist() == [32.0]
    (second,) = tb.grad(first, x)
    assert second is not None
    assert second.tolist() == [48.0]


def test_gradients_with_respect_to_a_result(pair: Op[...]) -> None:
    x = tb.asarray([2.0]).requires_grad_()
    result: Any = pair(x)
    y = result.square * 5
    assert [g.tolist() for g in tb.grad(y, (result.square, x)) if g is not None] == [[5.0], [20.0]]


def test_capture_takes_the_results_apart() -> None:
    op = table.add(_define("a_prim_pair"))
    try:
        graph = trace("a_prim_pair", [Spec((2,), float32)], {})
        assert [node.op for node in graph] == ["input", "a_prim_pair", "result", "result"]
        verify(graph)
        broken = graph.outputs[1]
        object.__setattr__(broken, "spec", Spec((3,), float32))
        with pytest.raises(GraphError, match="not what the op gives"):
            verify(graph)
    finally:
        table.discard(op.name)
