"""Attributes that code sets on parameters: marks for weight decay, scales, counts."""

from __future__ import annotations

import copy
import pickle

import tensorbus as tb
from tensorbus import nn

from error_bounds import assert_alike


def test_copies_have_them():
    net = nn.Linear(3, 2)
    net.weight.no_decay = True
    assert copy.deepcopy(net).weight.no_decay is True
    assert pickle.loads(pickle.dumps(net)).weight.no_decay is True
    lazy = nn.LazyLinear(2)
    lazy.weight.no_decay = True
    lazy(tb.ones((1, 3)))
    assert (lazy.weight.no_decay, type(lazy.weight)) == (True, nn.Parameter)


def test_compiled_code_sees_what_becomes_of_them():
    net = nn.Linear(3, 2)
    x = tb.ones((2, 3))

    def total(x):
        result = net(x).sum()
        for p in net.parameters():
            if getattr(p, "counts", False):
                result = result + p.scale * p.square().sum()
        return result

    run = tb.compile(total, fullgraph=True)

    def assert_same():
        for _ in range(2):
            assert_alike(
                run(x), total(x), roundings=16, size=20.0
            )  # the sum of some weights below 1, five times

    assert_same()
    net.weight.scale, net.weight.counts = 2.0, True
    assert_same()
    net.weight.scale = 3.0
    assert_same()
    net.weight.scale = tb.full((), 4.0)
    assert_same()
    net.weight.scale = tb.full((), 5.0)
    assert_same()
    net.bias.scale, net.bias.counts = 1.0, True
    assert_same()
    del net.weight.counts
    assert_same()


def test_compiled_code_sets_them():
    net = nn.Linear(3, 2)
    nn.init.ones_(net.weight)

    @tb.compile
    def step(x):
        for p in net.parameters():
            p.steps = getattr(p, "steps", 0) + 1
        net.weight.before = net.weight.detach().clone()
        with tb.no_grad():
            net.weight.mul_(x)
        return net.weight.sum() * net.weight.steps

    for k in range(1, 6):
        before = net.weight.tolist()
        assert step(tb.full((), 0.5)).item() == net.weight.sum().item() * k
        assert (net.weight.steps, net.bias.steps) == (k, k)
        assert net.weight.before.tolist() == before
