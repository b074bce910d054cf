"""Entries of containers and defaults of functions that change between calls."""

from __future__ import annotations

import functools
import operator
import weakref

import tensorbus as tb

from program import Family

program = Family(__name__)


class Cfg:
    kind = "a"

    def __init__(self, **k):
        self.__dict__.update(k)


@program
def list_of_functions_is_edited():
    steps = [tb.exp, lambda x: x + 1]

    def fn(x):
        for s in steps:
            x = s(x)
        return x

    def calls():
        x = tb.zeros(2)
        yield (x,)
        yield (x,)
        steps.append(tb.neg if hasattr(tb, "neg") else tb.negative)
        yield (x,)
        steps[0] = tb.cos
        yield (x,)
        steps.reverse()
        yield (x,)
        steps.pop()
        yield (x,)

    return (fn, calls())


@program
def nested_config_dict_changes():
    cfg = {"model": {"layers": [1, 2, {"k": 0.5}]}, "names": {"a", "b"}}

    def fn(x):
        out = x
        for part in cfg["model"]["layers"]:
            out = out * part["k"] if isinstance(part, dict) else out + part
        return out * len(cfg["names"]) + ("a" in cfg["names"])

    def calls():
        x = tb.ones(2)
        yield (x,)
        yield (x,)
        cfg["model"]["layers"][2]["k"] = 2.0
        yield (x,)
        cfg["names"].add("c")
        yield (x,)
        cfg["names"].discard("a")
        yield (x,)
        cfg["model"]["layers"][0] = 10
        yield (x,)

    return (fn, calls())


@program
def default_argument_tensor_changes():
    one = tb.ones(2)

    scale = {"k": 1.0}

    def fn(x, w=one, *, cfg=scale):
        return x * w + cfg["k"]

    def calls():
        x = tb.ones(2)
        yield (x,)
        yield (x,)
        fn.__defaults__[0].__setitem__(0, 5.0)
        yield (x,)
        fn.__kwdefaults__["cfg"]["k"] = 2.0
        yield (x,)
        fn.__defaults__ = (tb.zeros(2),)
        yield (x,)
        fn.__kwdefaults__ = {"cfg": {"k": 7.0}}
        yield (x,)

    return (fn, calls())


@program
def code_object_replaced():

    def fn(x):
        return x + 1

    def other(x):
        return x * 10

    def calls():
        x = tb.ones(2)
        yield (x,)
        yield (x,)
        fn.__code__ = other.__code__
        yield (x,)

    return (fn, calls())


@program
def cache_decorated_helper():
    k = [2.0]

    @functools.cache
    def helper(n):
        return n * k[0]

    def fn(x, n):
        return x * helper(n)

    def calls():
        x = tb.ones(2)
        yield (x, 1)
        yield (x, 1)
        k[0] = 5.0
        yield (x, 1)
        yield (x, 2)
        helper.cache_clear()
        yield (x, 1)
        yield (x, 2)

    return (fn, calls())


@program
def cached_property():

    class M:
        def __init__(self, w):
            self.w = w

        @functools.cached_property
        def double(self):
            return self.w * 2

    m = M(tb.ones(2))

    def fn(x):
        return x + m.double

    def calls():
        x = tb.ones(2)
        yield (x,)
        yield (x,)
        m.w = tb.zeros(2)
        yield (x,)
        del m.double
        yield (x,)
        yield (x,)

    return (fn, calls())


@program
def string_format_reads_attributes():
    c = Cfg(name="q", size=3)
    names = {"q3": 2.0, "q4": 5.0}

    def fn(x):
        return x * names[f"{c.name}{c.size}"]

    def calls():
        x = tb.ones(2)
        yield (x,)
        yield (x,)
        c.size = 4
        yield (x,)
        names["q4"] = 6.0
        yield (x,)

    return (fn, calls())


@program
def percent_and_str_of_object():

    class N:
        def __init__(self):
            self.secret = 3

        def __str__(self):
            return str(self.__dict__["secret"])

        def __index__(self):
            return self.secret

        def __len__(self):
            return self.secret

        def __bool__(self):
            return self.secret > 3

        def __contains__(self, q):
            return q == self.secret

        def __iter__(self):
            return iter(range(self.secret))

    n = N()

    def fn(x):
        return x * len(f"{n}") + operator.index(n) + (10 if n else 0) + (100 if 4 in n else 0) + sum(n)

    def calls():
        x = tb.ones(2)
        yield (x,)
        yield (x,)
        n.secret = 4
        yield (x,)
        n.secret = 12
        yield (x,)

    return (fn, calls())


@program
def weak_reference_dies():

    class T:
        def __init__(self, v):
            self.v = v

    hold = [T(3.0)]
    ref = weakref.ref(hold[0])

    def fn(x):
        t = ref()
        return x if t is None else x * t.v

    def calls():
        x = tb.ones(2)
        yield (x,)
        yield (x,)
        hold[0].v = 5.0
        yield (x,)
        hold.clear()
        yield (x,)
        yield (x,)

    return (fn, calls())


@program
def iterator_argument():

    def fn(x, it):
        return x * next(it)

    def calls():
        x = tb.ones(2)
        it = iter([1.0] * 3)
        yield (x, it)
        yield (x, iter([2.0] * 3))
        yield (x, (k * 2.0 for k in range(4)))
        yield (x, (k * 3.0 for k in range(5, 9)))

    return (fn, calls())


@program
def order_of_dict_matters():

    def fn(d):
        out = None
        for _k, v in d.items():
            out = v if out is None else out * 2 + v
        return out

    def calls():
        a, b = (tb.ones(2), tb.zeros(2))
        yield ({"a": a, "b": b},)
        yield ({"b": b, "a": a},)
        yield ({"a": a, "b": b},)
        yield ({"b": b, "a": a},)

    return (fn, calls())


@program
def bool_int_float_keys():

    def fn(d, k):
        return d[1] * k

    def calls():
        a = tb.ones(2)
        yield ({1: a}, 1)
        yield ({True: a}, True)
        yield ({1.0: a}, 1.0)
        yield ({1: a}, 1)

    return (fn, calls())


@program
def subclass_of_list_and_dict():

    class L(list):
        gain = 2.0

    class D(dict):
        def __missing__(self, k):
            return self.fallback

    part = L([1.0, 2.0])
    d = D(a=1.0)
    d.fallback = 3.0
    part.off = 1.0

    def fn(x):
        return x * sum(part) * part.gain + d["a"] + d["zz"] + part.off

    def calls():
        x = tb.ones(2)
        yield (x,)
        yield (x,)
        d.fallback = 30.0
        yield (x,)
        part.off = 2.0
        yield (x,)
        L.gain = 3.0
        yield (x,)
        d["zz"] = 0.0
        yield (x,)
        part.append(5.0)
        yield (x,)

    return (fn, calls())
