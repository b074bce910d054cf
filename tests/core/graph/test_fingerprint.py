"""The fingerprint by which a program is cached: different programs never share one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tensorbus.backend_interface.graph import Graph, Node
from tensorbus.dtypes import definition as dt
from tensorbus.graph.fingerprint import name_of
from tensorbus.ops.definition import Spec, table
from tensorbus.ops.elementwise.family import elementwise_op

F = dt.float32


def input_node(index: int = 0) -> Node:
    return Node(op="input", attrs={"index": index}, spec=Spec((3,), F))


def apply(name: str, *inputs: Node, **attrs: Any) -> Node:
    spec = table[name].specs(tuple(x.spec for x in inputs), attrs)[0]
    return Node(op=name, inputs=inputs, attrs=attrs, spec=spec)


def adding(value: Any) -> Graph:
    x = input_node()
    number = Node(op="constant", attrs={"value": value}, spec=Spec((), F))
    return Graph(inputs=(x,), outputs=(apply("add", x, number),))


def name(graph: Graph) -> str:
    name = name_of(graph)
    assert name is not None
    return name


def test_equal_graphs_share_a_name() -> None:
    assert name(adding(2.5)) == name(adding(2.5))


def test_numbers_of_other_types_or_signs_have_other_names() -> None:
    assert len({name(adding(v)) for v in (1, 1.0, True, 0.0, -0.0, float("nan"), 1 + 0j)}) == 7


def test_what_is_computed_again_has_another_name() -> None:
    graph = adding(1.0)
    (out,) = graph.outputs
    assert name(graph) != name(Graph(inputs=graph.inputs, outputs=(replace(out, recompute_tag=1),)))


def test_the_order_of_inputs_and_of_results_counts() -> None:
    x, y = input_node(0), input_node(1)
    one, other = apply("subtract", x, y), apply("subtract", y, x)
    graphs = [Graph(inputs=(x, y), outputs=o) for o in ((one,), (other,), (one, other), (other, one))]
    assert len({name(g) for g in graphs}) == 4


@pytest.fixture
def foreign() -> Iterator[str]:
    op = elementwise_op("thrice", arity=1, dtypes=(F,), decompose=lambda x: x + x + x)
    table.add(op, "a plugin")
    yield op.name
    table.discard(op.name)


def test_ops_of_others_have_no_name(foreign: str) -> None:
    x = input_node()
    assert name_of(Graph(inputs=(x,), outputs=(apply(foreign, x),))) is None


def test_the_representation_of_a_graph_is_short_however_much_it_shares() -> None:
    x = input_node()
    for _ in range(200):
        x = apply("add", x, x)
    assert len(repr(x)) + len(repr(Graph(inputs=(), outputs=(x,)))) < 200
