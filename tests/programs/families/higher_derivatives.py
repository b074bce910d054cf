"""Gradients of gradients, and what is made of them."""

from __future__ import annotations

import tensorbus as tb

from program import Family

program = Family(__name__)


def leaf(*values):
    return tb.asarray([float(v) for v in values]).requires_grad_()


@program
def second_derivative():
    def fn(x):
        y = (x**3 + tb.sin(x)).sum()
        (dx,) = tb.grad(y, x, create_graph=True)
        (ddx,) = tb.grad(dx.sum(), x)
        return dx.detach(), ddx

    return fn, [(leaf(1, 2),), (leaf(0, -1),), (leaf(1, 2, 3),)]


@program
def hessian_row_by_row():
    def fn(x):
        y = (x[0] ** 2 * x[1] + tb.exp(x[2] * x[0])).sum()
        (g,) = tb.grad(y, x, create_graph=True)
        rows = [tb.grad(g[k], x, retain_graph=True)[0] for k in range(x.shape[0])]
        return tb.stack(rows)

    return fn, [(leaf(1, 2, 0.5),), (leaf(-1, 0, 0.25),), (leaf(0, 1, 1),)]


@program
def gradient_penalty():
    w = tb.asarray([[1.0, -2.0], [0.5, 1.0]]).requires_grad_()

    def fn(x):
        x = x.detach().requires_grad_()
        score = tb.tanh(x @ w).sum()
        (g,) = tb.grad(score, x, create_graph=True)
        penalty = tb.square(tb.sqrt(tb.square(g).sum(axis=1)) - 1).mean()
        (penalty + score).backward()
        return penalty.detach()

    return fn, [(tb.ones((2, 2)),), (tb.eye(2),), (tb.ones((3, 2)) * 0.5,)], w


@program
def vector_jacobian_product():
    def fn(x, v):
        y = tb.stack([x.sum(), (x * x).sum(), tb.prod(x)])
        (g,) = tb.grad(y, x, v)
        return g

    return fn, [
        (leaf(1, 2), tb.ones(3)),
        (leaf(2, 3), tb.asarray([1.0, 0.0, -1.0])),
        (leaf(1, 1), tb.ones(3)),
    ]


@program
def jacobian_vector_product_by_double_backward():
    def fn(x, v):
        dummy = tb.zeros_like(x).requires_grad_()
        (g,) = tb.grad(tb.sin(x) * x, x, dummy, create_graph=True)
        return tb.grad(g, dummy, v)

    return fn, [(leaf(1, 2), tb.ones(2)), (leaf(1, 2), tb.arange(2.0)), (leaf(0, 1, 2), tb.ones(3))]


@program
def unrolled_inner_steps():
    rate = tb.asarray(0.1).requires_grad_()

    def fn(w, x, steps):
        w = w.requires_grad_()
        for _ in range(steps):
            (g,) = tb.grad(tb.square(w * x - 1).sum(), w, create_graph=True)
            w = w - rate * g
        outer = tb.square(w * x - 1).sum()
        outer.backward()
        return outer.detach(), w.detach()

    def start():
        return tb.zeros(2)

    return fn, [(start(), tb.ones(2), 2), (start(), tb.arange(2.0), 2), (start(), tb.ones(2), 3)], rate
