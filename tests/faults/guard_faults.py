"""Faults of compiled functions: what their code looks up is replaced after a capture."""

from __future__ import annotations

import functools
import gc
import inspect
import math
import operator
import random
import statistics
import types
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import tensorbus as tb
from tensorbus import nn

from error_bounds import assert_alike
from registry import child, fault

_settings = {"scale": 2.0, "name": "double"}
_view = types.MappingProxyType(_settings)
_partial = functools.partial(lambda scale, x: x * scale, 3.0)
_linear = nn.Linear(2, 2)


class _Options:
    scale = 2.0


def _replaced_iteration(self: tb.Tensor) -> Iterator[tb.Tensor]:
    return iter([self * 3.0])


def _replaced_sum(x: Any) -> Any:
    return x * 7.0


def _replaced_scalar(*_: Any) -> float:
    return 13.0


def _replaced_operator(x: Any, y: Any) -> Any:
    return tb.add(x, 17.0)


def _method(x: tb.Tensor) -> Any:
    return x.sum()


def _in_place(x: tb.Tensor) -> Any:
    y = x + 1.0
    y *= 2.0
    return y


def _by_name(x: tb.Tensor) -> Any:
    return getattr(x, "sum")()  # noqa: B009 - what is tested


_LOOKUPS: list[tuple[Callable[[tb.Tensor], Any], Any, str, Any]] = [
    (lambda x: x * math.sqrt(4.0), math, "sqrt", _replaced_scalar),
    (lambda x: x * math.pi, math, "pi", 3.0),
    (lambda x: operator.neg(x), operator, "neg", _replaced_sum),
    (lambda x: x * statistics.mean([1.0, 3.0]), statistics, "mean", _replaced_scalar),
    (
        lambda x: x * float(Fraction(1, 2).limit_denominator()),
        Fraction,
        "limit_denominator",
        _replaced_scalar,
    ),
    (lambda x: x * functools.reduce(max, [1.0, 2.0]), functools, "reduce", _replaced_scalar),
    (_method, tb.Tensor, "sum", _replaced_sum),
    (_by_name, tb.Tensor, "sum", _replaced_sum),
    (lambda x: x + x, tb.Tensor, "__add__", _replaced_operator),
    (lambda x: 2.0 - x, tb.Tensor, "__rsub__", _replaced_operator),
    (lambda x: -x, tb.Tensor, "__neg__", _replaced_sum),
    (_in_place, tb.Tensor, "__imul__", _replaced_operator),
    (lambda x: x.T, tb.Tensor, "T", property(_replaced_sum)),
    (lambda x: x * len(x), tb.Tensor, "__len__", lambda self: 7),
    (lambda x: abs(x), tb.Tensor, "__abs__", _replaced_sum),
    (lambda x: sum(x), tb.Tensor, "__add__", _replaced_operator),
    (lambda x: operator.add(x, 1), tb.Tensor, "__add__", _replaced_operator),
    (lambda x: list(x)[-1], tb.Tensor, "__iter__", _replaced_iteration),
    (lambda x: [*x][-1], tb.Tensor, "__iter__", _replaced_iteration),
    (lambda x: operator.itemgetter(0)(x), tb.Tensor, "__getitem__", _replaced_operator),
    (lambda x: operator.methodcaller("mean")(x), tb.Tensor, "mean", _replaced_sum),
    (lambda x: operator.attrgetter("T.T")(x), tb.Tensor, "T", property(_replaced_sum)),
    (lambda x: x * operator.length_hint(x), tb.Tensor, "__len__", lambda self: 7),
    (lambda x: tb.exp(x), tb, "exp", _replaced_sum),
    (lambda x: x * (2.0 if tb.float32 is tb.float64 else 3.0), tb, "float32", tb.float64),
    (lambda x: _linear(x), nn.Linear, "forward", lambda self, x: x * 5.0),
    (lambda x: _linear(x), nn.Linear, "__call__", lambda self, x: x * 5.0),
    (lambda x: _linear(x), nn.Module, "__call__", lambda self, x: x * 5.0),
    (lambda x: x * _Options.__dict__["scale"], _Options, "scale", 5.0),
]
_ABSENT = object()


@fault("guards.replaced", trials=12)
def replaced(draw: random.Random) -> None:
    """A function, constant or method that is replaced after a capture is noticed, and so is its return."""
    function, owner, name, other = draw.choice(_LOOKUPS)
    compiled = tb.compile(function)
    x = tb.asarray([[draw.uniform(1, 2), draw.uniform(1, 2)]] * 2)
    for _ in range(draw.randint(2, 3)):  # the first may show that attributes are asked for by name
        _agree(compiled, function, x, name)
    assert compiled.replays, compiled.reasons
    before = vars(owner).get(name, _ABSENT)
    for _ in range(draw.randint(1, 2)):
        setattr(owner, name, other)
        try:
            for _ in range(draw.randint(1, 3)):  # the second may find what was captured before
                _agree(compiled, function, x, name)
        finally:
            delattr(owner, name) if before is _ABSENT else setattr(owner, name, before)
        for _ in range(draw.randint(1, 3)):
            _agree(compiled, function, x, name)


def _agree(compiled: Callable[..., Any], function: Callable[..., Any], x: tb.Tensor, what: str = "") -> None:
    assert_alike(compiled(x), function(x), 8, message=what)


@fault("guards.read_only_views", trials=3)
def read_only_views(draw: random.Random) -> None:
    """Values behind a read-only view change, and a number there varies at each call."""

    def function(x: tb.Tensor) -> tb.Tensor:
        return x * _view["scale"] + _Options.__dict__["scale"] + len(_view["name"])

    compiled, x = tb.compile(function), tb.asarray([draw.random()])
    for _ in range(draw.randint(2, 6)):
        match draw.randrange(4):
            case 0:
                _settings["scale"] = draw.random()
            case 1:
                _Options.scale = draw.random()
            case 2:
                _settings["name"] = "x" * draw.randrange(5)
        _agree(compiled, function, x)


@fault("guards.partial", trials=3)
def partial_set_anew(draw: random.Random) -> None:
    """A partial function gets another function, other arguments or keywords by ``__setstate__``."""

    def function(x: tb.Tensor) -> Any:
        return _partial(x)

    def other(scale: float, x: tb.Tensor, more: float = 0.0) -> tb.Tensor:
        return x + scale + more

    compiled, x = tb.compile(function), tb.asarray([draw.random()])
    inner, *_ = state = _partial.__reduce__()[2]
    try:
        for _ in range(4):
            _agree(compiled, function, x)
            chosen = draw.choice([inner, other])
            keywords = {"more": draw.random()} if chosen is other and draw.random() < 0.5 else {}
            _partial.__setstate__((chosen, (draw.random(),), keywords, {}))
    finally:
        _partial.__setstate__(state)


@fault("guards.interpreter", trials=2, full=True)
def interpreter(draw: random.Random) -> None:
    """Code that asks who calls it, or whether garbage is collected, is left to Python, which answers."""

    def asks_collector(x: tb.Tensor) -> tb.Tensor:
        return x * 2.0 if gc.isenabled() else x * 3.0

    def asks_frame(x: tb.Tensor) -> tb.Tensor:
        frame: Any = inspect.currentframe()
        while frame is not None and frame.f_code.co_name not in ("ones", "twos"):
            frame = frame.f_back
        return x * (2.0 if frame is not None and frame.f_code.co_name == "twos" else 1.0)

    x = tb.asarray([1.0])
    compiled, was = tb.compile(asks_collector), gc.isenabled()
    try:
        for _ in range(6):
            (gc.enable if draw.random() < 0.5 else gc.disable)()
            state = gc.isenabled(), gc.get_threshold()
            assert compiled(x).tolist() == [2.0 if gc.isenabled() else 3.0]
            assert state == (gc.isenabled(), gc.get_threshold())
    finally:
        (gc.enable if was else gc.disable)()
    compiled = tb.compile(asks_frame)

    def ones() -> Any:
        return compiled(x).tolist()

    def twos() -> Any:
        return compiled(x).tolist()

    for _ in range(6):
        asks, answer = draw.choice([(ones, [1.0]), (twos, [2.0])])
        assert asks() == answer


_OPENS = """
import sys
import tensorbus as tb

here, there = sys.argv[1:]

def to_other(x):
    return (tb.exp(x) * 2).to(there)

compiled = tb.compile(to_other)
compiled(tb.ones(2, device=here))
assert not compiled.reasons, compiled.reasons
[entry] = compiled.replays
assert len(entry.guards) < 30, [guard.text for guard in entry.guards]
assert sum("in tensorbus" in guard.text or "module tensorbus" in guard.text for guard in entry.guards) == 1
"""


@fault("guards.opens_device", trials=1, full=True)
def opens_device(draw: random.Random) -> None:
    """A capture that imports, or opens a device's plugin, does not depend on what that runs."""
    done = child(_OPENS, *draw.choice([("cpu", "cpu"), ("cpu", "refdev"), ("refdev", "cpu")]))
    assert done.returncode == 0, done.stderr
