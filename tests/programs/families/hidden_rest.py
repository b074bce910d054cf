"""Globals, classes and objects that programs reach in other ways, changed between calls."""

from __future__ import annotations

import abc
import collections
import enum
import types

import tensorbus as tb

from program import Family

program = Family(__name__)


class Cfg:
    kind = "a"

    def __init__(self, **k):
        self.__dict__.update(k)


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Fl(enum.Flag):
    A = enum.auto()
    B = enum.auto()


@program
def chainmap_counter_deque_defaultdict():
    base, top = ({"a": 1.0, "b": 2.0}, {})
    cm = collections.ChainMap(top, base)
    dq = collections.deque([1.0, 2.0], maxlen=2)
    dd = collections.defaultdict(lambda: 4.0)
    ct = collections.Counter("aab")

    def fn(x):
        return x * cm["a"] + dq[0] - dq[-1] + dd.get("z", 1.0) + ct["a"]

    def calls():
        x = tb.ones(2)
        yield (x,)
        yield (x,)
        top["a"] = 9.0
        yield (x,)
        dq.append(7.0)
        yield (x,)
        dd["z"] = 2.0
        yield (x,)
        ct["a"] += 5
        yield (x,)
        base["a"] = 0.0
        del top["a"]
        yield (x,)

    return (fn, calls())


@program
def enums_flags():
    cur = {"c": Color.RED}

    def fn(x, f):
        if f & Fl.A:
            x = x + 1
        if Fl.B in f:
            x = x * 3
        return (x * cur["c"].value, cur["c"], f)

    def calls():
        x = tb.ones(2)
        yield (x, Fl.A)
        yield (x, Fl.B)
        cur["c"] = Color.BLUE
        yield (x, Fl.A | Fl.B)
        yield (x, Fl.A)

    return (fn, calls())


@program
def builtin_shadowed_in_module():

    def fn(x):
        return x * len([1, 2])

    def calls():
        yield (tb.ones(2),)
        fn.__globals__["len"] = lambda q: 7
        try:
            yield (tb.ones(2),)
        finally:
            del fn.__globals__["len"]
        yield (tb.ones(2),)

    return (fn, calls())


@program
def global_appears_later():

    def fn(x):
        try:
            return x * H3_LATER
        except NameError:
            return x

    def calls():
        yield (tb.ones(2),)
        yield (tb.ones(2),)
        globals()["H3_LATER"] = 5.0
        try:
            yield (tb.ones(2),)
            yield (tb.ones(2),)
        finally:
            del globals()["H3_LATER"]
        yield (tb.ones(2),)

    return (fn, calls())


@program
def attribute_appears_later():
    c = Cfg(a=1.0)

    class K:
        a = 1.0
        __slots__ = ("s",)

    k = K()

    def fn(x):
        y = x * getattr(c, "bonus", 1.0)
        if hasattr(c, "extra"):
            y = y + 100
        try:
            y = y * c.missing
        except AttributeError:
            pass
        try:
            y = y + k.s
        except AttributeError:
            y = y - 1
        return y

    def calls():
        x = tb.ones(2)
        yield (x,)
        yield (x,)
        c.bonus = 3.0
        yield (x,)
        c.extra = True
        yield (x,)
        c.missing = 0.5
        yield (x,)
        k.s = 2.0
        yield (x,)
        Cfg.bonus = 4.0
        del c.bonus
        yield (x,)
        del Cfg.bonus
        yield (x,)

    return (fn, calls())


@program
def dict_key_appears_later():
    d = {}

    def fn(x):
        return x * d.get("k", 1.0) + (1 if "z" in d else 0)

    def calls():
        x = tb.ones(2)
        yield (x,)
        yield (x,)
        d["k"] = 3.0
        yield (x,)
        d["z"] = None
        yield (x,)
        d.clear()
        yield (x,)

    return (fn, calls())


@program
def set_of_objects():

    class T:
        def __init__(self, v):
            self.v = v

    s = {T(1.0)}
    f = frozenset([T(2.0)])

    def fn(x):
        return x * sum(t.v for t in s) + sum(t.v for t in f)

    def calls():
        x = tb.ones(2)
        yield (x,)
        yield (x,)
        s.add(T(5.0))
        yield (x,)
        next(iter(f)).v = 9.0
        yield (x,)

    return (fn, calls())


@program
def object_as_dict_key():

    class T:
        def __init__(self, v):
            self.v = v

    t = T(3.0)
    d = {t: 1.0}

    def fn(x):
        return x * sum((k.v * v for k, v in d.items()))

    def calls():
        x = tb.ones(2)
        yield (x,)
        yield (x,)
        t.v = 5.0
        yield (x,)
        d[t] = 2.0
        yield (x,)
        d[T(7.0)] = 1.0
        yield (x,)

    return (fn, calls())


@program
def fraction_decimal_complex():
    import fractions

    c = Cfg(f=fractions.Fraction(1, 2))

    def fn(x):
        return x * float(c.f)

    def calls():
        x = tb.ones(2)
        yield (x,)
        yield (x,)
        c.f = fractions.Fraction(3, 4)
        yield (x,)

    return (fn, calls())


@program
def property_reads_hidden_state():

    class V:
        def __init__(self):
            self._q = 1.0
            self.n = 0

        @property
        def q(self):
            return self._q * 2

        @q.setter
        def q(self, v):
            self._q = v

    v = V()

    def fn(x, s):
        if s is not None:
            v.q = s
        return x * v.q

    def calls():
        x = tb.ones(2)
        yield (x, None)
        yield (x, None)
        v.q = 4.0
        yield (x, None)
        yield (x, 9.0)
        yield (x, 9.0)
        yield (x, None)

    return (fn, calls(), v)


@program
def module_in_sys_modules_attribute():
    mod = types.ModuleType("h3_mod")
    mod.K = 2.0

    def fn(x):
        return x * mod.K

    def calls():
        x = tb.ones(2)
        yield (x,)
        yield (x,)
        mod.K = 3.0
        yield (x,)

    return (fn, calls())


@program
def mappingproxy_and_vars():
    c = Cfg(a=1.0, b=2.0)

    def fn(x):
        return x * sum(vars(c).values())

    def calls():
        x = tb.ones(2)
        yield (x,)
        yield (x,)
        c.zz = 5.0
        yield (x,)
        c.a = 3.0
        yield (x,)

    return (fn, calls())


@program
def a_class_registered_with_an_abstract_one():
    class Base(abc.ABC):  # noqa: B024 - only a name
        pass

    class Kind:
        pass

    kind = Kind()

    def calls():
        x = tb.ones(2)
        yield (x,)
        yield (x,)
        Base.register(Kind)
        yield (x,)
        yield (x,)

    return (lambda x: x * 2 if isinstance(kind, Base) else x), calls()


@program
def bases_exchanged():
    class Once:
        def change(self, x):
            return x + 1

    class Thrice:
        def change(self, x):
            return x * 3

    class Changing(Once):
        pass

    changing = Changing()

    def calls():
        x = tb.ones(2)
        yield (x,)
        yield (x,)
        Changing.__bases__ = (Thrice,)
        yield (x,)
        yield (x,)

    return (lambda x: changing.change(x)), calls()


@program
def a_default_by_name_changed_in_place():
    def inner(x, *, by=2.0, also=abs):
        return also(x) * by

    def calls():
        x = tb.ones(2)
        yield (x,)
        yield (x,)
        inner.__kwdefaults__["by"] = 7.0
        yield (x,)
        inner.__kwdefaults__["also"] = tb.exp
        yield (x,)
        yield (x,)

    return (lambda x: inner(x)), calls()


@program
def a_number_whose_power_becomes_complex():
    def calls():
        x = tb.ones(2)
        for n in (1.0, 2.0, 3.0, -4.0, 9.0, -2.0):
            yield (x, n)

    return (lambda x, n: tb.abs(x * (n**0.5))), calls()


@program
def a_power_of_integers_that_becomes_a_fraction():
    def calls():
        x = tb.ones(2, dtype=tb.int32)
        for n in (1, 2, 3, -1, 4, -2):
            yield (x, n)

    return (lambda x, n: x * (2**n)), calls()
