"""Names, entries and attributes that come to stand for other tensors, and objects of callers that change."""

from __future__ import annotations

import collections
import dataclasses

import tensorbus as tb

from program import Family

program = Family(__name__)
COUNT = None


@program
def old_entry_is_returned():

    def fn(d, x):
        old = d["h"]
        d["h"] = old + x
        return (old, d["h"])

    def calls():
        d = {"h": tb.ones(2)}
        for k in range(4):
            yield (d, tb.ones(2) * k)

    return (fn, calls())


@program
def old_entry_of_closure_is_returned():
    d = {"h": tb.ones(2)}
    part = [tb.zeros(2), tb.ones(2)]

    def fn(x):
        old = d["h"]
        d["h"] = old + x
        a = part[0]
        part[0] = a + 1
        return (old, a, part[0] + d["h"])

    return (fn, [(tb.ones(2) * k,) for k in range(4)], d, part)


@program
def lists_swap_their_entries():

    def fn(a, b):
        a[0], b[0] = (b[0], a[0])
        a.append(b)
        b.append(a[0] * 2)
        return (a[0], b[0])

    def calls():
        for k in range(4):
            yield ([tb.ones(2) * k], [tb.zeros(2) + k])

    return (fn, calls())


@program
def nested_arguments_are_filled():

    def fn(t, x):
        t["l"][0].append(x)
        t["l"].append(t["l"][0])
        t["n"] += 1
        t["q"].append(x)
        t["s"].add(3)
        t["dd"]["z"].append(x * 2)
        t["c"]["a"] += 2
        del t["rm"]
        return t["n"]

    def calls():
        for k in range(4):
            yield (
                {
                    "l": [[1]],
                    "n": 5,
                    "q": collections.deque([1, 2], maxlen=2),
                    "s": {1},
                    "dd": collections.defaultdict(list),
                    "c": collections.Counter("a"),
                    "rm": None,
                },
                tb.ones(2) * k,
            )

    return (fn, calls())


@program
def objects_of_the_caller_change():

    @dataclasses.dataclass
    class S:
        x: object
        n: int = 0
        log: list = dataclasses.field(default_factory=list)

    class Sl:
        __slots__ = ("a", "b")

        def __init__(self, a):
            self.a = a

    def fn(s, q):
        s.n += 1
        s.log.append(s.n)
        s.x = s.x * 2
        s.extra = "e"
        q.b = q.a + 1
        del q.a
        return s.x + q.b

    def calls():
        for k in range(4):
            yield (S(tb.ones(2) * k), Sl(tb.zeros(2) + k))

    return (fn, calls())


@program
def same_object_changes_at_each_call():

    @dataclasses.dataclass
    class S:
        x: object
        n: int = 0

    def fn(s):
        s.n += 1
        s.x = s.x * s.n
        return s.x

    def calls():
        s = S(tb.ones(2))
        for _k in range(12):
            yield (s,)

    return (fn, calls())


@program
def state_as_a_dict_of_tensors():

    def fn(st, x):
        st["m"] = 0.9 * st["m"] + x
        st["t"] = st["t"] + 1
        return st["m"] / st["t"]

    def calls():
        st = {"m": tb.zeros(2), "t": tb.zeros(())}
        for k in range(4):
            yield (st, tb.ones(2) * k)
        yield ({"m": tb.ones(2), "t": tb.ones(())}, tb.ones(2))

    return (fn, calls())


@program
def global_and_cell_are_rebound():
    h = tb.zeros(2)

    def fn(x):
        nonlocal h
        global COUNT
        old, h = (h, tb.tanh(h + x))
        COUNT = COUNT + h
        return (old, COUNT)

    def calls():
        nonlocal h
        global COUNT
        COUNT = tb.zeros(2)
        for k in range(4):
            yield (tb.ones(2) * k,)
        h = tb.ones(2)
        yield (tb.ones(2),)
        h = None
        h = tb.ones((1, 2))
        COUNT = tb.zeros((1, 2))
        yield (tb.ones(2, dtype="int64"),)

    return (fn, calls())


@program
def state_with_gradient_through_time():
    w = tb.nn.Parameter(tb.ones(2))
    h = tb.zeros(2)

    def fn(x, cut):
        nonlocal h
        h = tb.tanh(h * w + x)
        if cut:
            h = h.detach()
        return (h * w).sum()

    def calls():
        for k in range(3):
            out = yield (tb.ones(2) * k, True)
            w.grad = None
            out.backward()

    return (fn, calls(), w)


@program
def attrgetter_made_outside():
    import operator

    class C:
        pass

    c = C()
    c.alpha = 2.0
    c.sub = C()
    c.sub.beta = 3.0
    get, deep, call = (
        operator.attrgetter("alpha"),
        operator.attrgetter("sub.beta"),
        operator.methodcaller("sum"),
    )

    def fn(x):
        return x * get(c) + deep(c) + call(x)

    def calls():
        yield (tb.ones(2),)
        yield (tb.ones(2),)
        c.alpha = 5.0
        yield (tb.ones(2),)
        c.sub.beta = 7.0
        yield (tb.ones(2),)

    return (fn, calls())


@program
def vmap_with_closures_and_kwargs():
    w = tb.ones((3, 2))
    net = tb.nn.Linear(3, 2)

    def fn(xs, k):
        a = tb.vmap(lambda x, *, s: (x @ w).sum() * s)(xs, s=xs.sum(axis=1))
        b = tb.vmap(net)(xs)
        c = tb.vmap(lambda x: tb.vmap(lambda q: q * x.sum() + w[0, 0])(x))(xs)
        d = tb.vmap(lambda x, y: tb.outer(x, y), in_dims=(0, None))(xs, w[0] * k)
        e = tb.vmap(lambda x: x.sum(), in_dims=1)(xs)
        return (a, b, c, d, e)

    x = tb.reshape(tb.arange(6.0), (2, 3))
    return (fn, [(x, 1.0), (x * 2, 1.0), (x, 2.0)])


@program
def gradients_inside_vmap():

    def g(x):
        x = x.detach().requires_grad_()
        return tb.grad((x**3).sum(), x)[0]

    def fn(xs):
        return tb.vmap(g)(xs)

    x = tb.reshape(tb.arange(6.0), (2, 3))
    return (fn, [(x,), (x * 2,), (x,)])


@program
def identity_of_arguments():
    w = tb.ones(2)

    def fn(a, b):
        return (a + (1 if a is b else 0) + (10 if a is w else 0), any(v is b for v in [a, w]))

    def calls():
        x, y = (tb.ones(2), tb.ones(2))
        yield x, y
        yield x, x
        yield w, x
        yield x, w
        yield w, w
        yield x, y

    return (fn, calls())


@program
def grads_wrt_the_same_leaf():

    def fn(x, y):
        z = (x * y).sum()
        return tb.grad(z, (x, y))

    def calls():
        x, y = (tb.ones(2).requires_grad_(), (tb.ones(2) * 3).requires_grad_())
        yield x, y
        yield y, x
        yield x, x
        yield y, y
        yield x, y

    return (fn, calls())
