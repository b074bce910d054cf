"""The first step of an optimizer is captured once: its program is that of all steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import nn, optim

from error_bounds import assert_alike

ROUNDINGS = 4 * 32
"""Of four steps: sums of a layer, forward and back, and the update."""
MAKERS: dict[str, Callable[[Any], optim.Optimizer]] = {
    "SGD": lambda p: optim.SGD(p, lr=0.1),
    "SGD with momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
    "SGD with Nesterov's": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "Adam": lambda p: optim.Adam(p, lr=0.1),
    "AdamW with amsgrad": lambda p: optim.AdamW(p, lr=0.1, amsgrad=True),
    "capturable Adam": lambda p: optim.Adam(p, lr=0.1, capturable=True),
    "RMSprop": lambda p: optim.RMSprop(p, lr=0.1, momentum=0.5, centered=True),
    "Adagrad": lambda p: optim.Adagrad(p, lr=0.1, initial_accumulator_value=0.5),
    "Adadelta": lambda p: optim.Adadelta(p, lr=0.1),
    "Adamax": lambda p: optim.Adamax(p, lr=0.1),
    "Rprop": lambda p: optim.Rprop(p, lr=0.1),
    "ASGD": lambda p: optim.ASGD(p, lr=0.1),
    "Adafactor": lambda p: optim.Adafactor(p, lr=0.1),
    "NAdam": lambda p: optim.NAdam(p, lr=0.1),
}


class Both(nn.Module):
    """Two layers, of which one is used only when asked."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: Any, both: bool = True) -> Any:
        x = self.first(x)
        return self.second(x) if both else x


def model() -> Both:
    both = Both()
    with tb.no_grad():
        for k, p in enumerate(both.parameters()):
            p.rebind(tb.reshape(tb.linspace(-1, 1 + k, p.size), p.shape))
    return both


def stepping(net: Any, optimizer: Any) -> Callable[..., Any]:
    def step(x: Any, both: bool = True) -> Any:
        optimizer.zero_grad()
        loss = tb.sum(net(x, both) ** 2)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def seen(net: Any, optimizer: Any) -> Any:
    """Return everything that a step changes, as plain numbers."""
    numbers = {id(p): k for k, p in enumerate(net.parameters())}
    return [p.tolist() for p in net.parameters()], {
        numbers[id(p)]: {k: v.tolist() if isinstance(v, tb.Tensor) else v for k, v in state.items()}
        for p, state in optimizer.state.items()
    }


@pytest.mark.parametrize("name", MAKERS)
def test_one_program_serves_the_first_step_and_all_others(name: str) -> None:
    results = []
    for compiled in (False, True):
        net = model()
        optimizer = MAKERS[name](net.parameters())
        step = stepping(net, optimizer)
        if compiled:
            step = tb.compile(step)
        for k in range(4):
            step(tb.full((2, 3), 0.5 + k))
        results.append(seen(net, optimizer))
        if compiled:
            assert len(step.replays) == 1, (step.reasons, step.recompiles)
    assert_alike(*results, ROUNDINGS)


def test_parameters_that_take_no_step_have_no_state() -> None:
    results = []
    for compiled in (False, True):
        net = model()
        optimizer = optim.Adam(net.parameters(), lr=0.1)
        step = stepping(net, optimizer)
        step = tb.compile(step) if compiled else step
        retained = []
        for both in (False, False, False, True, True, False):
            step(tb.ones((2, 3)), both)
            retained.append(seen(net, optimizer))
        results.append(retained)
    assert_alike(*results, ROUNDINGS)
    assert len(results[0][0][1]) == 2


def test_without_a_step_no_state_is_left() -> None:
    net = model()
    optimizer = optim.Adam(net.parameters())

    @tb.compile
    def gather(x: Any, steps: bool) -> Any:
        loss = tb.sum(net(x))
        loss.backward()
        if steps:
            optimizer.step()
        return loss.detach()

    gather(tb.ones((2, 3)), False)
    assert not optimizer.state
    gather(tb.ones((2, 3)), True)
    assert len(optimizer.state) == 4


def test_a_failing_first_step_leaves_no_state() -> None:
    net = model()
    optimizer = optim.Adam(net.parameters())

    @tb.compile
    def broken(x: Any) -> Any:
        tb.sum(net(x)).backward()
        raise KeyError("no")
        optimizer.step()

    with pytest.raises(KeyError):
        broken(tb.ones((2, 3)))
    assert not optimizer.state


def test_code_that_reads_the_state_sees_it_uninitialized() -> None:
    net = model()
    optimizer = optim.Adam(net.parameters())
    lengths = []

    @tb.compile
    def step(x: Any) -> Any:
        lengths.append(len(optimizer.state))
        tb.sum(net(x)).backward()
        optimizer.step()

    for _ in range(2):
        step(tb.ones((2, 3)))
    assert lengths == [0, 4]


def test_a_subclass_with_state_of_its_own_initializes_it() -> None:
    class Counting(optim.Adam):
        def update(self, parameter: Any, gradient: Any, state: Any, group: Any) -> Any:
            if not state:
                state["begun"] = 1
                state.update(self.first_state(parameter, group))
            return super().update(parameter, gradient, state, group)

    net = model()
    optimizer = Counting(net.parameters(), lr=0.1)
    step = tb.compile(stepping(net, optimizer))
    for _ in range(3):
        step(tb.ones((2, 3)))
    assert all(state["begun"] == 1 and state["step"] == 3 for state in optimizer.state.values())


def test_gradients_overwritten_unread_are_not_guarded() -> None:
    net = model()
    optimizer = optim.Adam(net.parameters(), lr=0.1)
    step = tb.compile(stepping(net, optimizer))
    for k in range(4):
        step(tb.ones((2, 3)), False)
        assert net.second.weight.grad is None
        if k > 1:
            net.second.weight.grad = tb.ones((3, 3))
    step(tb.ones((2, 3)), False)
    assert net.second.weight.grad is None
    assert len(step.replays) <= 2


def test_accumulated_gradients_are_guarded() -> None:
    net = model()

    @tb.compile
    def gather(x: Any) -> Any:
        tb.sum(net(x)).backward()

    x = tb.ones((2, 3))
    gather(x)
    once = net.second.bias.grad.tolist()
    gather(x)
    assert net.second.bias.grad.tolist() == [2 * v for v in once]
    net.zero_grad()
    gather(x)
    assert net.second.bias.grad.tolist() == once


def test_a_gradient_read_before_it_is_overwritten_is_guarded() -> None:
    w = tb.ones((3,)).requires_grad_()

    @tb.compile
    def fresh(x: Any) -> Any:
        had = w.grad is not None
        w.grad = None
        tb.sum(w * x).backward()
        return x + 1 if had else x

    x = tb.ones((3,))
    assert [fresh(x).tolist()[0] for _ in range(4)] == [1.0, 2.0, 2.0, 2.0]
    w.grad = None
    assert fresh(x).tolist()[0] == 1.0


@pytest.mark.parametrize(
    "settings",
    [
        {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}, {"momentum": 0.9, "weight_decay": 0.5},
        {"momentum": 0.9, "dampening": 0.5}, {},
    ],
    ids=str,
)  # fmt: skip
def test_the_first_step_of_sgd_is_that_of_python_to_the_sign_of_a_zero(settings: dict[str, Any]) -> None:
    seen = []
    for compiled in (False, True):
        p, unused = tb.asarray([0.0, -0.0, 0.0, -0.0]).requires_grad_(), tb.ones((2,)).requires_grad_()
        optimizer = optim.SGD([p, unused], lr=0.1, **settings)

        def step(x: Any, p: Any = p, optimizer: Any = optimizer) -> None:
            optimizer.zero_grad()
            tb.sum(p * x).backward()
            optimizer.step()

        (tb.compile(step) if compiled else step)(tb.asarray([-0.0, -0.0, 0.0, 0.0]))
        values = [p, *(v for entries in optimizer.state.values() for v in entries.values())]
        seen.append([tb.signbit(v).tolist() for v in values] + [len(optimizer.state)])
        assert unused not in optimizer.state
    assert seen[0] == seen[1]
