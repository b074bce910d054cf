"""What Python allows and few programs do: replays must notice it or leave it to Python."""

from __future__ import annotations

import itertools
import math
import os
import sys
import time
import weakref

import tensorbus as tb

from program import Family

program = Family(__name__)
nn = tb.nn


def xs(n=4, shape=(3,)):
    size = math.prod(shape)
    return [tb.reshape(tb.arange(float(size)) + k, shape) for k in range(n)]


@program
def environ_read():
    def fn(x):
        return x * float(os.environ.get("TB_TEST_SCALE", "1"))

    def calls():
        x = xs(1)[0]
        os.environ.pop("TB_TEST_SCALE", None)
        yield (x,)
        yield (x,)
        os.environ["TB_TEST_SCALE"] = "3"
        yield (x,)
        yield (x,)
        del os.environ["TB_TEST_SCALE"]
        yield (x,)

    return fn, calls()


@program
def environ_by_subscript_and_module_constant():
    def fn(x):
        return x + len(os.environ["TB_K"]), os.sep, sys.maxsize, sys.platform, sys.argv is not None

    def calls():
        x = xs(1)[0]
        for v in ("a", "a", "bbb", "bbb", "a"):
            os.environ["TB_K"] = v
            yield (x,)
        del os.environ["TB_K"]

    return fn, calls()


CLOCK = [100.0]


@program
def clock_patched_between_calls():
    def fn(x):
        return x * time.time()

    def calls():
        x = xs(1)[0]
        old = time.time
        try:
            for v in (1.0, 1.0, 2.0, 5.0):
                time.time = lambda v=v: v
                yield (x,)
        finally:
            time.time = old

    return fn, calls()


@program
def count_iterator_of_the_module():
    it = itertools.count()

    def fn(x):
        return x + next(it)

    return fn, [(x,) for x in xs(5)]


@program
def generator_kept_alive():
    def walk():
        k = 0
        while True:
            got = yield k
            k += 1 if got is None else got

    g = walk()

    def fn(x):
        return x + next(g)

    return fn, [(x,) for x in xs(5)]


@program
def cycle_of_tensors():
    it = itertools.cycle([tb.ones((3,)), tb.zeros((3,)), tb.ones((3,)) * 5])

    def fn(x):
        return x + next(it)

    return fn, [(x,) for x in xs(6)]


@program
def singleton_by_metaclass():
    class Single(type):
        instances = {}

        def __call__(cls, *a, **k):
            if cls not in Single.instances:
                Single.instances[cls] = super().__call__(*a, **k)
            return Single.instances[cls]

    class Conf(metaclass=Single):
        def __init__(self):
            self.scale = 2.0

    def fn(x):
        return x * Conf().scale

    def calls():
        x = xs(1)[0]
        yield (x,)
        yield (x,)
        Conf().scale = 5.0
        yield (x,)
        yield (x,)

    return fn, calls()


@program
def new_returns_cached_instances():
    class P:
        pool = {}

        def __new__(cls, n):
            got = cls.pool.get(n)
            if got is None:
                got = super().__new__(cls)
                got.n = n
                cls.pool[n] = got
            return got

    def fn(x, n):
        return x * P(n).n

    return fn, [(xs(1)[0], n) for n in (1, 2, 1, 3, 2)]


@program
def init_subclass_registry():
    class Base:
        registry = {}

        def __init_subclass__(cls, *, key, **k):
            super().__init_subclass__(**k)
            Base.registry[key] = cls

        def __call__(self, x):
            return self.op(x)

    class A(Base, key="sin"):
        def op(self, x):
            return tb.sin(x)

    class B(Base, key="cos"):
        def op(self, x):
            return tb.cos(x)

    def fn(x, key):
        return Base.registry[key]()(x)

    def calls():
        x = xs(1)[0]
        yield (x, "sin")
        yield (x, "cos")
        yield (x, "sin")

        class C(Base, key="sin"):
            def op(self, x):
                return x * 0

        yield (x, "sin")
        yield (x, "cos")

    return fn, calls()


@program
def descriptor_with_weak_dictionary():
    class Scaled:
        def __init__(self):
            self.data = weakref.WeakKeyDictionary()

        def __set_name__(self, o, n):
            self.n = n

        def __get__(self, o, t=None):
            return self if o is None else self.data.get(o, 1.0)

        def __set__(self, o, v):
            self.data[o] = v

    class M:
        s = Scaled()

    m = M()

    def fn(x):
        return x * m.s

    def calls():
        x = xs(1)[0]
        yield (x,)
        m.s = 2.0
        yield (x,)
        yield (x,)
        m.s = 3.0
        yield (x,)

    return fn, calls()


@program
def property_setter_clamps():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self._t = 1.0
            self.w = nn.Parameter(tb.ones((3,)))

        @property
        def temp(self):
            return self._t

        @temp.setter
        def temp(self, v):
            self._t = max(0.5, v)

        def forward(self, x):
            self.temp = self.temp * 0.8
            return self.w * x / self.temp

    m = M()
    return m, [(x,) for x in xs(6)], m


@program
def setattr_override_counts():
    class M:
        def __init__(self):
            object.__setattr__(self, "log", {})

        def __setattr__(self, n, v):
            self.log[n] = self.log.get(n, 0) + 1
            object.__setattr__(self, n, v)

    m = M()

    def fn(x):
        m.last = x * 2
        return m.last + m.log["last"]

    return fn, [(x,) for x in xs(5)], m


@program
def truthiness_len_contains_iter():
    class Bag:
        def __init__(self, items):
            self.items = items

        def __bool__(self):
            return len(self.items) > 1

        def __len__(self):
            return len(self.items)

        def __getitem__(self, k):
            return self.items[k]

        def __contains__(self, k):
            return any(k is i for i in self.items)

    def fn(bag, x):
        total = x * len(bag)
        for t in bag:
            total = total + t
        return total if bag else -total, x in bag

    a = xs(3)
    return fn, [(Bag([a[0]]), a[1]), (Bag([a[0], a[1]]), a[1]), (Bag([]), a[2]), (Bag([a[2]]), a[0])]


@program
def missing_and_defaults_of_dict_subclass():
    class D(dict):
        def __missing__(self, k):
            v = self[k] = float(len(k))
            return v

    d = D()

    def fn(x, k):
        return x * d[k]

    return fn, [(xs(1)[0], k) for k in ("a", "bb", "a", "ccc", "bb")], d


@program
def try_finally_overrides_and_else():
    def fn(x, how):
        log = []
        try:
            if how == "raise":
                raise KeyError("k")
            if how == "return":
                return x, log
            log.append("body")
        except KeyError as e:
            log.append(str(e))
        else:
            log.append("else")
        finally:
            log.append("finally")
        for k in range(3):
            if k == 5:
                break
        else:
            log.append("loop-else")
        return x * len(log), log

    return fn, [
        (x, h) for x, h in zip(xs(6), ("raise", "return", "ok", "raise", "return", "ok"), strict=True)
    ]


@program(raises=("ValueError", "ExceptionGroup"))
def exception_groups_and_notes():
    def fn(x, n):
        try:
            if n == 1:
                raise ExceptionGroup("g", [ValueError("a"), TypeError("b")])
            if n == 2:
                e = ValueError("noted")
                e.add_note("hint")
                raise e
        except* TypeError as eg:
            x = x * len(eg.exceptions)
        return x + n

    return fn, [(xs(1)[0], n) for n in (0, 1, 2, 0, 1, 2)]
