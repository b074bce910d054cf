"""Globals, closures and attributes of functions: what a program reads besides its arguments."""

from __future__ import annotations

import tensorbus as tb

from program import Family

program = Family(__name__)

RATE = 0.5
WEIGHTS = (1.0, 2.0, 3.0)
STEPS = 0
TABLE = {"gain": 1.0}


@program
def constant_of_the_module():
    def fn(x):
        return sum(w * x**k for k, w in enumerate(WEIGHTS))

    return fn, [(tb.arange(3.0),), (tb.ones((2, 2)),), (tb.arange(3.0) - 1,)]


@program
def global_changes_between_calls():
    def fn(x):
        return x * RATE

    def calls():
        global RATE
        for rate in (0.5, 0.25, 0.5, 2):
            RATE = rate
            yield (tb.ones(2),)
        RATE = 0.5

    return fn, calls()


@program
def global_counter():
    global STEPS
    STEPS = 0

    def fn(x):
        global STEPS
        STEPS += 1
        return x * STEPS

    def calls():
        for _ in range(4):
            yield (tb.ones(2),)
        yield (tb.ones(STEPS),)

    return fn, calls()


@program
def dict_of_the_module_changes():
    def fn(x):
        return x * TABLE["gain"] + len(TABLE)

    def calls():
        for gain in (1.0, 3.0, 1.0):
            TABLE["gain"] = gain
            yield (tb.arange(2.0),)
        TABLE["extra"] = None
        yield (tb.arange(2.0),)
        del TABLE["extra"]
        TABLE["gain"] = 1.0

    return fn, calls()


@program
def closure_over_a_tensor():
    weight = tb.asarray([[1.0, 2.0], [3.0, 4.0]])

    def fn(x):
        return x @ weight

    def calls():
        yield (tb.ones(2),)
        weight[0, 0] = -5.0
        yield (tb.ones(2),)
        yield (tb.ones((3, 2)),)

    return fn, calls(), weight


@program
def closure_variable_is_rebound():
    scale, offset = 2.0, tb.ones(2)

    def fn(x):
        return x * scale + offset

    def calls():
        nonlocal scale, offset
        yield (tb.arange(2.0),)
        scale = 3.0
        yield (tb.arange(2.0),)
        offset = tb.zeros(1)
        yield (tb.arange(2.0),)

    return fn, calls()


@program
def nonlocal_counter_and_total():
    count, total = 0, 0.0

    def fn(x):
        nonlocal count, total
        count += 1
        total = total + x.sum()
        return total / count

    return fn, [(tb.ones(2),), (tb.arange(3.0),), (tb.ones(2),), (tb.ones(2) * 4,)]


@program
def attributes_of_a_function():
    def fn(x):
        fn.calls += 1
        return x * fn.scale

    fn.calls, fn.scale = 0, 2.0

    def calls():
        yield (tb.ones(2),)
        fn.scale = 5.0
        yield (tb.ones(2),)
        yield (tb.ones(fn.calls),)

    return fn, calls()


@program
def a_closure_is_returned():
    def fn(w):
        doubled = w * 2

        def layer(x, power=1):
            return (x @ doubled) ** power

        return layer(tb.ones(2)), layer(tb.arange(2.0), power=2)

    return fn, [(tb.eye(2),), (tb.ones((2, 3)),), (tb.eye(2) * 3,)]


@program
def late_binding_in_a_loop():
    def fn(x):
        late = [lambda y: y * k for k in range(3)]  # noqa: B023 - the trap itself
        early = [lambda y, k=k: y * k for k in range(3)]
        return [f(x) for f in late], [f(x) for f in early]

    return fn, [(tb.ones(2),), (tb.arange(2.0),), (tb.ones(3),)]


@program
def counter_made_by_a_factory():
    def counter(start):
        def step(x):
            nonlocal start
            start += 1
            return x + start

        return step

    a, b = counter(0), counter(10)

    def fn(x):
        return b(a(x)) - a(x)

    return fn, [(tb.zeros(2),), (tb.zeros(2),), (tb.ones(3),)]


@program
def mutable_default_argument():
    def fn(x, seen=[]):  # noqa: B006 - the trap itself
        seen.append(x.shape)
        return x * len(seen), list(seen)

    return fn, [(tb.ones(1),), (tb.ones(2),), (tb.ones(1),), (tb.ones(1), [])], fn.__defaults__


@program
def a_helper_is_replaced():
    def double(x):
        return x * 2

    def square(x):
        return x * x

    helper = double

    def fn(x):
        return helper(x) + 1

    def calls():
        nonlocal helper
        yield (tb.arange(3.0),)
        helper = square
        yield (tb.arange(3.0),)
        helper = double
        yield (tb.arange(3.0),)

    return fn, calls()
