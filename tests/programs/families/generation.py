"""Generators and comprehensions."""

from __future__ import annotations

import itertools
import operator

import tensorbus as tb

from program import Family

program = Family(__name__)


@program
def generator_of_powers():
    def powers(x, n):
        y = tb.ones_like(x)
        for _ in range(n):
            yield y
            y = y * x

    def fn(x, n):
        return sum(powers(x, n)), list(powers(x, 2))

    return fn, [(tb.arange(3.0), 3), (tb.arange(3.0), 4), (tb.ones(2), 3)]


@program
def generator_is_sent_values():
    def averager():
        total, count = 0.0, 0
        while True:
            x = yield (total / count if count else None)
            if x is None:
                return total
            total, count = total + x, count + 1

    def fn(parts):
        running = averager()
        next(running)
        means = [running.send(x) for x in parts]
        try:
            running.send(None)
        except StopIteration as stop:
            return means, stop.value
        return None

    a, b = tb.ones(2), tb.arange(2.0)
    return fn, [([a, b],), ([b, b, a],), ([b, a],)]


@program
def generators_delegate():
    def walk(tree):
        if isinstance(tree, list):
            for child in tree:
                yield from walk(child)
        else:
            yield tree

    def fn(tree):
        return tb.concat(list(walk(tree))), sum(1 for _ in walk(tree))

    a, b, c = tb.ones(1), tb.arange(2.0), tb.zeros(1)
    return fn, [([a, [b, [c]]],), ([a, [b, [b]]],), ([[a], b, [[c], c]],)]


@program
def a_generator_is_the_program():
    def fn(x):
        yield x
        x = x * 2
        yield x.sum()
        yield x.shape

    return fn, [(tb.ones(2),), (tb.arange(3.0),), (tb.ones(2) * 4,)]


@program
def comprehensions():
    def fn(x, n):
        rows = [x * k for k in range(n) if k != 1]
        table = {(i, j): rows[i] + j for i in range(len(rows)) for j in range(2)}
        return rows, table, {r.shape for r in rows}, tuple(r.ndim for r in rows)

    return fn, [(tb.ones(2), 3), (tb.ones(2), 4), (tb.arange(3.0), 3)]


@program
def itertools_chain_product_accumulate():
    def fn(parts, n):
        grid = [a * b for a, b in itertools.product(parts, range(1, n))]
        sums = list(itertools.accumulate(grid))
        pairs = [x - y for x, y in itertools.pairwise(itertools.chain(parts, sums[:1]))]
        return sums, pairs, list(itertools.islice(itertools.cycle(parts), 3))

    a, b = tb.ones(2), tb.arange(2.0)
    return fn, [([a, b], 3), ([b, a], 3), ([a, b], 2)]


@program
def grouped_and_sorted():
    def fn(parts):
        ordered = sorted(parts, key=lambda p: (p[0], -p[1].shape[0]))
        groups = itertools.groupby(ordered, key=operator.itemgetter(0))
        return {name: tb.concat([x for _, x in group]) for name, group in groups}

    a, b, c = tb.ones(2), tb.zeros(1), tb.arange(3.0)
    return fn, [([("u", a), ("v", b), ("u", c)],), ([("v", c), ("u", b)],), ([("u", c), ("v", a), ("u", b)],)]
