"""Passes run from lists, by one driver: order, requirements, verification, what a log shows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tensorbus.backend_interface.graph import Graph, Node
from tensorbus.dtypes.definition import float32
from tensorbus.executors.legalize import LEGALIZE
from tensorbus.graph.passes.simplify import SIMPLIFY
from tensorbus.graph.pipeline import Pass, logged_passes, pass_texts, run_passes
from tensorbus.graph.rewrite import owned, rebuild, rewrite, rewrite_owned, topological
from tensorbus.graph.verify import GraphError
from tensorbus.lowering.passes.pass_list import LOWERING_PASSES
from tensorbus.ops.definition import Spec

S = Spec((3,), float32)


def unary(op: str, x: Node) -> Node:
    return Node(op=op, inputs=(x,), spec=S)


def graph_of(depth: int = 3) -> Graph:
    x = node = Node(op="input", attrs={"index": 0}, spec=S)
    for _ in range(depth):
        node = unary("exp", node)
    return Graph(inputs=(x,), outputs=(node,))


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph]


def to_tanh(node: Node, original: Node) -> Node | None:
    return node.of(node.inputs) if node.op == "tanh" else unary("tanh", *node.inputs) if node.inputs else None


def test_a_rewrite_replaces_nodes_whose_operands_are_replaced() -> None:
    seen: list[tuple[str, str]] = []

    def rule(node: Node, original: Node) -> Node | None:
        seen.append((original.op, "".join(x.op for x in node.inputs)))
        return to_tanh(node, original)

    graph = graph_of()
    assert ops(rewrite(graph, rule)) == ["input", "tanh", "tanh", "tanh"]
    assert seen == [("input", ""), ("exp", "input"), ("exp", "tanh"), ("exp", "tanh")]
    assert ops(graph) == ["input", "exp", "exp", "exp"], "the graph itself stays"


def test_a_rewrite_without_replacements_is_the_graph_itself() -> None:
    graph = graph_of()
    assert rewrite(graph, lambda node, original: None) is graph
    assert rewrite_owned(graph, lambda node: node) is graph


def test_a_rewrite_visits_a_shared_node_once() -> None:
    (x,), (y,) = (graph := graph_of(1)).inputs, graph.outputs
    both = Node(op="add", inputs=(y, y), spec=S)
    count = 0

    def rule(node: Node, original: Node) -> Node | None:
        nonlocal count
        count += node.op == "exp"
        return to_tanh(node, original) if node.op == "exp" else None

    rewritten = rewrite(Graph(inputs=(x,), outputs=(both, y)), rule)
    assert count == 1
    assert rewritten.outputs[0].inputs == (rewritten.outputs[1], rewritten.outputs[1])


def test_long_chains_are_rewritten_without_recursion() -> None:
    assert ops(rewrite(graph_of(20_000), to_tanh)).count("tanh") == 20_000
    assert len(topological(graph_of(20_000).outputs)) == 20_001


def test_what_is_replaced_before_needs_no_rule() -> None:
    graph = graph_of(2)
    first = graph.outputs[0].inputs[0]
    other = unary("sin", graph.inputs[0])
    done = rebuild(graph, lambda node, inputs: None, {first: other})
    assert done[graph.outputs[0]].inputs == (other,)


def test_a_walk_stops_where_it_is_told_to() -> None:
    last = graph_of(4).outputs[0]
    stop = last.inputs[0].inputs[0]
    assert topological([last], lambda node: node is stop) == [stop, last.inputs[0], last]


def test_owned_nodes_change_and_what_nothing_reads_is_gone() -> None:
    graph = owned(graph_of(3))
    nodes = list(graph)
    rewritten = rewrite_owned(
        graph, lambda node: node.inputs[0].inputs[0] if node is nodes[2] else node, ("exp",)
    )
    assert list(rewritten) == [nodes[0], nodes[3]]
    assert nodes[3].inputs == (nodes[0],)


def test_passes_run_in_order_where_they_are_required() -> None:
    order: list[str] = []

    def noting(name: str) -> Pass[bool]:
        def run(graph: Graph, context: bool) -> Graph:
            order.append(name)
            return graph

        return Pass(name=name, run=run, requires=lambda context: context or name != "b")

    passes = [noting(name) for name in "abc"]
    graph = graph_of()
    assert run_passes(graph, passes, True) is graph
    assert run_passes(graph, passes, False) is graph
    assert order == [*"abc", *"ac"]


def test_verification_names_the_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(graph: Graph, _: None) -> Graph:
        out = replace(graph.outputs[0], spec=Spec((4,), float32))
        return Graph(inputs=graph.inputs, outputs=(out,))

    passes = [Pass(name="break it", run=broken)]
    monkeypatch.delenv("TENSORBUS_VERIFY", raising=False)
    run_passes(graph_of(), passes, None)
    monkeypatch.setenv("TENSORBUS_VERIFY", "1")
    with pytest.raises(GraphError, match=r"after the pass 'break it'.*float32\[4\]"):
        run_passes(graph_of(), passes, None)


def test_a_log_has_the_passes_that_changed_the_graph() -> None:
    passes = [
        Pass(name="stays", run=lambda graph, _: graph),
        Pass(name="changes", run=lambda graph, _: rewrite(graph, to_tanh)),
        Pass(name="copies", run=lambda graph, _: owned(graph)),
    ]
    with logged_passes() as log:
        run_passes(graph_of(), passes, None)
    assert [name for name, _ in log] == ["changes", "copies"]
    text = pass_texts(log)
    assert text.startswith("after changes:\n%0")
    assert "copies" not in text, "it reads as before"


@pytest.mark.parametrize("passes", [LEGALIZE, SIMPLIFY, LOWERING_PASSES])
def test_lists_of_passes_are_readable(passes: tuple[Pass[object], ...]) -> None:
    assert all(each.name and each.requires.__doc__ for each in passes)
