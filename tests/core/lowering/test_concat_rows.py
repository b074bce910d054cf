"""Which concats are of computed rows, found without a traversal of all that they depend on."""

from __future__ import annotations

import pytest
from tensorbus.backend_interface.graph import Graph, Node
from tensorbus.dtypes import definition as dt
from tensorbus.lowering.fusion import materialize as plan
from tensorbus.lowering.heuristics import Heuristics
from tensorbus.ops.definition import Spec

SPEC, LIMITS = Spec((4,), dt.float32), Heuristics()


def chain(length: int, op: str = "exp") -> Node:
    node = Node(op="input", spec=SPEC)
    for _ in range(length):
        node = Node(op=op, inputs=(node,), spec=SPEC)
    return node


def concatenated(*parts: Node) -> Node:
    return Node(op="concat", inputs=parts, attrs={"axis": 0}, spec=SPEC)


@pytest.mark.parametrize(("length", "op"), [(0, "exp"), (1, "exp"), (1, "add"), (3, "add"), (3, "negative")])
def test_it_is_what_the_cost_of_all_says(length: int, op: str) -> None:
    for node in (
        concatenated(chain(length, op), chain(length, op)),
        concatenated(*[chain(length, op)] * 2),
        chain(length),
    ):
        whole = plan.cost_of(Graph(inputs=(), outputs=(node,)), LIMITS)
        assert plan.is_computed_stack(node, LIMITS) == plan.is_stack(node, whole, LIMITS)


def test_parts_of_several_shapes_are_none() -> None:
    other = Node(op="exp", inputs=(chain(20),), spec=Spec((5,), dt.float32))
    assert plan.is_computed_stack(concatenated(chain(20), chain(20)), LIMITS)
    assert not plan.is_computed_stack(concatenated(chain(20), other), LIMITS)


def test_no_more_is_looked_at_than_is_needed() -> None:
    class Closed(Node):
        __slots__ = ()

        def __getattribute__(self, name: str) -> object:
            assert name not in ("op", "inputs"), "so far back nobody needs to look"
            return super().__getattribute__(name)

    far = object.__new__(Closed)
    object.__setattr__(far, "spec", SPEC)
    node: Node = far
    for _ in range(40):
        node = Node(op="exp", inputs=(node,), spec=SPEC)
    assert plan.is_computed_stack(concatenated(node, node), LIMITS)
