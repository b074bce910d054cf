"""Gradients inside programs and after them: backward, hooks, detached parts, higher derivatives."""

from __future__ import annotations

import tensorbus as tb

from program import Family

program = Family(__name__)


def leaf(*values):
    return tb.asarray([float(v) for v in values]).requires_grad_()


@program
def backward_inside():
    w = leaf(1, 2, 3)

    def fn(x):
        loss = tb.square(w * x - 1).mean()
        loss.backward()
        return loss.detach(), w.grad

    return fn, [(tb.ones(3),), (tb.arange(3.0),), (tb.ones(3) * 2,)], w


@program
def backward_outside():
    w = leaf(1, -1)

    def fn(x):
        return tb.tanh(w * x).sum(), w * 2

    def calls():
        for x in (tb.ones(2), tb.arange(2.0), tb.ones(2) * 0.5):
            loss, doubled = yield (x,)
            (loss + doubled.sum()).backward()
        w.grad = None
        yield (tb.ones(2),)

    return fn, calls(), w


@program
def gradients_accumulate():
    w = leaf(0.5, 2)

    def fn(parts):
        for x in parts:
            (tb.exp(w * x).sum() / len(parts)).backward()
        return w.grad

    a, b = tb.ones(2), tb.asarray([0.0, -1.0])
    return fn, [([a, b],), ([b],), ([b, a],)], w


@program
def gradient_is_reset_every_other_call():
    w = leaf(1, 2)

    def fn(x, reset):
        if reset:
            w.grad = None
        (w * w * x).sum().backward()
        return w.grad * 1

    x = tb.ones(2)
    return fn, [(x, True), (x, False), (x, True), (x * 2, False)], w


@program
def gradients_of_arguments():
    def fn(x, y):
        out = (x * tb.sin(y)).sum()
        return tb.grad(out, [x, y]), out

    x, y = leaf(1, 2), leaf(0.5, -0.5)
    return fn, [(x, y), (y, x), (x, y)], (x, y)


@program
def detached_part():
    w = leaf(1, 2)

    def fn(x):
        target = (w * x).detach()
        moved = w * x * 2
        loss = tb.square(moved - target).sum()
        loss.backward()
        return loss, target.requires_grad, moved.is_leaf

    return fn, [(tb.ones(2),), (tb.arange(2.0),), (tb.ones(2),)], w


@program
def hook_on_a_value():
    w, seen = leaf(1, 2), []

    def fn(x, scale):
        y = w * x

        def hook(g):
            seen.append(g.shape)
            return g * scale

        y.register_hook(hook)
        y.sum().backward()
        return w.grad

    return fn, [(tb.ones(2), 2.0), (tb.ones(2), 3.0), (tb.arange(2.0), 2.0)], w, seen


@program
def hook_on_a_leaf_is_removed():
    w = leaf(1, 2)

    def calls():
        handle = w.register_hook(lambda g: g * 10)
        yield (tb.ones(2),)
        yield (tb.ones(2),)
        handle.remove()
        yield (tb.ones(2),)

    def fn(x):
        (w * x).sum().backward()
        return w.grad

    return fn, calls(), w


@program
def part_without_history():
    w = leaf(2, 3)

    def fn(x):
        with tb.no_grad():
            scale = w.max()
            w[0] = w[0] * 0.5
        loss = (w / scale * x).sum()
        loss.backward()
        return loss, scale.requires_grad

    return fn, [(tb.ones(2),), (tb.ones(2),), (tb.arange(2.0),)], w


@program(raises=("AutogradError",))
def walked_twice():
    def fn(x, keep):
        y = (x * x).sum()
        y.backward(retain_graph=keep)
        y.backward()
        return x.grad

    return fn, [(leaf(1, 2), True), (leaf(1, 2), False), (leaf(3), True)]


@program
def unused_inputs():
    def fn(x, y, allow):
        try:
            return tb.grad((x * 2).sum(), [x, y], allow_unused=allow)
        except tb.AutogradError as error:
            return str(error)

    return fn, [(leaf(1), leaf(2), True), (leaf(1), leaf(2), False), (leaf(3), leaf(2), True)]


@program
def straight_through_estimator():
    w = leaf(0.3, 1.7)

    def fn(x):
        rounded = w + (tb.round(w) - w).detach()
        loss = tb.square(rounded * x).sum()
        loss.backward()
        return rounded.detach(), loss.detach()

    return fn, [(tb.ones(2),), (tb.arange(2.0),), (tb.ones(2) * 3,)], w
