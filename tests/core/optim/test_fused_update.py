"""Fused updates in a captured step: the same numbers, one kernel, and every effect of the user's code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import nn, optim
from tensorbus.backend_interface.graph import Graph, Node
from tensorbus.executors.legalize import prepared
from tensorbus.lowering.ir.layout import packed
from tensorbus.lowering.library import Library
from tensorbus.lowering.op_sets import INSIDE
from tensorbus.lowering.program.lower import Program, lower
from tensorbus.lowering.program.program import steps_of
from tensorbus.ops.definition import Spec, table
from tensorbus.ops.fused_update import is_fused_update
from tensorbus.optim import fused_update
from tensorbus.optim.adam import adam

from error_bounds import gamma

OPTIMIZERS: dict[str, Callable[[Any], optim.Optimizer]] = {
    "Adam": lambda p: optim.Adam(p, lr=0.05, weight_decay=0.1),
    "amsgrad": lambda p: optim.Adam(p, lr=0.05, amsgrad=True),
    "capturable": lambda p: optim.Adam(p, lr=0.05, capturable=True),
    "AdamW": lambda p: optim.AdamW(p, lr=0.05, maximize=True),
    "Adamax": lambda p: optim.Adamax(p, lr=0.05),
    "NAdam": lambda p: optim.NAdam(p, lr=0.05, weight_decay=0.1),
    "RAdam": lambda p: optim.RAdam(p, lr=0.05),
}
STEPS = 8
"""RAdam takes its other way from the sixth step on."""


def model() -> nn.Module:
    sequential = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3))
    rng = np.random.default_rng(3)
    with tb.no_grad():
        for p in sequential.parameters():
            p.rebind(tb.asarray(rng.standard_normal(p.shape).astype("f4")))
    return sequential


def training(make: Callable[[Any], optim.Optimizer]) -> tuple[Any, Callable[[Any], Any]]:
    net = model()
    optimizer = make(net.parameters())

    @tb.compile
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (net(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return optimizer, step


def trained(make: Callable[[Any], optim.Optimizer]) -> Iterator[np.ndarray[Any, Any]]:
    optimizer, step = training(make)
    x = tb.asarray(np.random.default_rng(4).standard_normal((4, 5)).astype("f4"))
    for _ in range(STEPS):
        yield step(x).numpy()
    for parameter, state in optimizer.state.items():
        yield parameter.numpy()
        yield from [v.numpy() if isinstance(v, tb.Tensor) else np.asarray(v) for v in state.values()]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_fused_update_gives_what_its_ops_give(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    actual = list(trained(OPTIMIZERS[name]))
    monkeypatch.setattr(fused_update, "_is_even", lambda op, operands: False)
    for got, wanted in zip(actual, trained(OPTIMIZERS[name]), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_a_step_has_one_node_for_each_parameter() -> None:
    optimizer, step = training(OPTIMIZERS["Adam"])
    x = tb.ones((4, 5))
    first = step(x)
    assert step(x).item() < first.item()
    (graph,) = step.graphs
    ops = Counter(node.op for node in graph)
    parameters = len(optimizer.param_groups[0]["params"])
    assert [n for op, n in ops.items() if is_fused_update(op)] == [parameters]
    assert "sqrt" not in ops


def test_a_fused_update_is_traced_only_where_it_says_the_same() -> None:
    x, y = tb.ones((2, 3)), tb.ones((2, 3), dtype=tb.float64)

    @tb.compile
    def mixed(x: Any, y: Any) -> Any:
        return adam(x, y, x, x, 0.9, 0.1, 0.99, 0.01, 1e-8, 0.1)

    @tb.compile
    def integers(x: Any) -> Any:
        return adam(x, x, x, x, 1, 1, 1, 1, 1, 1)

    assert [r.dtype for r in mixed(x, y)] == [r.dtype for r in adam(x, y, x, x, *[0.5] * 6)]
    integers(tb.asarray([1, 2]))
    for function in (mixed, integers):
        assert not any(is_fused_update(node.op) for graph in function.graphs for node in graph)


def lowered(graph: Graph) -> Program:
    """Return the program of a graph for packed inputs, as a device with calls of its own has it."""
    from tensorbus.lowering.target import Target

    done = prepared(graph, lambda op: False)
    assert any(INSIDE in node.attrs for node in done)
    inputs = [None if "scalar" in n.attrs else packed(k, n.spec.shape) for k, n in enumerate(done.inputs)]
    return lower(done, inputs, Target(), library=Library(frozenset(), frozenset({tb.float32})))


def test_equal_fused_updates_are_decomposed_once_and_share_a_kernel() -> None:
    numbers = [Node(op="constant", attrs={"value": 0.5}, spec=Spec((), tb.float32)) for _ in range(6)]
    inputs, outputs = [], []
    for _ in range(3):
        operands = [
            Node(op="input", attrs={"index": len(inputs) + k}, spec=Spec((7, 9), tb.float32))
            for k in range(4)
        ]
        inputs += operands
        scaled = Node(op="multiply", inputs=(operands[1], numbers[0]), spec=operands[1].spec)
        node = Node(
            op="adam.adam", inputs=(operands[0], scaled, *operands[2:], *numbers), spec=operands[0].spec
        )
        outputs += [Node(op="result", inputs=(node,), attrs={"index": k}, spec=node.spec) for k in range(3)]
    program = lowered(Graph(inputs=tuple(inputs), outputs=tuple(outputs)))
    steps = [step for item in program.steps for step in steps_of(item)]
    assert len(steps) == 3  # what a gradient is multiplied by is part of the kernel
    assert len({id(step.launch.kernel) for step in steps}) == 1


def test_a_fused_update_is_in_no_list_of_ops() -> None:
    assert is_fused_update("adam.adam")
    assert "adam.adam" not in table.names()
    assert not is_fused_update("add")


def test_what_an_update_of_the_users_does_is_seen() -> None:
    rate = {"scale": 1.0}
    messages: list[float] = []

    class Scaled(optim.Adam):
        def update(self, parameter: Any, gradient: Any, state: Any, group: Any) -> Any:
            messages.append(rate["scale"])
            return super().update(parameter, gradient * rate["scale"], state, group)

    def run(compiled: bool) -> tuple[Any, int]:
        rate["scale"] = 1.0
        messages.clear()
        x = tb.asarray([1.0, -2.0]).requires_grad_()
        optimizer = Scaled([x], lr=0.1)

        def step() -> None:
            optimizer.zero_grad()
            (x * x * x).sum().backward()
            optimizer.step()

        function = tb.compile(step) if compiled else step
        for k in range(6):
            if k == 3:
                rate["scale"] = 100.0
            function()
        return x.numpy(), len(messages)

    (got, times), (wanted, often) = run(True), run(False)
    np.testing.assert_allclose(got, wanted, rtol=gamma(6 * 12, "float32"))  # six steps
    assert times == often


def test_an_update_that_is_put_into_an_optimizer_is_seen() -> None:
    x = tb.asarray([1.0, -2.0]).requires_grad_()
    optimizer = optim.SGD([x], lr=0.5)
    called: list[int] = []

    def update(parameter: Any, gradient: Any, state: Any, group: Any) -> Any:
        called.append(len(called))
        return parameter - gradient

    optimizer.update = update

    @tb.compile
    def step() -> None:
        optimizer.zero_grad()
        (x * x).sum().backward()
        optimizer.step()

    for _ in range(4):
        step()
    assert called == [0, 1, 2, 3]
    np.testing.assert_array_equal(x.numpy(), [1.0, -2.0])
