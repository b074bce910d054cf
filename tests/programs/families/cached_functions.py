"""Functions with caches: what they keep is theirs, and may be changed by whoever was given it."""

from __future__ import annotations

import functools

import tensorbus as tb

from program import Family

program = Family(__name__)


def xs(n, length=3):
    return [(tb.arange(float(length)) + k,) for k in range(n)]


@program
def kept_tensor_changes_between_calls():
    @functools.lru_cache
    def table(n):
        return tb.arange(float(n))

    def fn(x):
        return x + table(3)

    def calls():
        retained = table(3)
        for k, args in enumerate(xs(6)):
            if k == 3:
                retained += 10
            elif k == 5:
                retained[0] = -1.0
            yield args

    return fn, calls()


@program
def kept_tensor_is_returned_itself():
    @functools.cache
    def table(n):
        return tb.arange(float(n)) * 2

    seen = []

    def fn(x):
        return x + 1, table(3)

    def calls():
        for args in xs(5):
            _, retained = yield args
            seen.append(retained is table(3))
            retained += 1

    return fn, calls(), seen


@program
def kept_list_grows_between_calls():
    @functools.cache
    def rates(n):
        return [1.0] * n

    def fn(x):
        return x * sum(rates(3))

    def calls():
        for k, args in enumerate(xs(5)):
            if k == 3:
                rates(3).append(5.0)
            yield args

    return fn, calls()


@program
def few_places_and_the_least_used_is_forgotten():
    results = []

    @functools.lru_cache(maxsize=2)
    def positions(n):
        results.append(n)
        return tb.arange(n) / n

    def fn(x):
        return x + positions(x.shape[-1])

    return fn, [(tb.ones((2, n)),) for n in (3, 4, 5, 3, 4, 3)], results


@program
def shapes_are_looked_up_as_they_come():
    @functools.cache
    def mask(n):
        return tb.tril(tb.ones((n, n)))

    def fn(x):
        return mask(x.shape[0]) @ x

    return fn, [(tb.arange(float(n)),) for n in (2, 3, 4, 2, 3, 4, 5, 2)]


@program
def questions_to_the_cache():
    @functools.lru_cache
    def double(n):
        return n * 2

    def fn(x):
        return x * double(3) * double.cache_info().hits

    return fn, xs(5)


@program
def cache_cleared_at_each_call():
    computed = []

    @functools.lru_cache
    def double(n):
        computed.append(n)
        return n * 2

    def fn(x):
        double.cache_clear()
        return x * double(3)

    return fn, xs(5), computed


@program
def cached_method_by_instance():
    class Scaled:
        def __init__(self, scale):
            self.scale = scale

        @functools.cache  # noqa: B019
        def table(self, n):
            return tb.arange(float(n)) * self.scale

    a, b = Scaled(1.0), Scaled(2.0)

    def fn(x, which):
        return x * which.table(3)

    def calls():
        for which in (a, b, a, b):
            yield tb.ones(3), which
        a.scale = 9.0
        yield tb.ones(3), a
        Scaled.table.cache_clear()
        yield tb.ones(3), a
        yield tb.ones(3), a

    return fn, calls()
