"""Indexing, assignment, in-place operators, and views."""

from __future__ import annotations

import tensorbus as tb

from program import Family

program = Family(__name__)


def grid(*shape):
    x = tb.arange(1.0)
    for n in shape:
        x = x[..., None] * n + tb.arange(float(n))
    return x[0]


@program
def slices():
    def fn(x):
        return x[1:], x[:, ::2], x[::-1], x[..., -1], x[-1], x[:0], x[0, 1:3], x[:, None, 1]

    return fn, [(grid(3, 4),), (grid(2, 3),), (grid(3, 4) * 2,)]


@program
def slices_from_python_numbers():
    def fn(x, start, stop, step=None):
        return x[start:stop:step], x[slice(start, None)], len(x[start:stop])

    x = tb.arange(6.0)
    return fn, [(x, 1, 4), (x, 0, 6, 2), (x, -3, None), (x, 5, 0, -2), (x * 2, 1, 4)]


@program
def ellipsis_and_new_axes():
    def fn(x, y):
        return x[..., None] * y[None, ...], x[..., 0], x[tb.newaxis].shape

    return fn, [(grid(2, 3), tb.arange(2.0)), (tb.arange(3.0), tb.arange(2.0)), (grid(2, 3) + 1, tb.ones(2))]


@program
def integer_arrays():
    def fn(x, rows, columns):
        return x[rows], x[:, columns], x[rows, columns], tb.take(x, rows, axis=0)

    x = grid(3, 4)
    a, b = tb.asarray([0, 2, -1]), tb.asarray([3, 0, 1])
    return fn, [(x, a, b), (x, b % 3, a), (x * 2, a, b)]


@program
def lists_as_indices():
    def fn(x, order):
        return x[order], x[[0, -1]], x[order, [[0], [1]]]

    return fn, [(grid(3, 2), [2, 0]), (grid(3, 2), [1]), (grid(4, 2), [2, 0])]


@program(raises=("IndexingError",))
def index_out_of_range():
    def fn(x, k):
        return x[k] * 2

    x = tb.arange(3.0)
    return fn, [(x, 1), (x, 3), (x, -3), (x, -4), (x, 1)]


@program
def assignment_to_slices():
    def fn(x):
        y = tb.zeros_like(x)
        y[1:] = x[:-1]
        y[0] = -1.0
        y[..., 0] += 10
        y[:, -1] = tb.arange(float(x.shape[0]))
        return y

    return fn, [(grid(3, 3),), (grid(2, 4),), (grid(3, 3) * 2,)]


@program
def assignment_at_places():
    def fn(x, places, values):
        y = x.clone()
        y[places] = values
        y[tb.asarray([0])] *= 2
        return y, x

    x = tb.arange(5.0)
    places = tb.asarray([1, 3])
    return fn, [(x, places, 0.0), (x, places, tb.asarray([7.0, 8.0])), (x + 1, places, 0.0)]


@program
def mask_is_filled():
    def fn(x, limit):
        x = x + 0
        x[x > limit] = limit
        x[tb.isnan(x)] = 0.0
        return x

    x = tb.asarray([1.0, 5.0, float("nan"), 2.0])
    return fn, [(x, 3.0), (x, 1.5), (x * 2, 3.0)]


@program(data_dependent=True)
def mask_takes_values():
    def fn(x):
        x = x.clone()
        x[x < 0] = tb.arange(float((x < 0).sum().item()))
        return x, x[x > 1]

    return fn, [
        (tb.asarray([-1.0, 2.0, -3.0]),),
        (tb.asarray([1.0, -2.0]),),
        (tb.asarray([-5.0, -1.0, 3.0]),),
    ]


@program
def rebinding_in_place():
    def fn(x):
        y = x
        y += 1
        z = x
        z = z * 2
        z -= y
        z /= 4
        z **= 2
        return x is y, z

    return fn, [(tb.ones(3),), (tb.arange(2.0),), (tb.ones(3),)]


@program
def parts_are_views():
    def fn(x):
        row, flat, same = x[0], tb.reshape(x, (-1,)), +x
        row += 100
        flat[0] = -1
        x[1] = 5
        return x, row, flat, same

    return fn, [(grid(2, 2),), (grid(3, 2),), (grid(2, 2) + 1,)]


@program
def iterating_and_unpacking():
    def fn(x):
        first, *rest = x
        a, b = x[:2]
        return first + b, [r * k for k, r in enumerate(rest)], len(x), sum(x), a

    return fn, [(tb.arange(3.0),), (grid(2, 2),), (tb.ones(4),)]


@program
def rows_filled_in_a_loop():
    def fn(x, n):
        out = tb.zeros((n, x.shape[0]))
        for k in range(n):
            out[k] = x**k
            if k:
                out[k, 0] = out[k - 1, 0] + 1
        return out

    return fn, [(tb.arange(3.0), 3), (tb.arange(3.0), 2), (tb.ones(2), 3)]


@program
def gathered_and_scattered():
    def fn(x, places):
        picked = tb.take_along_axis(x, places, axis=1)
        back = tb.scatter_add(tb.zeros_like(x), 1, places, picked)
        return picked, back, tb.index_select(x, 0, places[0])

    x = grid(2, 3)
    return fn, [
        (x, tb.asarray([[0, 0], [1, 1]])),
        (x, tb.asarray([[1, 0], [0, 1]])),
        (x, tb.asarray([[0, 1], [1, 1]])),
    ]


@program
def integers_in_place():
    counts = tb.zeros(4, dtype="int64")

    def fn(k, by):
        counts[k] += by
        counts[-1] = counts[k] * 2
        return counts + 0

    return fn, [(0, 1), (1, 2), (0, 1), (-1, 3)], counts
