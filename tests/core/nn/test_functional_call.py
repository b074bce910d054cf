"""Modules called with other tensors than their own."""

from __future__ import annotations

import pytest
import tensorbus as tb
from tensorbus import nn

from error_bounds import assert_alike

call = nn.utils.functional_call

STEP_ROUNDINGS = 64
"""Of a step: sums of a batch in each inner step, forward and back twice."""


def model() -> nn.Module:
    tb.manual_seed(6)
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Tanh(), nn.Linear(3, 1))


def test_what_is_named_is_replaced_and_the_rest_stays() -> None:
    one, two = model(), model()
    x = tb.asarray([[1.0, 2.0], [0.5, -1.0]])
    with tb.no_grad():
        one[0].weight.mul_(3)
    result = call(two, {"0.weight": one[0].weight}, (x,))
    assert result.tolist() == one(x).tolist()
    result.sum().backward()
    assert two[0].weight.grad is None
    assert one[0].weight.grad is not None
    assert two[3].weight.grad is not None


def test_buffers_are_changed_in_what_is_given() -> None:
    m = model()
    mean = tb.zeros(3)
    call(m, {"1.running_mean": mean}, tb.asarray([[1.0, 2.0], [0.5, -1.0]]))
    assert m[1].running_mean.tolist() == [0.0] * 3
    assert mean.tolist() != [0.0] * 3


def test_names_that_share_a_tensor() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x, *, times=1):
            return self.b(self.a(x)) * times

    m, eye = Tied(), tb.eye(2)
    x = tb.asarray([1.0, 2.0])
    assert call(m, {"a.weight": eye * 2}, x, {"times": 2}).tolist() == [8.0, 16.0]
    m.a = m.b
    assert call(m, {"b.weight": eye * 3}, x).tolist() == [9.0, 18.0]
    m.a = nn.Linear(2, 2, bias=False)
    m.a.weight = m.b.weight
    apart = call(m, {"b.weight": eye}, x, tie_weights=False)
    assert apart.tolist() == m.a(x).tolist()


def test_errors_leave_the_module_as_it_was() -> None:
    m = model()
    before = [*m.parameters()]
    with pytest.raises(tb.ArgumentError, match=r"no parameter or buffer '0\.weigth'.*'0\.weight'"):
        call(m, {"0.weigth": tb.ones((3, 2))}, tb.ones((2, 2)))
    with pytest.raises(tb.ShapeError, match=r"shape \(3, 2\), got \(2, 3\)"):
        call(m, {"0.weight": tb.ones((2, 3))}, tb.ones((2, 2)))
    with pytest.raises(tb.ShapeError):
        call(m, {"0.weight": tb.ones((3, 2))}, tb.ones((2, 5)))
    assert all(a is b for a, b in zip(before, m.parameters(), strict=True))


def inner_steps(m, x, y):
    """One step of training on each task, and how good what comes of it is on the same task."""
    losses = []
    for k in range(x.shape[0]):
        fast = dict(m.named_parameters())
        loss = (call(m, fast, (x[k],)) - y[k]).square().mean()
        grads = tb.grad(loss, list(fast.values()), create_graph=True)
        fast = {name: p - 0.1 * g for (name, p), g in zip(fast.items(), grads, strict=True)}
        losses.append((call(m, fast, (x[k],)) - y[k]).square().mean())
    return tb.stack(losses).mean()


def gradients_of_each(m, x, y):
    """The gradient of each example, whose norms are returned."""

    def one(parameters, x, y):
        own = {name: p.detach().requires_grad_() for name, p in parameters.items()}
        loss = (call(m, own, (x[None],)) - y).square().mean()
        return tb.grad(loss, list(own.values()))

    each = tb.vmap(one, in_dims=(None, 0, 0))(dict(m.named_parameters()), x, y)
    return sum(g.reshape((x.shape[0], -1)).square().sum(axis=1) for g in each).sum()


@pytest.mark.parametrize("of", [inner_steps, gradients_of_each])
def test_within_compiled_steps(of) -> None:
    results = []
    for wrap in (lambda fn: fn, lambda fn: tb.compile(fn, fullgraph=True)):
        tb.manual_seed(2)
        m = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
        optimizer = tb.optim.SGD(m.parameters(), lr=0.1)

        def step(x, y, m=m, optimizer=optimizer):
            loss = of(m, x, y)
            if of is inner_steps:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            return loss.detach()

        step = wrap(step)
        x = tb.randn(3, 4, 2) if of is inner_steps else tb.randn(5, 2)
        results.append([step(x, x.sum(axis=-1, keepdims=True)).item() for _ in range(4)])
    assert_alike(results[1], results[0], 4 * STEP_ROUNDINGS)
    assert not step.reasons
    assert len(step.recompiles) <= 1
