"""Aliased tensors: the same one as an argument and at a location that others assign."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus.autograd.views import MAX_NEW_VIEWS, Family
from tensorbus.compiler.capture.tracer import Tracer

PLACE = SimpleNamespace(held=None)
TABLE: dict[str, tb.Tensor] = {}
held = None


class Buffered(tb.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("held", tb.zeros(2))


MODULE = Buffered()


def by_attribute(x):
    PLACE.held += x
    return x * 2


def by_entry(x):
    TABLE["held"] += x
    return x * 2


def by_name(x):
    held.add_(x)
    return x * 2


def by_buffer(x):
    MODULE.held.add_(x)
    return x * 2


PUT = {
    by_attribute: lambda x: setattr(PLACE, "held", x), by_entry: lambda x: TABLE.update(held=x),
    by_name: lambda x: globals().update(held=x), by_buffer: lambda x: setattr(MODULE, "held", x),
}  # fmt: skip


@pytest.mark.parametrize("fn", PUT)
@pytest.mark.parametrize("runs", ["aabb", "abab", "babba", "abbaab"])
def test_an_argument_that_was_the_state_is_another_later(fn, runs) -> None:
    def outcomes(f):
        operand = tb.asarray([1.0, 2.0])
        results = []
        for kind in runs:
            state = operand if kind == "a" else tb.asarray([5.0, 7.0])
            PUT[fn](state)
            results += [f(operand).tolist(), operand.tolist(), state.tolist()]
        return results

    compiled = tb.compile(fn)
    assert outcomes(compiled) == outcomes(fn)
    assert outcomes(compiled) == outcomes(fn)


def test_detached_results_that_are_kept_cost_later_calls_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tb.nn.Linear(2, 1)
    optimizer = tb.optim.SGD(model.parameters(), lr=0.1)

    def loss_of(x: tb.Tensor) -> tb.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = tb.compile(loss_of, compare_eager=False)
    x = tb.ones((3, 2))
    losses = [loss_of(x) for _ in range(2 * MAX_NEW_VIEWS)]  # each is a view whose root is gone
    losses += [step(x) for _ in range(4)]
    asked = []
    alive = Family.alive
    monkeypatch.setattr(Family, "alive", lambda family: asked.append(family) or alive(family))
    losses.append(step(x))
    assert len(asked) <= 8
    captures = len(step.replays)
    weight = model.weight.detach()  # a view of what the program writes to, made outside
    part = losses[0].reshape((1,))  # and one of what was looked at before
    before = weight.tolist()
    step(tb.asarray([[3.0, 0.0], [0.0, 2.0], [1.0, 5.0]]))
    assert weight.tolist() == model.weight.tolist() != before
    part += 1
    assert losses[0].item() == part.item()
    assert len(step.replays) >= captures


def test_captures_of_two_threads_leave_each_others_views_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One opens the lengths of a view while the other captures a function of another view of that memory."""
    x = tb.asarray(np.arange(20, dtype=np.float32).reshape(4, 5), device="cpu")
    parts = [x[:2], x[2:]]
    results: dict[int, list[list[float]]] = {}

    def run(place: int) -> None:
        compiled = tb.compile(lambda y: tb.tanh(y * 2).sum(axis=1))
        compiled(x)
        results[place] = [compiled(parts[place]).tolist() for _ in range(2)]

    def opened(self: Tracer, *arguments: Any) -> None:
        """Let the other thread begin in the middle of the first one, and end behind it."""
        own(self, *arguments)
        if threading.current_thread() is other:
            is_amid.set()
            assert is_over.wait(60.0)
        elif not other.ident:
            other.start()
            assert is_amid.wait(60.0)

    own, other = Tracer.open, threading.Thread(target=run, args=(1,))
    is_amid, is_over = threading.Event(), threading.Event()
    monkeypatch.setattr(Tracer, "open", opened)
    run(0)
    is_over.set()
    other.join(60.0)
    for place, part in enumerate(parts):
        doubled = (part * 2).numpy()
        np.testing.assert_array_equal(doubled, 2 * x.numpy()[2 * place :][:2])
        for result in results[place]:
            np.testing.assert_allclose(result, np.tanh(doubled).sum(axis=1), rtol=1e-6)
