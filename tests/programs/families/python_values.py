"""Python around tensors: built-in functions, numbers, texts and structures of no tensor at all."""

from __future__ import annotations

import math
import operator

import tensorbus as tb

from program import Family

program = Family(__name__)


@program
def builtins_over_shapes():
    def fn(*tensors):
        widest = max(tensors, key=lambda x: x.shape[-1])
        if any(x.ndim > 1 for x in tensors) and not all(x.size > 2 for x in tensors):
            widest = widest * 2
        sizes = sorted({x.size for x in tensors}, reverse=True)
        return widest / sum(sizes), min(sizes), divmod(sizes[0], 2)

    a, b, c = tb.ones(2), tb.ones((1, 3)), tb.arange(4.0)
    return fn, [(a, b), (a, c), (c, b, a), (a, b)]


@program
def math_of_lengths():
    def fn(x):
        n = x.shape[0]
        steps = math.ceil(math.log2(n)) if n > 1 else 0
        padded = tb.concat([x, tb.zeros(2**steps - n)])
        for k in range(steps):
            padded = padded[: padded.shape[0] // 2] + padded[padded.shape[0] // 2 :]
            assert padded.shape[0] == 2 ** (steps - k - 1)
        return padded / math.sqrt(n), math.isclose(n, 3.0)

    return fn, [(tb.arange(3.0),), (tb.arange(4.0),), (tb.ones(1),), (tb.arange(3.0) + 1,)]


@program
def texts_say_what_to_do():
    def fn(x, recipe):
        for part in recipe.lower().replace(" ", "").split(";"):
            name, _, argument = part.partition("=")
            if not name:
                continue
            if argument.isdigit():
                x = getattr(operator, name)(x, int(argument))
            else:
                x = getattr(tb, name)(x, **({"axis": int(argument)} if argument else {}))
        return x, recipe.title(), f"{len(recipe):03d}"

    x = tb.reshape(tb.arange(4.0), (2, 2))
    recipes = ("mul=2; exp", "add=1; sum=-1", "relu;", "MUL=2; exp", "mul=3; exp")
    return fn, [(x, recipe) for recipe in recipes]


@program
def merged_dicts_and_updated_settings():
    base = {"scale": 2.0, "shift": 1.0, "clip": None}

    def fn(x, settings):
        used = base | settings
        used["scale"] += len(settings)
        y = x * used["scale"] + used.pop("shift")
        low = used.get("clip")
        return (tb.clip(y, low, None) if low is not None else y), used, {**used, "done": True} == used

    x = tb.arange(3.0)
    return fn, [(x, {}), (x, {"scale": 3.0}), (x, {"clip": 4.0}), (x, {})], base


@program
def masks_of_flags():
    double, negate, center = 1, 2, 4

    def fn(x, flags):
        if flags & double:
            x = x * 2
        if flags & negate:
            x = -x
        if flags & center and not flags & double:
            x = x - x.mean()
        return x, bin(flags), flags ^ center

    return fn, [(tb.arange(3.0), flags) for flags in (0, 1, 3, 6, 7, 1)]


@program
def slices_are_values():
    windows = {"head": slice(None, 2), "tail": slice(-2, None), "all": ..., "odd": slice(1, None, 2)}

    def fn(x, names, index=()):
        parts = [x[windows[name]] for name in names]
        return parts, x[tuple(index)] if index else None, slice(5).indices(x.shape[0])

    x = tb.reshape(tb.arange(8.0), (4, 2))
    return fn, [
        (x, ("head", "tail")),
        (x, ("odd", "all")),
        (x, ("head",), [0, slice(1, 2)]),
        (x * 2, ("odd",)),
    ]


@program
def reversed_and_indexed_backwards():
    def fn(parts, weights):
        out = []
        for k, (x, w) in enumerate(zip(reversed(parts), weights[::-1], strict=True)):
            out.append(x * w + (out[-1].sum() if out else 0) + parts[~k].shape[0])
        del out[0]
        return out, [*weights, *range(len(out))]

    a, b, c = tb.ones(1), tb.arange(2.0), tb.ones(3)
    return fn, [([a, b, c], (1, 2, 3)), ([c, b, a], [3, 2, 1]), ([a, b], (0.5, 2.0))]


@program
def matrix_of_python_numbers():
    def rotation(degrees):
        c, s = round(math.cos(math.radians(degrees)), 3), round(math.sin(math.radians(degrees)), 3)
        return [[c, -s], [s, c]]

    def fn(points, *degrees):
        for d in degrees:
            points = points @ tb.asarray(rotation(d)).T
        return points, rotation(sum(degrees))

    x = tb.asarray([[1.0, 0.0], [0.0, 2.0]])
    return fn, [(x, 90), (x, 30, 60), (x * 2, 90), (x,)]


@program(raises=("AssertionError", "ZeroDivisionError"))
def assertions_about_arguments():
    def fn(x, n):
        assert isinstance(x, tb.Tensor), f"a tensor, not {type(x).__name__}"
        assert x.ndim == 1, "one axis"
        assert n >= 0, "a positive number"
        return x / (10 // n), x[: len(x) // n]

    return fn, [(tb.ones(4), 2), ([1.0], 2), (tb.ones((2, 2)), 1), (tb.ones(4), 0), (tb.arange(4.0), 1)]


@program
def big_integers_and_exact_fractions():
    def fn(x, n):
        factorial = math.factorial(n)
        pairs = math.comb(n, 2) if n > 1 else 1
        return x / factorial, factorial % 1_000_007, x * pairs, n.bit_length(), 2**n // 3

    return fn, [(tb.ones(2), 5), (tb.ones(2), 20), (tb.arange(2.0), 5), (tb.ones(2), 1)]
