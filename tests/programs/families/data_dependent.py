"""Branches on values: Python asks tensors for what they hold."""

from __future__ import annotations

import tensorbus as tb

from program import Family

program = Family(__name__)


@program(data_dependent=True)
def branch_on_a_sum():
    def fn(x):
        y = x * 2
        if y.sum() > 0:
            return y + 1
        return y - 1

    return fn, [(tb.ones(3),), (-tb.ones(3),), (tb.arange(4.0),), (tb.ones(3) * 5,)]


@program(data_dependent=True)
def halve_until_small():
    def fn(x):
        steps = 0
        while tb.max(tb.abs(x)) > 1.25:
            x = x / 2
            steps += 1
        return x, steps

    return fn, [(tb.asarray([9.0, -3.0]),), (tb.asarray([0.5]),), (tb.asarray([100.0, 1.0]),)]


@program(data_dependent=True)
def item_scales():
    def fn(x):
        largest = x.max().item()
        return x / largest, largest

    return fn, [(tb.asarray([1.0, 2.0, 4.0]),), (tb.asarray([1.0, 8.0]),), (tb.asarray([1.0, 2.0, 4.0]),)]


@program(data_dependent=True)
def list_of_values():
    def fn(x):
        counts = {}
        for k in (x % 3).tolist():
            counts[k] = counts.get(k, 0) + 1
        return counts, x.sum()

    return fn, [(tb.arange(7),), (tb.arange(4),), (tb.arange(7) * 2,)]


@program(data_dependent=True)
def length_from_a_value():
    def fn(x, n):
        return tb.arange(int(n)) + x[: int(n)].sum()

    x = tb.arange(6)
    return fn, [(x, tb.asarray(3)), (x, tb.asarray(5)), (x + 1, tb.asarray(3))]


@program(data_dependent=True, raises=("AssertionError",))
def asserted_positive():
    def fn(x):
        assert (x > 0).all(), "only positive numbers have a logarithm"
        return tb.log(x)

    return fn, [(tb.ones(3),), (tb.asarray([1.0, -1.0]),), (tb.asarray([4.0, 2.0]),)]


@program(data_dependent=True)
def mask_selects():
    def fn(x):
        retained = x[x > 1]
        return retained * 10, retained.shape[0]

    return fn, [(tb.arange(5.0),), (tb.arange(3.0),), (tb.zeros(3),)]


@program(data_dependent=True)
def places_of_nonzeros():
    def fn(x):
        (rows, columns) = tb.nonzero(x)
        return rows, columns, x[rows, columns]

    return fn, [(tb.eye(3),), (tb.triu(tb.ones((3, 3)), k=1),), (tb.eye(3) * 2,)]


@program(data_dependent=True)
def sign_by_python():
    def fn(x):
        return [1 if v > 0 else -1 if v < 0 else 0 for v in x]

    return fn, [(tb.asarray([1.0, -2.0, 0.0]),), (tb.asarray([-1.0, 5.0, 3.0]),), (tb.asarray([0.0]),)]


@program(data_dependent=True)
def host_array_and_back():
    def fn(x):
        host = (x * 2).numpy()
        return tb.asarray(host[::-1].copy()) + x, float(host.sum())

    return fn, [(tb.arange(4.0),), (tb.arange(3.0),), (tb.ones(4),)]


@program(data_dependent=True)
def two_branches_and_a_loop():
    def fn(x):
        if bool(x[0] > 0):
            x = x * 3
        for k in range(int(x.shape[0])):
            if float(x[k]) > 4:
                x = x - k
        if x.sum() < 0:
            return -x
        return x

    return fn, [(tb.asarray([1.0, 2.0, 3.0]),), (tb.asarray([-1.0, 2.0, 3.0]),), (tb.asarray([-9.0, 5.0]),)]


@program(data_dependent=True)
def a_tensor_as_an_index():
    def fn(x, names):
        return names[tb.argmax(x)], x[int(tb.argmin(x))]

    names = ["red", "green", "blue"]
    return fn, [(tb.asarray([1.0, 3.0, 2.0]), names), (tb.asarray([5.0, 3.0, 2.0]), names)]


@program(data_dependent=True)
def gradients_through_a_branch():
    w = tb.asarray([1.0, -1.0]).requires_grad_()

    def fn(x):
        y = (w * x).sum()
        loss = y * y if y > 0 else -3 * y
        loss.backward()
        return loss.detach()

    return fn, [(tb.asarray([2.0, 1.0]),), (tb.asarray([1.0, 2.0]),), (tb.asarray([3.0, 1.0]),)], w


@program(data_dependent=True)
def unknown_number_of_groups():
    def fn(x):
        values, counts = tb.unique_counts(x)
        return values, counts, len(values)

    return fn, [(tb.asarray([3, 1, 3]),), (tb.asarray([1, 1, 1]),), (tb.arange(4),)]


@program(data_dependent=True)
def as_many_bins_as_needed():
    def fn(x, weights=None):
        counts = tb.bincount(x) if weights is None else tb.bincount(x, weights)
        return counts, counts / x.shape[0]

    x = tb.asarray([0, 3, 1, 3])
    return fn, [(x,), (x + 2,), (x, tb.ones(4) * 0.5)]
