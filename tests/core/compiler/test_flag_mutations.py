"""Flags of modules and parameters that a run inverts: each value is captured once."""

from __future__ import annotations

import pytest
import tensorbus as tb
from tensorbus import nn

from error_bounds import assert_alike

F = nn.functional
STEP_ROUNDINGS = 32  # sums of the batch, of a layer and for the variance, forward and back


def critic() -> nn.Module:
    tb.manual_seed(4)
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Tanh(), nn.Linear(3, 1))


def modes(model: nn.Module):
    """A step that trains or evaluates, by its argument."""
    optimizer = tb.optim.SGD(model.parameters(), lr=0.1)

    def step(x, training):
        model.train(training)
        if not training:
            with tb.no_grad():
                return model(x).square().mean()
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def turns(model: nn.Module):
    """A step that trains a critic, or what it judges while it is frozen."""
    result = tb.ones((4, 2)).requires_grad_()
    ours, theirs = tb.optim.SGD([result], lr=0.1), tb.optim.SGD(model.parameters(), lr=0.1)

    def step(x, judging):
        if judging:
            theirs.zero_grad()
            loss = model(result.detach()).mean() - model(x).mean()
            loss.backward()
            theirs.step()
            return loss.detach()
        model.requires_grad_(False)
        ours.zero_grad()
        loss = -model(result).mean()
        loss.backward()
        ours.step()
        model.requires_grad_(True)
        return loss.detach() + result.detach().sum()

    return step


@pytest.mark.parametrize("of", [modes, turns])
def test_steps_that_change_flags(of) -> None:
    results = []
    for wrap in (lambda fn: fn, lambda fn: tb.compile(fn, fullgraph=True)):
        model = critic()
        step = wrap(of(model))
        tb.manual_seed(5)
        losses = [step(tb.randn(4, 2), k % 3 != 2).item() for k in range(12)]
        results.append((losses, model.training, [p.requires_grad for p in model.parameters()]))
    assert_alike(results[1][0], results[0][0], 12 * STEP_ROUNDINGS)  # each step goes on from the last
    assert results[1][1:] == results[0][1:]
    assert not step.reasons
    assert len(step.recompiles) <= 3


def test_a_compiled_module_that_is_frozen_and_unfrozen() -> None:
    model = critic()
    compiled = tb.compile(model)
    x = tb.ones((4, 2)).requires_grad_()
    for _ in range(12):
        compiled(x).mean().backward()
        compiled.requires_grad_(False)
        compiled(x).mean().backward()
        compiled.requires_grad_(True)
    known = type(compiled)._compiled
    assert len(known.replays) == 2
    assert len(known.recompiles) == 1


@pytest.mark.parametrize("place", ["item", "attribute", "class"])
def test_flags_in_other_places(place) -> None:
    class Kept:
        on = False

    retained = {"item": {}, "attribute": Kept(), "class": Kept}[place]

    def get():
        return retained["on"] if place == "item" else retained.on

    def put(on):
        if place == "item":
            retained["on"] = on
        else:
            retained.on = on

    def fn(x, on):
        before = x * 2 if get() else x
        put(on)
        return before + 1 if get() else before

    compiled = tb.compile(fn)
    results = []
    for call in (fn, compiled):
        put(False)
        seen = []
        for k in range(16):
            seen.append((call(tb.ones(1), k % 3 != 1).item(), get()))
            if k % 5 == 4:
                put(not get())
        results.append(seen)
    assert results[0] == results[1]
    assert not compiled.reasons
    assert len(compiled.recompiles) == 3


@pytest.mark.parametrize("kind", [tb.asarray, lambda x: nn.Parameter(tb.asarray(x))])
def test_gradients_from_before_freezing(kind) -> None:
    def fn(x):
        x.requires_grad_()
        (x * x).sum().backward()
        grad = x.grad
        x.requires_grad_(False)
        return grad

    def asking(x):
        x.requires_grad_()
        (x * x).sum().backward()
        return x.grad

    for body, forgets in [(fn, 2), (fn, 9), (asking, 2), (asking, 9)]:
        results = []
        for call in (body, tb.compile(body)):
            x, grads = kind([1.0, 2.0]).requires_grad_(False), []
            for k in range(7):
                if k % forgets == 1:
                    x.grad = None
                grads.append(call(x).tolist())
                x.requires_grad_(False)
            results.append(grads)
        assert results[0] == results[1]
