"""Classes: what Python's object model offers, around tensors."""

from __future__ import annotations

import abc
import enum
from dataclasses import dataclass

import tensorbus as tb

from program import Family

program = Family(__name__)


class Mode(enum.Enum):
    SUM = "sum"
    MEAN = "mean"

    def reduce(self, x):
        return getattr(x, self.value)()


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 3


class Scaler:
    """A scale with everything a class can have."""

    count = 0
    unit = 1.0

    def __init__(self, factor):
        self.factor = factor
        type(self).count += 1

    @property
    def doubled(self):
        return self.factor * 2

    @doubled.setter
    def doubled(self, value):
        self.factor = value / 2

    @classmethod
    def half(cls):
        return cls(0.5)

    @staticmethod
    def shift(x, by=1):
        return x + by

    def __call__(self, x):
        return x * self.factor * self.unit


class Shifted(Scaler):
    def __init__(self, factor, by):
        super().__init__(factor)
        self.by = by

    def __call__(self, x):
        return self.shift(super().__call__(x), self.by)


@program
def a_callable_object():
    scaler = Scaler(2.0)

    def calls():
        yield (tb.ones(2),)
        scaler.factor = 3.0
        yield (tb.ones(2),)
        scaler.doubled = 20
        yield (tb.ones(2),)

    return scaler, calls(), scaler


@program
def a_bound_method():
    class Line:
        def __init__(self):
            self.slope, self.calls = tb.asarray([1.0, 2.0]), 0

        def at(self, x, *, offset=0.0):
            self.calls += 1
            return self.slope * x + offset

    line = Line()
    return line.at, [(tb.ones(2),), (tb.arange(2.0),), (tb.asarray(3.0),)], line


@program
def inheritance_and_super():
    Scaler.count = 0

    def fn(x, by):
        shifted = Shifted(2.0, by)
        return shifted(x), Scaler.half()(x), Shifted.shift(x), Scaler.count

    return fn, [(tb.ones(2), 1), (tb.ones(2), 2), (tb.arange(3.0), 1)]


@program
def class_attribute_changes():
    scaler = Scaler(3.0)

    def fn(x):
        return scaler(x) + scaler.doubled

    def calls():
        for unit in (1.0, 2.0, 1.0):
            Scaler.unit = unit
            yield (tb.ones(2),)
        scaler.unit = 5.0
        yield (tb.ones(2),)
        Scaler.unit = 1.0

    return fn, calls()


@program
def enums_choose():
    def fn(x, mode, level=Level.LOW):
        y = mode.reduce(x) * level.value
        return (y, "low") if level < 2 else (y, mode, Mode("sum") is mode)

    x = tb.arange(4.0)
    return fn, [(x, Mode.SUM), (x, Mode.MEAN), (x, Mode.SUM, Level.HIGH), (x, Mode.MEAN, Level(3))]


@program
def abstract_and_final():
    class Layer(abc.ABC):
        def __call__(self, x):
            return self.apply(x) * self.gain

        @property
        def gain(self):
            return 1.0

        @abc.abstractmethod
        def apply(self, x): ...

    class Power(Layer):
        def __init__(self, n):
            self.n = n

        def apply(self, x):
            return x**self.n

    class Loud(Power):
        gain = 10.0

    def fn(x, kind):
        return {"power": Power, "loud": Loud}[kind](2)(x), issubclass(Loud, Layer)

    return fn, [(tb.arange(3.0), "power"), (tb.arange(3.0), "loud"), (tb.arange(3.0), "power")]


@program
def a_dataclass_that_computes():
    @dataclass
    class Gaussian:
        mean: tb.Tensor
        scale: float = 1.0

        def __post_init__(self):
            self.precision = 1 / self.scale**2

        def log_density(self, x):
            return -0.5 * self.precision * tb.square(x - self.mean)

        def shifted(self, by):
            return Gaussian(self.mean + by, self.scale)

    def fn(gaussian, x):
        return gaussian.log_density(x), gaussian.shifted(1.0)

    x = tb.arange(3.0)
    return fn, [(Gaussian(tb.ones(3)), x), (Gaussian(tb.zeros(3)), x), (Gaussian(tb.ones(3), 2.0), x)]


@program
def a_class_counts_its_instances():
    class Node:
        count = 0
        registry = {}

        def __init_subclass__(cls, **kw):
            super().__init_subclass__(**kw)
            Node.registry[cls.__name__.lower()] = cls

        def __new__(cls, *args):
            Node.count += 1
            return super().__new__(cls)

        def __init__(self, *children):
            self.children = children

    class Leaf(Node):
        def value(self):
            return self.children[0]

    class Add(Node):
        def value(self):
            return sum(child.value() for child in self.children)

    def fn(x, y):
        sums = Node.registry["add"](Leaf(x), Leaf(y), Leaf(x * 2))
        return sums.value(), Node.count

    return fn, [(tb.ones(2), tb.ones(2)), (tb.arange(2.0), tb.ones(2)), (tb.ones(2), tb.zeros(2))]
