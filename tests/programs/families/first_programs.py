"""What the first programs of those who come from another library do: names, forms and loops of tutorials."""

from __future__ import annotations

import math

import tensorbus as tb
from tensorbus import nn

from program import Family

program = Family(__name__)
F = nn.functional


@program
def a_line_by_hand():
    w, b = tb.zeros(1, requires_grad=True), tb.zeros(1, requires_grad=True)

    def step(x, y):
        loss = ((x * w + b - y) ** 2).mean()
        loss.backward()
        with tb.no_grad():
            w.sub_(0.1 * w.grad)
            b.sub_(0.1 * b.grad)
            w.grad = b.grad = None
        return loss.detach()

    x = tb.linspace(-1, 1, 16)
    return step, [(x, 3 * x + 2)] * 3, (w, b)


@program
def leaves_made_inside():
    def fn(y):
        a, b = tb.ones(3, requires_grad=True), tb.full((3,), 2.0, requires_grad=True)
        (a * b * y + tb.zeros_like(b, requires_grad=True)).sum().backward()
        return a.grad, b.grad, tb.allclose(a.grad, 2 * y), b.grad.isclose(y)

    return fn, [(tb.arange(3.0),)]


@program
def a_polynomial():
    model = nn.Sequential(nn.Linear(3, 1), nn.Flatten(0, 1))
    optimizer = tb.optim.RMSprop(model.parameters(), lr=1e-3)

    def step(x, y):
        loss = F.mse_loss(model(x.expand_dims(-1) ** tb.asarray([1, 2, 3], device=x.device)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    x = tb.linspace(-1.0, 1.0, 20)
    return step, [(x, tb.sin(3 * x))] * 2, model


@program
def axes_of_length_one():
    def fn(x):
        return x.squeeze(), x.squeeze(0), x[0].squeeze(), tb.squeeze(x.sum(axis=1, keepdims=True))

    return fn, [(tb.ones(1, 3, 1),), (tb.ones(1, 1, 2),), (tb.ones(1, 1, 1),), (tb.ones(1, 4, 5),)]


@program
def side_by_side():
    def fn(x, y):
        rows = tb.vstack([x, y, x + y])
        return rows, tb.hstack([x, y]), tb.dstack([x, y]), tb.column_stack([x, rows.T]), tb.atleast_3d(x)

    return fn, [(tb.arange(3.0), tb.ones(3)), (tb.arange(4.0), tb.zeros(4))]


@program
def close_or_not():
    def fn(x, y):
        near = tb.isclose(x, y, rtol=0.0, atol=0.5)
        return near, x.where(near, y), tb.allclose(x, y), tb.allclose(x, x), tb.isclose(near, True)

    return fn, [(tb.arange(4.0), tb.asarray([0.25, 1.0, 3.0, float("nan")]))]


@program
def numbers_that_move():
    def fn(x, value, width):
        return (
            tb.isclose(x, value, atol=width),
            tb.isclose(value, x),
            tb.full((2,), value, requires_grad=True) * x,
        )

    x = tb.asarray([0.5, 1.5])
    return fn, [(x, 0.5, 0.1), (x, 1.0, 0.75), (x, 1.5, 0.2), (x, 0.25, 0.3), (x, 2.0, 0.4)]


@program(data_dependent=True)
def until_it_is_close():
    def fn(x):
        steps = 0
        root = tb.ones_like(x)
        while not tb.allclose(root * root, x):
            root = (root + x / root) / 2
            steps += 1
        return root, steps, 1.0 in root

    return fn, [(tb.asarray([1.0, 4.0]),), (tb.asarray([9.0, 2.0]),)]


@program
def seeded_noise():
    def fn(n):
        generator = tb.Generator(3)
        return tb.rand(n, 2, generator=generator), tb.randint(10, (n,), generator=generator)

    return fn, [(4,), (4,), (5,)]


@program
def a_mask_for_attention():
    embedding, size = nn.Embedding(11, 8), 8

    def fn(tokens):
        x = embedding(tokens) * math.sqrt(size)
        n = tokens.shape[0]
        scores = x @ x.T / math.sqrt(size) + tb.triu(tb.full((n, n), float("-inf"), device=x.device), 1)
        return tb.softmax(scores, axis=-1) @ x

    return fn, [(tb.asarray([1, 4, 2]),), (tb.asarray([5, 0, 10, 3]),)]


@program
def means_of_clusters():
    def fn(x, centers):
        xp = x.__array_namespace__()
        apart = xp.sum((x[:, None, :] - centers) ** 2, axis=-1)
        nearest = xp.argmin(apart, axis=1)
        share = xp.astype(nearest[:, None] == xp.arange(centers.shape[0], device=x.device), x.dtype)
        moved = share.mT @ x / xp.clip(xp.sum(share, axis=0), 1)[:, None]
        return nearest, moved, xp.column_stack([x, nearest])

    x = tb.asarray([[0.0, 0.5], [0.25, 0.0], [4.0, 4.5], [5.0, 4.0], [9.0, 0.0]])
    return fn, [(x, x[:3]), (x, x[2:])]
