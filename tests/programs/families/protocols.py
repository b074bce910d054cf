"""Classes that take part in Python's syntax: operators, attributes, iteration, ``with``."""

from __future__ import annotations

import tensorbus as tb

from program import Family

program = Family(__name__)


class Point:
    """A vector of two tensors, with operators."""

    __slots__ = ("x", "y")

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __add__(self, other):
        return Point(self.x + other.x, self.y + other.y)

    def __mul__(self, k):
        return Point(self.x * k, self.y * k)

    __rmul__ = __mul__

    def __neg__(self):
        return -1 * self

    def __matmul__(self, other):
        return (self.x * other.x + self.y * other.y).sum()

    def __getitem__(self, place):
        return (self.x, self.y)[place]

    def __iadd__(self, other):
        self.x = self.x + other.x
        return self


@program
def operators_of_points():
    def fn(a, b, k):
        c = 2 * a + -b
        c += b
        return c, c @ a, c[0], Point(*c) if k else a * 0.5

    p, q = Point(tb.ones(2), tb.arange(2.0)), Point(tb.zeros(2), tb.ones(2))
    return fn, [(p, q, 0), (q, p, 0), (p, p, 1), (p * 3, q, 0)]


@program
def attributes_by_name():
    class Lazy:
        def __init__(self, parts):
            self.parts = parts
            self.asked = []

        def __getattr__(self, name):
            if name.startswith("part_"):
                self.asked.append(name)
                return self.parts[int(name[5:])]
            raise AttributeError(name)

    lazy = Lazy([tb.ones(2), tb.arange(2.0)])

    def fn(k):
        return lazy.part_0 * getattr(lazy, f"part_{k}"), getattr(lazy, "whole", None), hasattr(lazy, "parts")

    return fn, [(0,), (1,), (0,)], lazy


@program
def a_descriptor_checks():
    class Positive:
        def __set_name__(self, owner, name):
            self.name = "_" + name

        def __get__(self, thing, owner=None):
            return self if thing is None else getattr(thing, self.name)

        def __set__(self, thing, value):
            if value <= 0:
                raise ValueError(f"{self.name[1:]} must be positive, got {value}")
            setattr(thing, self.name, value)

    class Spring:
        stiffness = Positive()

        def __init__(self, stiffness):
            self.stiffness = stiffness

    def fn(x, k):
        try:
            return -Spring(k).stiffness * x
        except ValueError as error:
            return str(error)

    return fn, [(tb.arange(3.0), 2), (tb.arange(3.0), -1), (tb.arange(3.0), 4)]


@program
def an_iterator_class():
    class Windows:
        def __init__(self, x, width):
            self.x, self.width, self.place = x, width, 0

        def __iter__(self):
            return self

        def __next__(self):
            if self.place + self.width > self.x.shape[0]:
                raise StopIteration
            window = self.x[self.place : self.place + self.width]
            self.place += 1
            return window

    def fn(x, width):
        return tb.stack([w.mean() for w in Windows(x, width)])

    return fn, [(tb.arange(5.0), 2), (tb.arange(5.0), 3), (tb.arange(4.0) * 2, 2)]


@program
def a_context_manager_class():
    class Timed:
        def __init__(self, log):
            self.log = log

        def __enter__(self):
            self.log.append("in")
            return self

        def __exit__(self, kind, error, trace):
            self.log.append(kind.__name__ if kind else "out")
            return kind is KeyError

    log = []

    def fn(x, table):
        with Timed(log) as timed:
            x = x * 2
            x = x + table["shift"]
        return x, timed.log is log

    return fn, [(tb.ones(2), {"shift": 1}), (tb.ones(2), {}), (tb.ones(2), {"shift": 1})], log


@program
def equality_hash_and_repr():
    class Key:
        def __init__(self, name, size):
            self.name, self.size = name, size

        def __eq__(self, other):
            return isinstance(other, Key) and self.name == other.name

        def __hash__(self):
            return hash(self.name)

        def __repr__(self):
            return f"Key({self.name})"

        def __bool__(self):
            return self.size > 0

        def __len__(self):
            return self.size

        def __contains__(self, k):
            return k < self.size

    def fn(x, name, size):
        table = {Key("a", 1): x, Key("b", 2): x + 1}
        key = Key(name, size)
        return table.get(key, 0 * x), repr(key), bool(key), 1 in key, len(key) if key else None

    x = tb.ones(2)
    return fn, [(x, "a", 2), (x, "b", 0), (x, "c", 1), (x, "a", 2)]
