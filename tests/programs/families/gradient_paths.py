"""What gradients flow through: in-place changes, indexing, choices, orders, joints."""

from __future__ import annotations

import tensorbus as tb

from program import Family

program = Family(__name__)


def leaf(*values):
    return tb.asarray([float(v) for v in values]).requires_grad_()


@program
def changes_in_place():
    w = leaf(1, 2, 3)

    def fn(x):
        y = w * x
        y += 1
        y[0] = y[1].clone() * y[2].clone()
        y *= y
        y.sum().backward()
        return y.detach()

    return fn, [(tb.ones(3),), (tb.arange(3.0),), (tb.ones(3) * 2,)], w


@program
def buffer_filled_row_by_row():
    w = leaf(1, -1)

    def fn(x):
        out = tb.zeros((x.shape[0], 2))
        for k in range(x.shape[0]):
            out[k] = w * x[k]
        tb.square(out).sum().backward()
        return out.detach()

    return fn, [(tb.ones(2),), (tb.arange(3.0),), (tb.ones(2) * 2,)], w


@program
def indexed_and_gathered():
    table = tb.reshape(tb.arange(6.0), (3, 2)).requires_grad_()

    def fn(places, columns):
        picked = table[places] * tb.take_along_axis(table, columns, axis=1)[0]
        (picked.sum() + table[-1, ::2].sum()).backward()
        return picked.detach(), table.grad

    columns = tb.asarray([[0, 1], [1, 1], [0, 0]])
    return fn, [(tb.asarray([0, 0, 2]), columns), (tb.asarray([1]), columns)], table


@program
def choices_and_clips():
    w = leaf(-2, -0.5, 0.5, 2)

    def fn(x, limit):
        chosen = tb.where(x > 0, w, -w * 3)
        bounded = tb.clip(chosen, -limit, limit) + tb.maximum(w, 0.0) + tb.abs(w)
        bounded.sum().backward()
        return bounded.detach()

    x = tb.asarray([1.0, -1.0, 1.0, -1.0])
    return fn, [(x, 1.0), (-x, 1.0), (x, 3.0)], w


@program
def extremes_and_ties():
    def fn(x):
        out = x.max(axis=1) * 2 + tb.min(x, axis=1) + tb.prod(x, axis=1)
        return tb.grad(out.sum(), x)[0], out.detach()

    a = tb.asarray([[1.0, 3.0, 3.0], [0.0, 2.0, 0.0]]).requires_grad_()
    b = tb.asarray([[1.0, 2.0], [3.0, -4.0]]).requires_grad_()
    return fn, [(a,), (b,), (a,)]


@program
def sorted_and_summed_up():
    w = leaf(3, 1, 2)

    def fn(x):
        ordered = tb.sort(w * x, descending=True)
        running = tb.cumulative_sum(ordered)
        best, places = tb.topk(running, 2)
        (best * tb.asarray([1.0, 2.0])).sum().backward()
        return places, running.detach()

    return fn, [(tb.ones(3),), (tb.asarray([1.0, 5.0, 1.0]),), (-tb.ones(3),)], w


@program
def joined_split_and_padded():
    a, b = leaf(1, 2), leaf(3, 4, 5)

    def fn(scale):
        joined = tb.concat([a * scale, b, a])
        left, right = tb.split(joined, [3, 4])
        padded = tb.nn.functional.pad(left, (1, 1), value=2.0)
        rolled = tb.roll(right, 1) * tb.flip(right)
        (padded.sum() * rolled.sum()).backward()
        return tb.stack([left, right[:3]]).detach()

    return fn, [(1.0,), (2.0,), (tb.asarray(3.0),)], a, b


@program
def broadcast_over_batches():
    w, b = tb.ones((2, 1, 3)).requires_grad_(), leaf(1, 2, 3)

    def fn(x):
        y = (x + b) * w
        y.mean(axis=(0, 2)).sum().backward()
        return y.shape, w.grad.shape, b.grad

    return fn, [(tb.ones((4, 1)),), (tb.arange(3.0),), (tb.ones((2, 2, 3)),)], w, b


@program
def through_a_solver():
    a = tb.asarray([[4.0, 1.0], [1.0, 3.0]]).requires_grad_()

    def fn(b):
        x = tb.linalg.solve(a, b)
        loss = (x * b).sum() + tb.linalg.slogdet(a)[1] + tb.log(tb.diagonal(tb.linalg.cholesky(a))).sum()
        loss.backward()
        return x.detach(), loss.detach()

    return fn, [(tb.ones((2, 1)),), (tb.eye(2),), (tb.ones((2, 1)) * 2,)], a


@program
def gradients_edited_before_use():
    w = leaf(1, 2, 3)

    def fn(x, freeze):
        (w * w * x).sum().backward()
        with tb.no_grad():
            w.grad[freeze] = 0.0
            w.grad /= 2
        w.grad = w.grad + 1
        return w.grad * 1

    return fn, [(tb.ones(3), 0), (tb.ones(3), 2), (tb.arange(3.0), slice(0, 2))], w
