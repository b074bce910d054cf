"""The verifier of graphs holds each node against the rule of its op."""

from __future__ import annotations

import pytest
import tensorbus  # noqa: F401  (defines the ops)
from tensorbus.backend_interface.graph import Graph, Node
from tensorbus.decompose.tracer import trace
from tensorbus.dtypes import definition as dt
from tensorbus.graph.verify import GraphError, verify
from tensorbus.ops.definition import Spec

X = Node(op="input", attrs={"index": 0}, spec=Spec((3, 4), dt.float32))


def graph(node: Node) -> Graph:
    return Graph(inputs=(X,), outputs=(node,))


def test_captured_graphs_are_well_formed() -> None:
    for op, specs, attrs in (
        ("softmax", (X.spec,), {"axis": 1}),
        ("gelu_tanh", (X.spec,), {}),
        ("random_bits", (Spec((2,), dt.uint64),), {"shape": (5, 3)}),
        (
            "fold",
            (Spec((2, 4, 4, 3, 3), dt.float32),),
            {"shape": (6, 6), "stride": (1, 1), "dilation": (1, 1)},
        ),
    ):
        assert verify(trace(op, specs, attrs)).outputs


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (
            Node(op="exp", inputs=(X,), spec=Spec((3,), dt.float32)),
            r"exp: is float32\[3\], .* float32\[3, 4\]",
        ),
        (Node(op="add", inputs=(X,), spec=X.spec), "add"),
        (Node(op="nonsense", inputs=(X,), spec=X.spec), "no op has this name"),
        (Node(op="input", spec=X.spec), "does not list"),
        (Node(op="constant", attrs={"value": 1}, spec=X.spec), "one Python scalar"),
        (Node(op="reshape", inputs=(X,), attrs={"shape": (2, 6)}, spec=X.spec), "reshape: is"),
    ],
)
def test_what_is_wrong_is_named(node: Node, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        verify(graph(node))
