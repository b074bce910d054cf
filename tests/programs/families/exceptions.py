"""Errors and what surrounds them: try, except, finally, raise; errors of ops; context managers."""

from __future__ import annotations

import warnings

import tensorbus as tb

from program import Family

program = Family(__name__)


class NotSquareError(ValueError):
    """A user's own error."""

    def __init__(self, shape):
        super().__init__(f"{shape} is no square")
        self.shape = shape


@program
def wrong_shapes_are_caught():
    def fn(x, y):
        try:
            return x @ y
        except tb.ShapeError:
            return x @ y.T

    a, b = tb.ones((2, 3)), tb.reshape(tb.arange(6.0), (2, 3))
    return fn, [(a, b), (a, b.T), (a, b * 2)]


@program(raises=("ShapeError",))
def wrong_shapes_are_not_caught():
    def fn(x, y):
        return tb.exp(x) + y

    return fn, [(tb.ones(3), tb.zeros(3)), (tb.ones(3), tb.ones(2)), (tb.ones(3), tb.ones((2, 1)))]


@program(raises=("NotSquareError", "TypeError"))
def own_errors():
    def fn(x):
        if not isinstance(x, tb.Tensor):
            raise TypeError(f"a tensor is needed, got {type(x).__name__}")
        if x.shape[0] != x.shape[1]:
            raise NotSquareError(x.shape)
        return tb.trace(x)

    return fn, [(tb.eye(2),), (tb.ones((2, 3)),), ([[1.0]],), (tb.eye(3) * 2,)]


@program
def all_four_clauses():
    log = []

    def fn(x, key, table):
        try:
            y = x * table[key]
        except KeyError as error:
            log.append(f"no {error.args[0]}")
            y = x
        except (TypeError, tb.DtypeError):
            log.append("bad")
            return None
        else:
            log.append("good")
            y = y + 1
        finally:
            log.append("end")
        return y

    x = tb.ones(2)
    table = {"a": 2.0, "b": None}
    return fn, [(x, "a", table), (x, "c", table), (x, "b", table), (x, "a", table)], log


@program(raises=("RuntimeError",))
def errors_are_chained():
    def load(parts, name):
        try:
            return parts[name]
        except KeyError as error:
            raise RuntimeError(f"cannot load {name!r}; there are {sorted(parts)}") from error

    def fn(parts, name):
        return load(parts, name) * 2

    parts = {"w": tb.ones(2)}
    return fn, [(parts, "w"), (parts, "b"), ({"b": tb.zeros(1)}, "b")]


@program(raises=("ValueError",))
def state_changes_before_an_error():
    steps = []
    total = tb.zeros(2)

    def fn(x, limit):
        nonlocal total
        total = total + x
        steps.append(len(steps))
        if len(steps) > limit:
            raise ValueError(f"more than {limit} steps")
        return total

    x = tb.ones(2)
    return fn, [(x, 2), (x, 2), (x, 2), (x, 5), (x * 2, 5)], steps


@program
def warnings_reach_the_caller():
    def fn(x, k):
        if k > 1:
            warnings.warn(f"{k} is too much", UserWarning, stacklevel=2)
        return x / k

    return fn, [(tb.ones(2), 1), (tb.ones(2), 2), (tb.ones(2), 2), (tb.ones(3), 1)]


@program
def retried_until_it_fits():
    def fn(x, sizes):
        tried = []
        for size in sizes:
            try:
                return tb.reshape(x, (size, -1)), tried
            except tb.ShapeError:
                tried.append(size)
                continue
        raise LookupError("no size fits")

    return fn, [(tb.arange(6.0), (4, 5, 3)), (tb.arange(6.0), (2,)), (tb.arange(8.0), (3, 4))]


@program(raises=("LookupError",))
def error_after_a_loop():
    def fn(rows, wanted):
        for k, row in enumerate(rows):
            if row.shape == wanted:
                return row * k
        raise LookupError(f"no row of shape {wanted} among {len(rows)}")

    a, b = tb.ones(2), tb.ones((1, 2))
    return fn, [([a, b], (1, 2)), ([a, a], (1, 2)), ([b, b], (1, 2))]
