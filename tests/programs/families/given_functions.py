"""Functions that are given as arguments, made anew for each call, and what becomes of them later."""

from __future__ import annotations

import functools
import sys

import tensorbus as tb

from program import Family

program = Family(__name__)
this = sys.modules[__name__]


def x(k=0.0):
    return tb.arange(2.0) + k


@program
def lambdas_and_partials_made_for_each_call():
    def fn(x, f, g):
        return f(x) + g(x)

    def calls():
        for low in (0.1, 0.1, 0.1, 0.2, 0.2):
            yield x(), lambda v: v * 2, functools.partial(tb.clip, min=low)
        yield x(), lambda v: v * 3, functools.partial(tb.clip, max=0.2)

    return fn, calls()


@program
def closures_over_tensors_and_numbers():
    def make(w, b):
        return lambda v: v * w + b

    def fn(f, x):
        return f(x)

    def calls():
        for k in range(4):
            yield make(x(k), 1.0), x()
        yield make(x(), 2.0), x()
        yield make(tb.ones(3), 2.0), tb.ones(3)
        same = x(1)
        yield make(same, 1.0), same
        yield make(same, 1.0), same

    return fn, calls()


@program
def callbacks_that_count_for_themselves():
    def make():
        n = 0

        def call(x):
            nonlocal n
            n += 1
            return x * n

        return call

    def fn(f, x):
        return f(x)

    a, b = make(), make()
    return fn, [(f, x()) for f in (a, a, b, a, b, b, make(), make(), a)], a.__closure__, b.__closure__


@program
def two_callbacks_share_a_cell_or_do_not():
    def make():
        total = tb.zeros(2)

        def add(x):
            nonlocal total
            total = total + x

        def get():
            return total * 2

        return add, get

    def fn(add, get, x):
        add(x)
        return get()

    def calls():
        for k in range(3):
            yield *make(), x(k)
        (add, get), (other, shown) = make(), make()
        yield add, shown, x(1)
        yield add, get, x(1)
        yield other, get, x(1)
        yield add, get, x(1)

    return fn, calls()


@program
def defaults_of_functions_made_for_each_call():
    def make(k):
        def scaled(x, by=k, *, shift=k):
            return x * by + shift

        return scaled

    def fn(f, x):
        return f(x)

    def calls():
        for k in (1.0, 1.0, 2.0, 2.0, 1.0):
            yield make(k), x()
        last = make(3.0)
        yield last, x()
        last.__kwdefaults__["shift"] = 9.0
        yield last, x()
        last.__defaults__ = (5.0,)
        yield last, x()

    return fn, calls()


@program
def attribute_of_a_function_appears_later():
    def helper(x):
        return x * (3.0 if getattr(helper, "careful", False) else 2.0)

    def fn(x):
        return helper(x)

    def calls():
        yield (x(),)
        yield (x(),)
        helper.careful = True
        yield (x(),)
        del helper.careful
        yield (x(),)

    return fn, calls()


@program
def name_of_a_module_appears_later():
    def fn(x):
        try:
            return x * this.SCALE
        except AttributeError:
            return x * 2

    def calls():
        vars(this).pop("SCALE", None)
        yield (x(),)
        yield (x(),)
        this.OTHER = 1.0
        yield (x(),)
        this.SCALE = 5.0
        yield (x(),)
        yield (x(),)
        del this.SCALE, this.OTHER
        yield (x(),)

    return fn, calls()


@program
def method_of_an_object_made_for_each_call():
    class Layer:
        def __init__(self, w):
            self.w = w

        def run(self, x):
            return x * self.w

    def fn(f, x):
        return f(x)

    return fn, [(Layer(w).run, x()) for w in (x(1), x(2), x(3), 2.0, 3.0)]
