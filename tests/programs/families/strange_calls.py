"""Calls, classes and names that few programs use so: replays must notice it or leave it to Python."""

from __future__ import annotations

import abc
import array
import copy
import functools
import inspect
import json
import math
import re
import types
import typing

import numpy as np
import tensorbus as tb

from program import Family, call_of

program = Family(__name__)
nn = tb.nn


def xs(n=4, shape=(3,)):
    size = math.prod(shape)
    return [tb.reshape(tb.arange(float(size)) + k, shape) for k in range(n)]


@program(raises=("RuntimeError",))
def state_after_an_error_inside():
    m = nn.Linear(3, 3)
    seen = []

    def fn(x, bad):
        with tb.no_grad():
            m.weight += 1
        seen.append(bad)
        if bad:
            raise RuntimeError("stop here")
        with tb.no_grad():
            m.bias += 1
        return m(x)

    return fn, [(x, b) for x, b in zip(xs(6), (False, False, True, False, True, False), strict=True)], m, seen


@program
def coroutine_awaited_by_hand():
    async def inner(x):
        return x * 2

    async def outer(x):
        y = await inner(x)
        return y + await inner(y)

    def fn(x):
        c = outer(x)
        try:
            c.send(None)
        except StopIteration as e:
            return e.value

    return fn, [(x,) for x in xs(4)]


@program
def generator_throw_close_return():
    def g(x):
        try:
            y = yield x * 2
            yield y + 1
        except ValueError:
            yield x * 0
        finally:
            done.append(1)
        return 5

    done = []

    def fn(x, how):
        it = g(x)
        a = next(it)
        if how == "throw":
            b = it.throw(ValueError())
        elif how == "send":
            b = it.send(a)
        else:
            it.close()
            b = a
        return a, b, len(done)

    return fn, [(x, h) for x, h in zip(xs(6), ("throw", "send", "close") * 2, strict=True)]


@program
def lru_cached_tensor_helper():
    calls_made = []

    @functools.lru_cache(maxsize=2)
    def mask(n):
        calls_made.append(n)
        return tb.tril(tb.ones((n, n)))

    def fn(x):
        return x @ mask(x.shape[-1])

    return fn, [(tb.ones((2, n)),) for n in (3, 3, 4, 5, 3, 3)], calls_made


@program
def singledispatchmethod_and_partialmethod():
    class Op:
        def __init__(self):
            self.k = 2

        @functools.singledispatchmethod
        def do(self, v, x):
            return x

        @do.register
        def _(self, v: int, x):
            return x * v * self.k

        @do.register
        def _(self, v: str, x):
            return x + len(v)

        triple = functools.partialmethod(do, 3)

    op = Op()

    def fn(v, x):
        return op.do(v, x), op.triple(x)

    return fn, [(v, xs(1)[0]) for v in (1, "ab", None, 2, "ab")]


@program
def copy_pickle_json_inside():
    m = nn.Linear(3, 3)

    def fn(x, cfg):
        c = json.loads(json.dumps(cfg))
        n = copy.deepcopy(m)
        with tb.no_grad():
            n.weight *= c["scale"]
        return n(x), re.match(r"(\w+)-(\d)", c["name"]).group(2)

    return fn, [(xs(1)[0], {"scale": s, "name": f"a-{s}"}) for s in (1, 2, 1, 3)], m


@program
def bound_methods_swapped_on_instance():
    class A:
        def f(self, x):
            return x + 1

    a = A()

    def fn(x):
        return a.f(x)

    def calls():
        x = xs(1)[0]
        yield (x,)
        yield (x,)
        a.f = types.MethodType(lambda self, x: x + 10, a)
        yield (x,)
        yield (x,)
        del a.f
        yield (x,)
        A.f = lambda self, x: x + 100
        yield (x,)

    return fn, calls()


@program
def class_of_instance_is_changed():
    class A:
        k = 1

        def f(self, x):
            return x * self.k

    class B(A):
        k = 5

    a = A()

    def fn(x):
        return a.f(x)

    def calls():
        x = xs(1)[0]
        yield (x,)
        yield (x,)
        a.__class__ = B
        yield (x,)
        yield (x,)
        A.k = 2
        a.__class__ = A
        yield (x,)

    return fn, calls()


@program
def eval_and_exec_inside():
    def fn(x, text):
        scope = {"x": x}
        exec("y = x * 3", scope)
        return eval(text, {"x": x, "tb": tb}) + scope["y"]

    return fn, [(xs(1)[0], t) for t in ("x+1", "tb.exp(x)", "x+1", "x*x")]


@program
def inspect_frames_and_signature():
    def helper(a, b=2):
        return a * b

    def fn(x):
        sig = inspect.signature(helper)
        return helper(x, b=len(sig.parameters)), inspect.currentframe().f_code.co_name

    return fn, [(x,) for x in xs(4)]


@program
def nested_functions_share_a_cell():
    def make():
        n = 0

        def up():
            nonlocal n
            n += 1

        def get():
            return n

        return up, get

    up, get = make()

    def fn(x):
        up()
        return x * get()

    return fn, [(x,) for x in xs(5)]


@program
def closure_made_in_call_returned_and_used():
    def fn(x, k):
        def scale(y, *, times=k):
            return y * times * x.sum()

        return scale

    def use():
        for k in (1, 2, 1):
            f = yield (tb.ones((3,)), k)
            assert f is None or f(tb.ones((3,))).shape == (3,)

    return fn, use()


@program
def args_kwargs_forwarded_through_layers():
    def deco(f):
        @functools.wraps(f)
        def inner(*a, **k):
            k.setdefault("bias", 1.0)
            return f(*a, **{kk: vv for kk, vv in k.items() if kk != "skip"})

        return inner

    @deco
    @deco
    def fn(x, /, y, *rest, bias, **other):
        return x * y + bias + sum(rest), sorted(other), len(rest)

    a = xs(3)
    return fn, [
        call_of(a[0], 2),
        call_of(a[0], y=3),
        call_of(a[0], a[1], a[2], 1, bias=0.0),
        call_of(a[0], 2, skip=1, z=3),
        call_of(a[0], 2),
    ]


@program
def protocol_abstract_generic_classes():
    T = typing.TypeVar("T")

    class Layer(abc.ABC, typing.Generic[T]):
        @abc.abstractmethod
        def run(self, x): ...

    @typing.runtime_checkable
    class Runs(typing.Protocol):
        def run(self, x): ...

    class A(Layer[int]):
        def run(self, x):
            return x * 2

    def fn(layer, x):
        return layer.run(x) if isinstance(layer, Runs) else x

    a = A()
    return fn, [(a, xs(1)[0]), (a, xs(2)[1]), (3, xs(1)[0]), (A(), xs(1)[0])]


@program
def shuffled_indices_by_numpy():
    rng = np.random.default_rng(3)

    def fn(x):
        order = rng.permutation(3)
        return x[tb.asarray(order)]

    return fn, [(x,) for x in xs(4)]


@program
def numpy_global_is_changed_in_place():
    a = np.ones(3, np.float32)

    def fn(x):
        return x * tb.asarray(a)

    def calls():
        x = xs(1)[0]
        yield (x,)
        yield (x,)
        yield (x,)
        a[1] = 9
        yield (x,)
        yield (x,)

    return fn, calls()


@program
def array_array_and_memory():
    buf = array.array("d", [1.0, 2.0, 3.0])

    def fn(x):
        return x * buf[0] + len(buf)

    def calls():
        x = xs(1)[0]
        yield (x,)
        yield (x,)
        buf[0] = 4.0
        yield (x,)
        buf.append(1.0)
        yield (x,)

    return fn, calls()


@program
def patched_library_function():
    def fn(x):
        return tb.relu(x) + math.floor(2.7)

    def calls():
        x = xs(1)[0] - 1
        yield (x,)
        yield (x,)
        old = tb.relu
        tb.relu = lambda v: v * 0
        try:
            yield (x,)
            yield (x,)
        finally:
            tb.relu = old
        yield (x,)

    return fn, calls()


@program
def builtins_patched_in_module():
    def fn(x, v):
        return x * len(v)

    def calls():
        x = xs(1)[0]
        yield (x, [1, 2])
        yield (x, [1, 2])
        globals()["len"] = lambda v: 100
        try:
            yield (x, [1, 2])
        finally:
            del globals()["len"]
        yield (x, [1, 2])

    return fn, calls()
