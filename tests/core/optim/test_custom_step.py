"""Optimizers of users that override ``step``."""

from __future__ import annotations

import copy
import pickle

import pytest
import tensorbus as tb
from tensorbus import nn

from error_bounds import gamma


class Heavy(tb.optim.Optimizer):
    """Momentum, in the words of PyTorch's own optimizers."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr})

    @tb.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if len(state) == 0:
                    state["step"] = 0
                    state["mean"] = tb.zeros_like(p)
                state["step"] += 1
                state["mean"].mul_(0.5).add_(p.grad)
                p.sub_(state["mean"] * group["lr"] / state["step"])


def trained(compiled, steps=4):
    tb.manual_seed(0)
    net = nn.Linear(3, 2)
    opt = Heavy(net.parameters())

    def step(x):
        opt.zero_grad()
        loss = net(x).square().sum()
        loss.backward()
        opt.step()
        return loss.detach()

    run = tb.compile(step, fullgraph=True) if compiled else step
    losses = [run(tb.full((2, 3), float(k))).item() for k in range(1, steps + 1)]
    return net, opt, losses


def test_the_state_of_a_parameter_begins_empty():
    _net, opt, losses = trained(False)
    assert len(losses) == 4
    assert [entry["step"] for entry in opt.state.values()] == [4, 4]
    for other in (copy.deepcopy(opt), pickle.loads(pickle.dumps(opt))):
        assert [entry["step"] for entry in other.state.values()] == [4, 4]
        assert other.state[tb.ones(())] == {}


def test_a_state_dict_leads_back():
    net, opt, _losses = trained(False)
    other = Heavy(net.parameters())
    other.load_state_dict({"state": {}, "param_groups": opt.state_dict()["param_groups"]})
    assert other.state[net.weight] == {}
    other.load_state_dict(opt.state_dict())
    assert other.state[net.weight]["mean"].tolist() == opt.state[net.weight]["mean"].tolist()


def test_compiled_steps_are_the_same():
    (plain, opt, losses), (other, other_opt, result) = trained(False), trained(True)
    rounded = gamma(4 * 24, "float32")  # four steps, each of a layer, its gradient and an update
    assert result == pytest.approx(losses, rel=rounded, abs=0)
    assert [s["step"] for s in other_opt.state.values()] == [s["step"] for s in opt.state.values()]
    assert tb.allclose(other.weight, plain.weight, rtol=rounded)
