"""``vmap``, functions of functions, and trees of tensors."""

from __future__ import annotations

import functools

import tensorbus as tb

from program import Family

program = Family(__name__)


def tree_map(function, tree):
    if isinstance(tree, dict):
        return {k: tree_map(function, v) for k, v in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(tree_map(function, v) for v in tree)
    return function(tree)


def leaves(tree):
    if isinstance(tree, dict):
        return [x for v in tree.values() for x in leaves(v)]
    if isinstance(tree, (list, tuple)):
        return [x for v in tree for x in leaves(v)]
    return [tree]


@program
def vmap_over_rows():
    def fn(rows, w):
        return tb.vmap(lambda row: row / row.sum() @ w)(rows)

    x = tb.reshape(tb.arange(1.0, 7.0), (2, 3))
    return fn, [(x, tb.ones(3)), (x * 2, tb.arange(3.0)), (x.T, tb.ones(2))]


@program
def vmap_over_pairs():
    def distance(a, b):
        return tb.sqrt(tb.square(a - b).sum())

    def fn(a, b):
        inner = tb.vmap(distance, in_dims=(None, 0))
        return tb.vmap(inner, in_dims=(0, None))(a, b)

    a = tb.asarray([[0.0, 0.0], [3.0, 4.0]])
    return fn, [(a, a), (a, a + 1), (a, tb.ones((3, 2)))]


@program
def gradient_of_each_example():
    w = tb.asarray([1.0, -2.0]).requires_grad_()

    def fn(x, y):
        losses = tb.vmap(lambda a, b: tb.square((w * a).sum() - b))(x, y)
        rows = [tb.grad(loss, w, retain_graph=True)[0] for loss in losses]
        losses.sum().backward()
        return tb.stack(rows), losses.detach()

    x = tb.asarray([[1.0, 0.0], [0.5, 2.0]])
    return fn, [(x, tb.ones(2)), (x * 2, tb.zeros(2)), (x[:1], tb.ones(1))], w


@program
def gradient_as_a_function():
    def grad(f):
        def gradient(x):
            x = x.detach().requires_grad_()
            return tb.grad(f(x).sum(), x, create_graph=True)[0]

        return gradient

    def fn(f, x, order):
        return functools.reduce(lambda g, _: grad(g), range(order), f)(x).detach()

    x = tb.asarray([0.5, 1.0])
    return fn, [(tb.sin, x, 1), (tb.exp, x, 1), (lambda v: v * v, x, 1), (tb.sin, x + 1, 1)]


@program
def program_composed_of_arguments():
    def fn(f, g, x):
        def both(y):
            return f(g(y)) + g(f(y))

        return both(x), f(x)

    x = tb.asarray([0.25, 1.0])
    return fn, [(tb.exp, tb.sqrt, x), (tb.sqrt, tb.exp, x), (tb.tanh, lambda v: v - 1, x)]


@program
def tree_is_mapped():
    def fn(tree, scale):
        scaled = tree_map(lambda x: x * scale if isinstance(x, tb.Tensor) else x, tree)
        return scaled, sum(x.sum() for x in leaves(scaled) if isinstance(x, tb.Tensor))

    tree = {"a": [tb.ones(2), (tb.arange(3.0), None)], "b": "name", "c": tb.asarray(2.0)}
    return fn, [(tree, 2.0), (tree, 0.5), ([tb.ones(1), [tree]], 2.0)]


@program
def tree_of_parameters_is_trained():
    params = {"w": tb.asarray([[1.0], [0.0]]).requires_grad_(), "b": [tb.zeros(1).requires_grad_()]}

    def fn(x, y, lr):
        loss = tb.square(x @ params["w"] + params["b"][0] - y).mean()
        flat = leaves(params)
        grads = tb.grad(loss, flat)
        with tb.no_grad():
            for p, g in zip(flat, grads, strict=True):
                p -= lr * g
        return loss.detach()

    x = tb.asarray([[1.0, 2.0], [0.0, 1.0]])
    return fn, [(x, tb.ones((2, 1)), 0.1), (x, tb.ones((2, 1)), 0.1), (x * 2, tb.zeros((2, 1)), 0.05)], params


@program
def nested_lists_are_summed():
    def total(tree):
        return sum(total(t) for t in tree) if isinstance(tree, list) else tree

    def depth(tree):
        return 1 + max(map(depth, tree)) if isinstance(tree, list) else 0

    def fn(tree):
        return total(tree) / depth(tree)

    a, b = tb.ones(2), tb.arange(2.0)
    return fn, [([a, [b, a]],), ([b, [a, b]],), ([[a], [[b]]],)]


@program
def scan_with_a_carry():
    def scan(body, carry, xs):
        out = []
        for x in xs:
            carry, y = body(carry, x)
            out.append(y)
        return carry, tb.stack(out)

    def fn(xs, decay):
        def body(carry, x):
            total, count = carry
            total = total * decay + x
            return (total, count + 1), total / (count + 1)

        return scan(body, (tb.zeros_like(xs[0]), 0), xs)

    x = tb.reshape(tb.arange(6.0), (3, 2))
    return fn, [(x, 0.5), (x, 1.0), (x[:2], 0.5)]


@program
def vmap_over_a_tree():
    def fn(batch, scale):
        def one(example, scale):
            return {"out": example["x"] * scale + example["y"].sum(), "shape": example["y"].shape}

        return tb.vmap(one, in_dims=(0, None), out_dims=0)(batch, scale)["out"]

    batch = {"x": tb.arange(3.0), "y": tb.reshape(tb.arange(6.0), (3, 2))}
    return fn, [(batch, 2.0), (batch, tb.asarray(3.0)), ({"x": tb.ones(2), "y": tb.eye(2)}, 2.0)]
