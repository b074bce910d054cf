"""Control flow on Python values: branches, loops, match, recursion, early returns."""

from __future__ import annotations

import tensorbus as tb

from program import Family, call_of

program = Family(__name__)


@program
def branch_on_a_flag():
    def fn(x, double):
        if double:
            return x * 2
        return x + 100

    x = tb.arange(3.0)
    return fn, [(x, True), (x, False), (x + 1, True), (x, 0), (x, "yes")]


@program(raises=("ValueError",))
def branch_on_a_string():
    def fn(x, kind="relu"):
        if kind == "relu":
            return tb.relu(x)
        if kind == "tanh":
            return tb.tanh(x)
        if kind is None:
            return x
        raise ValueError(f"unknown activation {kind!r}")

    x = tb.linspace(-1, 1, 5)
    return fn, [(x,), call_of(x, kind="tanh"), (x, None), (x, "gelo"), (x,)]


@program
def branch_on_a_shape():
    def fn(x):
        if x.ndim == 1:
            x = x[None, :]
        if x.shape[0] > x.shape[1]:
            x = x.T
        return x @ x.T

    return fn, [(tb.arange(3.0),), (tb.ones((2, 3)),), (tb.ones((3, 2)),), (tb.arange(4.0),)]


@program
def branch_on_a_dtype():
    def fn(x):
        if x.dtype.is_floating:
            return x / x.max()
        if x.dtype == tb.bool:
            return ~x
        return x // 2

    return fn, [(tb.arange(1.0, 4.0),), (tb.arange(5),), (tb.asarray([True, False]),), (tb.arange(5) * 3,)]


@program
def powers_in_a_for_loop():
    def fn(x, n):
        total, term = tb.ones_like(x), tb.ones_like(x)
        for k in range(1, n + 1):
            term = term * x / k
            total = total + term
        return total

    x = tb.asarray([0.0, 0.5, -0.5])
    return fn, [(x, 3), (x, 5), (x * 2, 3), (x, 0)]


@program
def while_with_a_counter():
    def fn(x, steps):
        k = 0
        while k < steps:
            x = x * 0.5 + 1
            k += 1
        return x, k

    x = tb.arange(4.0)
    return fn, [(x, 2), (x, 4), (x * 2, 2)]


@program
def break_and_continue():
    def fn(x, skip, stop):
        seen = []
        for k, row in enumerate(x):
            if k in skip:
                continue
            if k == stop:
                break
            seen.append(row * k)
        else:
            seen.append(tb.zeros_like(x[0]))
        return tb.stack(seen)

    x = tb.reshape(tb.arange(12.0), (4, 3))
    return fn, [(x, (0,), 3), (x, (), 2), (x, (1, 2), 9), (x + 1, (0,), 3)]


@program
def match_on_a_command():
    def fn(x, command):
        match command:
            case ("scale", float(by) | int(by)):
                return x * by
            case ("shift", by) if by != 0:
                return x + by
            case {"clip": (low, high)}:
                return tb.clip(x, low, high)
            case "flip":
                return tb.flip(x)
            case _:
                return x

    x = tb.arange(5.0)
    commands = (("scale", 2), ("shift", 1.5), ("shift", 0), {"clip": (1.0, 3.0)}, "flip", ("scale", 0.5))
    return fn, [(x, c) for c in commands]


@program
def early_returns_in_a_chain():
    def fn(x, depth):
        x = x + 1
        if depth == 0:
            return x
        x = x * 2
        if depth == 1:
            return x, "one"
        for k in range(3):
            x = x - k
            if k == depth - 2:
                return [x, k]
        return None

    x = tb.ones((2, 2))
    return fn, [(x, d) for d in (0, 1, 2, 3, 9, 0)]


@program
def conditional_expressions():
    def fn(x, y=None, *, negate=False, k=0):
        z = x if y is None else x + y
        z = -z if negate else z
        return z * (1 if k < 2 else k) + (k and 10) + (k or 5)

    x = tb.arange(3.0)
    return fn, [(x,), (x, x), call_of(x, negate=True), call_of(x, k=3), call_of(x, x, negate=True, k=1)]


@program
def factorial_by_recursion():
    def power(x, n):
        if n == 0:
            return tb.ones_like(x)
        half = power(x, n // 2)
        return half * half * x if n % 2 else half * half

    x = tb.asarray([1.0, -2.0, 0.5])
    return power, [(x, 5), (x, 6), (x + 1, 5), (x, 0)]


@program
def functions_inside_functions():
    def fn(x, times):
        def outer(y):
            def inner(z):
                return z * 2 + y

            return inner(y) - 1

        for _ in range(times):
            x = outer(x)
        return x

    return fn, [(tb.arange(3.0), 1), (tb.arange(3.0), 3), (tb.ones((2, 2)), 1)]


@program
def chained_comparisons_and_walrus():
    def fn(x, k):
        if 0 <= (rest := k % 4) < 2:
            return x * rest
        return x - rest

    x = tb.arange(4.0)
    return fn, [(x, k) for k in (0, 1, 2, 3, 5)]


@program
def nested_loops_make_a_matrix():
    def fn(x, n):
        rows = []
        for i in range(n):
            row = []
            for j in range(n):
                if i == j:
                    row.append(x * 0)
                elif i < j:
                    row.append(x * (i + j))
                else:
                    row.append(-rows[j][i])
            rows.append(row)
        return tb.stack([tb.stack(row) for row in rows])

    return fn, [(tb.asarray(1.5), 3), (tb.asarray(-1.0), 3), (tb.asarray(1.5), 2)]
