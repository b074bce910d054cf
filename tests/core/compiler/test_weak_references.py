"""Weak references that a captured function reads: followed where others hold the object too."""

from __future__ import annotations

import gc
import weakref

import pytest
import tensorbus as tb
from tensorbus import nn


class Branch(nn.Module):
    """A module that knows its parent."""

    def __init__(self, parent: Branch | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(tb.ones(3))
        self.children_ = nn.ModuleList()
        self._parent = None if parent is None else weakref.ref(parent)

    def forward(self, x: tb.Tensor) -> tb.Tensor:
        x = x * self.weight
        if self._parent is not None:
            x = x + self._parent().weight
        for child in self.children_:
            x = child(x)
        return x


def test_a_module_that_knows_its_parent_is_captured() -> None:
    root = Branch()
    root.children_.extend([Branch(root), Branch(root)])
    compiled = tb.compile(root)
    x = tb.asarray([1.0, 2.0, 3.0])
    for _ in range(3):
        assert compiled(x).tolist() == root(x).tolist()
        with tb.no_grad():
            root.weight += 1
    assert len(compiled.replays) == 1


@pytest.mark.parametrize("added", ["hook", "step"])
def test_hooks_that_follow_gradients_are_captured(added: str) -> None:
    def trained(compiling: bool) -> list[tb.Tensor]:
        tb.manual_seed(2)
        model = nn.Linear(3, 2)
        for p in model.parameters():
            optimizer = tb.optim.SGD([p], lr=0.1, momentum=0.9)

            def follow(p, optimizer=optimizer):
                optimizer.step()
                optimizer.zero_grad()

            p.register_post_accumulate_grad_hook(follow if added == "step" else lambda p: p.grad.mul_(0.5))

        def step(x):
            loss = model(x).square().mean()
            loss.backward()
            return loss.detach()

        run = tb.compile(step) if compiling else step
        results = [run(tb.ones((4, 3)) * k) for k in range(1, 5)]
        if compiling:
            assert run.replays, run.reasons
        if added == "hook":
            results += [p.grad for p in model.parameters()]
        return results + [p.detach() for p in model.parameters()]

    for actual, wanted in zip(trained(True), trained(False), strict=True):
        assert float(abs(actual - wanted).max()) < 1e-5


def test_weakly_held_objects_may_die() -> None:
    class Kept:
        value = None

    retained = Kept()
    retained.value = tb.ones(2)
    reference = weakref.ref(retained)

    @tb.compile
    def fn(x):
        held = reference()
        return x if held is None else x + held.value

    x = tb.ones(2)
    assert [fn(x).tolist() for _ in range(3)] == [[2.0, 2.0]] * 3
    assert "weak reference" in fn.reasons[0]
    del retained
    gc.collect()
    assert reference() is None
    assert [fn(x).tolist() for _ in range(3)] == [[1.0, 1.0]] * 3


def test_another_object_at_the_end_of_a_reference() -> None:
    class Node:
        def __init__(self, value: float) -> None:
            self.value = tb.full((2,), value)

    nodes = [Node(1.0), Node(5.0)]
    nodes[0].next = weakref.ref(nodes[0])

    @tb.compile
    def fn(x):
        return x * nodes[0].next().value + len(nodes)

    x = tb.ones(2)
    assert [fn(x).tolist() for _ in range(2)] == [[3.0, 3.0]] * 2
    assert len(fn.replays) == 1
    nodes[0].next = weakref.ref(nodes[1])
    assert [fn(x).tolist() for _ in range(2)] == [[7.0, 7.0]] * 2
    assert len(fn.replays) == 2
