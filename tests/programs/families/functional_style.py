"""Generators, comprehensions, lambdas, and what functools and itertools make of functions."""

from __future__ import annotations

import functools
import operator

import tensorbus as tb

from program import Family

program = Family(__name__)


@program
def lambdas_in_a_table():
    table = {
        "double": lambda x: x * 2,
        "center": lambda x: x - x.mean(),
        "both": lambda x: table["center"](table["double"](x)),
    }

    def fn(x, *names):
        for name in names:
            x = table[name](x)
        return x

    x = tb.arange(3.0)
    return fn, [(x, "double"), (x, "both"), (x, "center", "double"), (x, "double")]


@program
def map_filter_zip_enumerate():
    def fn(parts, scales):
        scaled = map(lambda x, s: x * s, parts, scales)
        retained = filter(lambda x: x.shape[0] > 1, scaled)
        return [k * x for k, x in enumerate(retained, start=1)], dict(zip("ab", parts, strict=False))

    a, b, c = tb.ones(2), tb.ones(1), tb.arange(3.0)
    return fn, [([a, b, c], (1, 2, 3)), ([a, b, c], (3, 2, 1)), ([b, a], (1, 2))]


@program
def reduce_and_partial():
    affine = functools.partial(lambda x, scale, shift: x * scale + shift, shift=1.0)

    def fn(x, scales):
        chain = [functools.partial(affine, scale=s) for s in scales]
        return functools.reduce(lambda y, f: f(y), chain, x), functools.reduce(operator.mul, scales, 1)

    return fn, [(tb.ones(2), (1, 2)), (tb.ones(2), (2, 3, 4)), (tb.arange(3.0), (1, 2))]


@program
def partial_is_the_program():
    def fn(scale, x, *, power):
        return scale * x**power

    return functools.partial(fn, 3.0, power=2), [(tb.arange(3.0),), (tb.ones(2),), (tb.arange(3.0) + 1,)]


@program
def cached_mask():
    @functools.cache
    def causal(n):
        return tb.tril(tb.ones((n, n), dtype="bool"))

    def fn(scores):
        n = scores.shape[-1]
        return tb.softmax(tb.where(causal(n), scores, -float("inf")), axis=-1)

    return fn, [(tb.ones((3, 3)),), (tb.reshape(tb.arange(4.0), (2, 2)),), (tb.eye(3),)]


@program
def cached_property_is_kept():
    class Grid:
        def __init__(self, n):
            self.n, self.count = n, 0

        @functools.cached_property
        def points(self):
            self.count += 1
            return tb.linspace(0, 1, self.n)

    grid = Grid(3)

    def fn(x):
        return grid.points * x + grid.points

    return fn, [(2.0,), (tb.ones(3),), (tb.arange(3.0),)], grid


@program
def single_dispatch_on_types():
    @functools.singledispatch
    def describe(x):
        return "other"

    @describe.register
    def _(x: tb.Tensor):
        return x * 2

    @describe.register(list)
    def _(x):
        return [describe(v) for v in x]

    return describe, [(tb.ones(2),), ([tb.ones(1), 3],), ("text",), (tb.arange(2.0),)]


@program
def decorators_with_arguments():
    counts = {}

    def counted(name):
        def wrap(f):
            @functools.wraps(f)
            def inner(*args, **kwargs):
                counts[name] = counts.get(name, 0) + 1
                return f(*args, **kwargs)

            return inner

        return wrap

    @counted("outer")
    @counted("inner")
    def fn(x, scale=2):
        """Scale."""
        return x * scale, fn.__name__, fn.__doc__

    return fn, [(tb.ones(2),), (tb.ones(2), 3), (tb.arange(2.0),)], counts


@program
def composition_by_operators():
    def compose(*functions):
        return lambda x: functools.reduce(lambda y, f: f(y), functions, x)

    pipeline = compose(
        tb.exp, operator.neg, lambda x: x.sum(axis=0), operator.methodcaller("clip", -3.0, 0.0)
    )
    return pipeline, [(tb.zeros((2, 2)),), (tb.asarray([[0.5], [-0.5]]),), (tb.ones((2, 2)) - 1.5,)]


@program
def callbacks_are_passed_in():
    def fn(x, before=None, after=()):
        if callable(before):
            x = before(x)
        for hook in after:
            x = hook(x) if hook is not None else x
        return x

    x = tb.linspace(-1, 1, 3)
    double = lambda y: y * 2  # noqa: E731 - as it is passed around
    return fn, [(x, tb.abs), (x, double, (tb.tanh, None)), (x, None, [double, tb.relu]), (x, tb.abs)]
