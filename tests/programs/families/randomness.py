"""Random numbers: seeds, generators, dropout, and Python's own."""

from __future__ import annotations

import random

import tensorbus as tb
from tensorbus import nn

from program import Family

program = Family(__name__)


@program
def draws_differ_at_every_call():
    def fn(shape):
        return tb.rand(*shape), tb.randint(0, 10, shape), tb.uniform(shape) < 0.5

    return fn, [((2, 3),), ((2, 3),), ((4,),), ((2, 3),)]


@program
def seeded_inside():
    def fn(x, seed):
        tb.manual_seed(seed)
        return x + tb.rand(*x.shape)

    x = tb.zeros(3)
    return fn, [(x, 1), (x, 2), (x, 1), (x, 1)]


@program
def seeded_between_calls():
    def fn(x):
        return x + tb.randn(*x.shape)

    def calls():
        for seed in (0, 1, 0):
            tb.manual_seed(seed)
            yield (tb.zeros(3),)
            yield (tb.zeros(3),)

    return fn, calls()


@program
def generator_is_an_argument():
    def fn(generator, n):
        return tb.uniform((n,), generator=generator), tb.normal((n,), 1.0, 0.5, generator=generator)

    one, two = tb.Generator(1), tb.Generator(2)

    def calls():
        yield (one, 2)
        yield (two, 2)
        yield (one, 3)
        one.manual_seed(1)
        yield (one, 2)

    return fn, calls(), one, two


@program
def dropout_in_both_modes():
    drop = nn.Dropout(0.5)

    def calls():
        for training in (True, True, False, True):
            drop.train(training)
            yield (tb.ones((2, 4)),)

    return drop, calls()


@program
def functional_dropout():
    def fn(x, p, training):
        return nn.functional.dropout(x, p, training)

    x = tb.ones(6)
    return fn, [(x, 0.5, True), (x, 0.25, True), (x, 0.5, False), (x, 0.0, True), (x, 0.5, True)]


@program
def noise_of_the_same_shape():
    def fn(x, scale):
        noisy = x + scale * tb.randn_like(x)
        return noisy, tb.rand_like(x) * x

    return fn, [(tb.zeros((2, 2)), 1.0), (tb.zeros((2, 2)), 0.1), (tb.ones(3), 1.0)]


@program
def shuffled_rows():
    def fn(x, y):
        order = tb.randperm(x.shape[0])
        return x[order], tb.take(y, order)

    x = tb.reshape(tb.arange(8.0), (4, 2))
    return fn, [(x, tb.arange(4)), (x, tb.arange(4)), (x[:3], tb.arange(3))]


@program
def bernoulli_mask():
    def fn(x, p):
        mask = tb.bernoulli(p, x.shape)
        return tb.where(mask, x / p, 0.0), mask

    return fn, [(tb.ones(6), 0.5), (tb.ones(6), 0.25), (tb.ones(6), 0.5)]


@program
def bernoulli_of_probabilities():
    def fn(p):
        return tb.bernoulli(p), tb.bernoulli(tb.sigmoid(p * 4 - 2))

    return fn, [
        (tb.asarray([0.0, 0.5, 1.0]),),
        (tb.asarray([0.5, 0.5, 0.5]),),
        (tb.asarray([0.9, 0.1, 0.0]),),
    ]


@program
def layers_dropped_by_python():
    layers = [lambda x, k=k: x * (k + 1) + 1 for k in range(4)]

    def fn(x, p):
        used = 0
        for layer in layers:
            if random.random() < p:
                continue
            x = layer(x)
            used += 1
        return x, used

    return fn, [(tb.ones(2), 0.5)] * 4 + [(tb.ones(3), 0.0)]


@program
def a_python_choice():
    names = ["double", "halve", "keep"]

    def fn(x):
        name = random.choice(names)
        scale = {"double": 2.0, "halve": 0.5, "keep": 1.0}[name]
        return x * scale, name

    return fn, [(tb.ones(2),)] * 5


@program
def model_with_dropout_between_layers():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.drop, self.last = nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2)

        def forward(self, x):
            return self.last(self.drop(tb.relu(self.first(x))))

    net = Net()

    def calls():
        x = tb.ones((2, 3))
        yield (x,)
        yield (x,)
        net.eval()
        yield (x,)
        net.train()
        out = yield (x,)
        out.sum().backward()

    return net, calls(), net


@program
def initialized_inside():
    def fn(n, m):
        w = tb.zeros((n, m))
        nn.init.xavier_uniform_(w)
        layer = nn.Linear(m, 2)
        return layer(w), w

    return fn, [(2, 3), (2, 3), (3, 1)]


@program
def reparametrized_sample():
    mean, log_scale = tb.zeros(3).requires_grad_(), tb.zeros(3).requires_grad_()

    def fn(target):
        sample = mean + tb.exp(log_scale) * tb.randn(3)
        loss = tb.square(sample - target).mean()
        loss.backward()
        return loss.detach()

    return fn, [(tb.ones(3),), (tb.ones(3),), (tb.zeros(3),)], (mean, log_scale)
