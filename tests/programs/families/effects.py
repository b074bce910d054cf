"""What programs do beside computing: errors that depend on values, arguments that change, state."""

from __future__ import annotations

import collections
import contextvars
import copy
import random
import threading

import tensorbus as tb

from program import Family

program = Family(__name__)


@program(raises=("LinAlgError",))
def error_by_data_after_effects():
    log, buf = ([], tb.zeros(2))

    def fn(x):
        nonlocal buf
        log.append("a")
        buf += 1
        y = tb.linalg.inv(x)
        log.append("b")
        buf += 10
        return y

    good, bad = (tb.eye(2) * 2, tb.zeros((2, 2)))

    def calls():
        for m in (good, bad, good, bad, good, good, bad):
            yield (m,)

    return (fn, calls(), log, buf)


@program
def error_by_data_caught():

    def fn(x):
        try:
            y = tb.linalg.cholesky(x)
        except tb.LinAlgError:
            return (x * 0, "bad")
        return (y, "good")

    good, bad = (tb.eye(2) * 2, -tb.eye(2))

    def calls():
        for m in (good, bad, good, bad, good):
            yield (m,)

    return (fn, calls())


@program
def error_by_data_finally():
    log = []

    class Ctx:
        def __enter__(self):
            log.append("in")
            return self

        def __exit__(self, kind, e, tr):
            log.append(kind.__name__ if kind else "out")
            return True

    def fn(x):
        y = None
        with Ctx():
            y = tb.linalg.inv(x)
            log.append("after")
        return y

    good, bad = (tb.eye(2) * 2, tb.zeros((2, 2)))

    def calls():
        for m in (good, bad, good, good, good, bad):
            yield (m,)

    return (fn, calls(), log)


@program(raises=("ValueError",))
def error_after_inplace():
    b = tb.zeros(2)

    def fn(x, f):
        x += 1
        b[0] = 5.0
        if f:
            raise ValueError(f"no {f}")
        b[1] += 1
        return x * b

    def calls():
        for f in (0, 0, 1, 0, 2, 1, 0):
            yield (tb.ones(2), f)

    return (fn, calls(), b)


@program
def list_argument_mutations():

    def fn(part, x):
        part.append(x + 1)
        part[0] = x * 2
        part.insert(1, x)
        part.pop()
        del part[0]
        part.extend([x, x])
        part.reverse()
        part += [x - 1]
        return len(part)

    def calls():
        for k in range(4):
            yield ([tb.ones(2), tb.zeros(2)], tb.ones(2) * k)

    return (fn, calls())


@program
def dict_argument_mutations():

    def fn(d, x):
        d["n"] = x + 1
        d.setdefault("m", x * 2)
        d.update(z=x)
        d.pop("a", None)
        d["list"].append(x)
        return sorted(d)

    def calls():
        for k in range(4):
            yield ({"a": tb.ones(2), "list": []}, tb.ones(2) * k)

    return (fn, calls())


@program
def set_argument_mutations():
    s = {1}

    def fn(q, x):
        q.add(x.shape[0])
        s.add(x.shape[0])
        q.discard(0)
        return x * len(q) + len(s)

    def calls():
        for k in (2, 2, 3, 3, 2):
            yield ({0, 7}, tb.ones(k))

    return (fn, calls(), s)


@program
def result_is_stored_and_returned_twice():
    box = {}

    def fn(x):
        y = x + 1
        box["y"] = y
        return (y, [y, {"z": y}], (x, x))

    return (fn, [(tb.ones(2),), (tb.zeros(2),), (tb.ones(2),)], box)


@program
def last_seen_attribute():

    class K:
        def __init__(self):
            self.last = None
            self.hist = collections.deque(maxlen=2)

        def __call__(self, x):
            y = x * 2 if self.last is None else x + self.last
            self.last = y
            return y

    k = K()
    return (k, [(tb.ones(2),)] * 5, k)


@program
def ema_attributes():

    class Ema:
        def __init__(self):
            self.v = tb.zeros(2)
            self.n = 0

        def update(self, x, d=0.9):
            self.v = self.v * d + x * (1 - d)
            return self.v

    e = Ema()

    def fn(x):
        return e.update(x)

    return (fn, [(tb.ones(2),)] * 4, e)


@program
def ema_of_module():
    m = tb.nn.Linear(2, 2)
    avg = copy.deepcopy(m)
    for p in avg.parameters():
        p.requires_grad_(False)
    o = tb.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)

    def fn(x):
        o.zero_grad()
        part = (m(x) ** 2).mean()
        part.backward()
        o.step()
        with tb.no_grad():
            for a, p in zip(avg.parameters(), m.parameters(), strict=False):
                a[...] = a * 0.9 + p * 0.1
        return part.detach()

    return (fn, [(tb.ones((3, 2)) * k,) for k in (1, 2, 3, 1)], m, avg, o)


@program
def contextvar_read():
    v = contextvars.ContextVar("v", default=1.0)

    def fn(x):
        return x * v.get()

    def calls():
        yield (tb.ones(2),)
        yield (tb.ones(2),)
        t = v.set(3.0)
        yield (tb.ones(2),)
        v.reset(t)
        yield (tb.ones(2),)

    return (fn, calls())


@program
def thread_local_read():
    t = threading.local()
    t.k = 2.0

    def fn(x):
        return x * t.k

    def calls():
        yield (tb.ones(2),)
        yield (tb.ones(2),)
        t.k = 3.0
        yield (tb.ones(2),)

    return (fn, calls())


@program
def python_random_and_time():

    def fn(x):
        return x * random.random() + random.randint(0, 5) + random.choice([1, 2, 3])

    return (fn, [(tb.ones(2),)] * 5)


@program
def own_random_object():
    r = random.Random(3)

    def fn(x):
        return x * r.random()

    return (fn, [(tb.ones(2),)] * 5)


@program
def numpy_random():
    import numpy as np

    g = np.random.default_rng(0)

    def fn(x):
        return x * float(g.random())

    return (fn, [(tb.ones(2),)] * 5)


@program
def numpy_array_constant():
    import numpy as np

    a = np.array([1.0, 2.0], dtype="float32")

    def fn(x):
        return x * tb.asarray(a)

    def calls():
        yield (tb.ones(2),)
        yield (tb.ones(2),)
        a[0] = 7
        yield (tb.ones(2),)

    return (fn, calls())


@program
def numpy_scalars_arguments():
    import numpy as np

    def fn(x, s):
        return x * s

    return (
        fn,
        [
            (tb.ones(2), np.float32(2)),
            (tb.ones(2), np.float32(3)),
            (tb.ones(2), np.int64(3)),
            (tb.ones(2), np.float32(5)),
            (tb.ones(2), np.float32(2)),
        ],
    )


@program
def numpy_array_argument():
    import numpy as np

    def fn(x, a):
        return (x * tb.asarray(a), a.sum())

    def calls():
        a = np.ones(2, dtype="float32")
        yield (tb.ones(2), a)
        yield (tb.ones(2), a)
        a[0] = 5
        yield (tb.ones(2), a)

    return (fn, calls())
