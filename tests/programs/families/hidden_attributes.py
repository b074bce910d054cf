"""Attributes read by names made at run time, through classes and hooks, changed between calls."""

from __future__ import annotations

import dataclasses
import operator
import types

import tensorbus as tb

from program import Family

program = Family(__name__)


class Cfg:
    kind = "a"

    def __init__(self, **k):
        self.__dict__.update(k)


@dataclasses.dataclass
class Point:
    u: float
    v: float
    tag: str = "t"


class Meta(type):
    scale = 2.0

    def __call__(cls, *a):
        result = super().__call__(*a)
        result.extra = cls.scale
        return result


class Made(metaclass=Meta):
    def __init__(self, x):
        self.x = x


class Lazy:
    def __init__(self):
        self.store = {"alpha": 2.0}

    def __getattr__(self, name):
        try:
            return self.__dict__["store"][name]
        except KeyError:
            raise AttributeError(name) from None


@program
def dict_attribute_by_argument():
    cfg = Cfg(a=2.0, b=3.0)

    def fn(x, which):
        return x * cfg.__dict__[which]

    def calls():
        x = tb.ones(2)
        yield (x, "a")
        yield (x, "a")
        cfg.a = 7.0
        yield (x, "a")
        yield (x, "b")
        cfg.b = 5.0
        yield (x, "b")

    return (fn, calls())


@program
def attrgetter_by_argument():
    cfg = Cfg(a=2.0, b=3.0)

    def fn(x, which):
        return x * operator.attrgetter(which)(cfg)

    def calls():
        x = tb.ones(2)
        for w in "aab":
            yield (x, w)
        cfg.a = 9.0
        yield (x, "a")
        cfg.b = 11.0
        yield (x, "b")
        yield (x, "a")

    return (fn, calls())


@program
def getattr_computed():
    cfg = Cfg(lr_a=2.0, lr_b=3.0)

    def fn(x, which):
        return x * getattr(cfg, "lr_" + which)

    def calls():
        x = tb.ones(2)
        for w in "aabab":
            yield (x, w)
        cfg.lr_a = 9.0
        yield (x, "a")
        cfg.lr_b = 11.0
        yield (x, "b")
        yield (x, "a")

    return (fn, calls())


@program
def match_class_keywords():
    p = Point(1.0, 2.0)

    def fn(x):
        match p:
            case Point(u=1.0, v=vv):
                return x * vv
            case Point(u=uu):
                return x + uu

    def calls():
        x = tb.ones(2)
        yield (x,)
        yield (x * 2,)
        p.v = 5.0
        yield (x,)
        p.u = 4.0
        yield (x,)
        yield (x,)

    return (fn, calls())


@program
def match_class_positional():
    p = Point(1.0, 2.0)

    def fn(x):
        match p:
            case Point(1.0, w):
                return x * w
            case Point(a, b, "t"):
                return x + a - b
            case _:
                return x

    def calls():
        x = tb.ones(2)
        yield (x,)
        yield (x * 2,)
        p.v = 5.0
        yield (x,)
        p.u = 4.0
        yield (x,)
        p.tag = "z"
        yield (x,)

    return (fn, calls())


@program
def match_mapping_and_sequence():
    cfg = {"kind": "scale", "by": 3.0}
    seq = ["a", 1.0, 2.0]

    def fn(x):
        match cfg:
            case {"kind": "scale", "by": b}:
                x = x * b
            case {"kind": _, **rest}:
                x = x + len(rest)
        match seq:
            case ["a", *nums]:
                return x + sum(nums)
            case [*_, last]:
                return x - last

    def calls():
        x = tb.ones(2)
        yield (x,)
        yield (x,)
        cfg["by"] = 4.0
        yield (x,)
        cfg["kind"] = "z"
        yield (x,)
        seq[0] = "q"
        yield (x,)
        seq[-1] = 9.0
        yield (x,)

    return (fn, calls())


@program
def argument_is_the_global_weight():
    w = tb.asarray([1.0, 2.0])

    def fn(x):
        x += 1
        return x + w

    def calls():
        yield (tb.ones(2),)
        yield (tb.zeros(2),)
        yield (w,)
        yield (tb.zeros(2),)
        yield (w,)

    return (fn, calls(), w)


@program
def same_list_twice():

    def fn(a, b):
        a[0] = a[0] + 1
        return b[0] * 2

    def calls():
        a, b = ([tb.ones(2)], [tb.ones(2)])
        yield (a, b)
        yield (a, b)
        yield (a, a)
        yield (b, b)
        yield (a, b)

    return (fn, calls())


@program
def argument_list_is_the_closure_list():
    own = [tb.ones(2)]

    def fn(a):
        a[0] = a[0] + 1
        return own[0] * 2

    def calls():
        a = [tb.ones(2)]
        yield (a,)
        yield (a,)
        yield (own,)
        yield (a,)

    return (fn, calls(), own)


@program
def same_tensor_in_two_containers():

    def fn(d, e):
        d["x"] += 1
        return d["x"] * e["x"]

    def calls():
        t = tb.ones(2)
        yield ({"x": t}, {"x": tb.ones(2)})
        yield ({"x": t}, {"x": tb.ones(2)})
        yield ({"x": t}, {"x": t})
        d = {"x": t}
        yield (d, d)
        yield ({"x": t}, {"x": tb.ones(2)})

    return (fn, calls())


@program
def module_attribute_aliases_argument():

    class M(tb.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("b", tb.zeros(2))

        def forward(self, x):
            x *= 2
            self.b += x
            return x + self.b

    m = M()

    def calls():
        yield (tb.ones(2),)
        yield (tb.ones(2),)
        yield (m.b,)
        yield (tb.ones(2),)

    return (m, calls(), m)


@program
def metaclass_attribute():

    def fn(x):
        m = Made(x)
        return m.x * m.extra * type(Made).scale

    def calls():
        x = tb.ones(2)
        yield (x,)
        yield (x,)
        Meta.scale = 3.0
        yield (x,)
        Meta.scale = 2.0
        yield (x,)

    return (fn, calls())


@program
def getattr_hook():
    o = Lazy()

    def fn(x):
        return x * o.alpha + getattr(o, "beta", 0.5)

    def calls():
        x = tb.ones(2)
        yield (x,)
        yield (x,)
        o.store["alpha"] = 3.0
        yield (x,)
        o.store["beta"] = 8.0
        yield (x,)
        o.beta = 1.0
        yield (x,)
        yield (x,)

    return (fn, calls())


@program
def instance_shadows_class_attribute():

    class A:
        gain = 2.0

        def f(self, x):
            return x * self.gain

    class B(A):
        pass

    o = B()

    def fn(x):
        return o.f(x)

    def calls():
        x = tb.ones(2)
        yield (x,)
        B.gain = 3.0
        yield (x,)
        o.gain = 4.0
        yield (x,)
        del o.gain
        yield (x,)
        del B.gain
        yield (x,)
        o.f = lambda x: x - 1
        yield (x,)
        del o.f
        A.f = lambda self, x: x + 10
        yield (x,)

    return (fn, calls())


@program
def global_function_replaced():
    space = types.SimpleNamespace(act=tb.exp, k=2)

    def fn(x):
        return space.act(x) * space.k

    def calls():
        x = tb.ones(2)
        yield (x,)
        yield (x,)
        space.act = tb.sin
        yield (x,)
        space.k = 3
        yield (x,)
        space.act = lambda z: z * 2
        yield (x,)

    return (fn, calls())
