"""Arguments: defaults, stars, keywords, and settings made of them."""

from __future__ import annotations

from collections import ChainMap

import tensorbus as tb

from program import Family, call_of

program = Family(__name__)


@program
def unpacking_with_stars():
    def fn(first, *rest, sep=None, **named):
        head, *middle, tail = (first, *rest, *named.values())
        joined = tb.concat([head, *([sep] if sep is not None else []), tail])
        return joined, len(middle), sorted(named)

    a, b, c = tb.ones(1), tb.zeros(2), tb.arange(3.0)
    return fn, [(a, b), (a, b, c), call_of(a, b, sep=c), call_of(a, x=b, y=c), call_of(a, c, sep=b, z=a)]


@program
def defaults_and_keyword_only():
    def fn(x, /, y=None, scale=2.0, *, axis=0, keepdims=False):
        z = x if y is None else x * y
        return (z * scale).sum(axis=axis, keepdims=keepdims)

    x = tb.reshape(tb.arange(6.0), (2, 3))
    return fn, [(x,), call_of(x, axis=1), call_of(x, x, keepdims=True), call_of(x, scale=0.5), (x, x, 1.0)]


@program(raises=("TypeError",))
def missing_arguments():
    def fn(x, y, *, scale):
        return (x + y) * scale

    x = tb.ones(2)
    return fn, [call_of(x, x, scale=2), (x, x), call_of(x, x, scale=3), call_of(x, scale=3)]


@program
def layered_settings():
    def fn(x, **overrides):
        settings = ChainMap(overrides, {"scale": 2.0, "shift": 0.0})
        y = x * settings["scale"] + settings["shift"]
        return y, dict(sorted(settings.items()))

    x = tb.arange(3.0)
    return fn, [(x,), call_of(x, scale=3.0), call_of(x, shift=1.0), call_of(x, scale=3.0)]
