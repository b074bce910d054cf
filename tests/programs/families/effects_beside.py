"""Random numbers, other modules, warnings, contexts and copies in programs."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import itertools
import warnings

import tensorbus as tb

from program import Family, call_of

program = Family(__name__)
STATE = None


@program
def kwargs_order_and_defaults():

    def fn(x, /, y=1.0, *rest, scale=2.0, **kw):
        return (x * scale + y + sum(rest) + sum((len(k) * v for k, v in kw.items())), list(kw))

    x = tb.ones(2)
    return (
        fn,
        [
            call_of(x),
            call_of(x, y=2.0),
            call_of(x, 1.0, 2.0, 3.0),
            call_of(x, a=1.0, bb=2.0),
            call_of(x, bb=2.0, a=1.0),
            call_of(x, a=1.0, bb=2.0),
            call_of(x, scale=3.0),
            call_of(x, y=2.0),
        ],
    )


@program
def rng_state_effects():
    d = tb.nn.Dropout(0.5)

    def fn(x):
        a = tb.rand(3)
        b = d(x)
        c = tb.randn(2, 2)
        e = tb.randint(0, 10, (3,))
        p = tb.randperm(4)
        return (a, b, c, e, p)

    return (fn, [(tb.ones(4),)] * 3)


@program
def rng_seed_inside():

    def fn(x, s):
        tb.manual_seed(s)
        return x + tb.rand(2)

    return (fn, [(tb.ones(2), 1), (tb.ones(2), 1), (tb.ones(2), 2), (tb.ones(2), 1)])


@program
def warnings_inside():

    def fn(x):
        if x.shape[0] > 2:
            warnings.warn("long", stacklevel=2)
        return x * 2

    return (fn, [(tb.ones(2),), (tb.ones(3),), (tb.ones(3),), (tb.ones(2),), (tb.ones(3),)])


@program
def prints_of_constants_and_tensors():

    def fn(x, verbose):
        if verbose:
            print("shape", x.shape, x.dtype, sep="|")
        return x + 1

    return (
        fn,
        [
            (tb.ones(2), True),
            (tb.ones(2), True),
            (tb.ones(2), False),
            (tb.ones(2), False),
            (tb.ones(3), True),
        ],
    )


@program
def global_flag_and_counter():
    st = {"step": 0, "every": 2}

    def fn(x):
        st["step"] += 1
        if st["step"] % st["every"] == 0:
            x = x * 10
        return x

    return (fn, [(tb.ones(2),)] * 7, st)


@program
def closure_tensor_rebinding():
    h = tb.zeros(2)

    def fn(x):
        nonlocal h
        h = tb.tanh(h + x)
        return h

    def calls():
        nonlocal h
        yield (tb.ones(2),)
        yield (tb.ones(2),)
        yield (tb.ones(2),)
        h = tb.zeros(2)
        yield (tb.ones(2),)
        yield (tb.ones(2),)

    return (fn, calls())


@program
def global_tensor_rebinding():
    global STATE
    STATE = tb.zeros(2)

    def fn(x):
        global STATE
        STATE = STATE * 0.5 + x
        return STATE.sum()

    return (fn, [(tb.ones(2),)] * 5)


@program
def inplace_everything():

    def fn(x, y):
        x += 1
        x *= y
        x -= 2
        x /= 4
        x **= 2
        y[0] = x[1]
        y[1:] = 0
        y[y > 3] = 1
        return (x, y)

    def calls():
        for k in range(4):
            yield (tb.arange(3.0) + k, tb.arange(3.0) * k)

    return (fn, calls())


@program
def views_then_inplace():

    def fn(x):
        a = x[0]
        b = x.T
        a += 1
        b[0] = 5.0
        x[..., 0] += 2
        return (a, b, x)

    def calls():
        for k in range(3):
            yield (tb.ones((2, 2)) * k,)

    return (fn, calls())


@program
def deepcopy_inside():
    cfg = {"w": tb.ones(2), "k": [1.0, 2.0]}

    def fn(x):
        c = copy.deepcopy(cfg)
        d = copy.copy(cfg)
        c["w"] += x
        d["k"][0] += 0
        return (c["w"], d["k"][1])

    def calls():
        yield (tb.ones(2),)
        yield (tb.ones(2),)
        cfg["k"][1] = 5.0
        yield (tb.ones(2),)
        cfg["w"][0] = 7.0
        yield (tb.ones(2),)

    return (fn, calls(), cfg)


@program
def dataclass_replace_asdict():

    @dataclasses.dataclass
    class S:
        x: object
        k: float = 1.0
        names: list = dataclasses.field(default_factory=list)

    def fn(s):
        t = dataclasses.replace(s, k=s.k + 1)
        return (t.x * t.k, dataclasses.astuple(t)[1], t)

    return (fn, [(S(tb.ones(2)),), (S(tb.zeros(2), 3.0),), (S(tb.ones(2)),), (S(tb.zeros(2), 3.0, ["q"]),)])


@program
def frozen_and_slotted_dataclasses():

    @dataclasses.dataclass(frozen=True, slots=True)
    class S:
        x: object
        k: float = 1.0

    def fn(s):
        return S(s.x * s.k, s.k * 2)

    return (fn, [(S(tb.ones(2)),), (S(tb.zeros(2), 3.0),), (S(tb.ones(2)),)])


@program
def generator_expression_results():

    def fn(x):
        g = (x * k for k in range(3))
        return (
            list(itertools.accumulate(g, lambda a, b: a + b)),
            {k: x + k for k in "ab" and (1, 2)},
            {len(x.shape)},
        )

    return (fn, [(tb.ones(2),), (tb.zeros(2),), (tb.ones(3),)])


@program
def exceptions_with_tensor_info():

    def fn(x):
        try:
            if x.shape[0] > 2:
                raise KeyError(x.shape[0])
            return x
        except KeyError as e:
            return x * e.args[0]
        finally:
            x = None

    return (fn, [(tb.ones(2),), (tb.ones(3),), (tb.ones(3),), (tb.ones(2),)])


@program(raises=("ShapeError",))
def shape_error_midway():
    log = []

    def fn(x, y):
        log.append(x.shape)
        z = x * 2
        log.append(z.ndim)
        return z @ y

    return (
        fn,
        [
            (tb.ones((2, 2)), tb.ones((2, 2))),
            (tb.ones((2, 3)), tb.ones((2, 2))),
            (tb.ones((2, 2)), tb.ones((2, 2))),
        ],
        log,
    )


@program
def suppress_and_exitstack():
    d = {}

    def fn(x, k):
        with contextlib.suppress(KeyError):
            x = x * d[k]
        with contextlib.ExitStack() as st:
            st.callback(d.setdefault, "z", 2.0)
            return x + 1

    return (fn, [(tb.ones(2), "z"), (tb.ones(2), "z"), (tb.ones(2), "y"), (tb.ones(2), "z")], d)


@program
def decorated_context():
    depth = [0]

    @contextlib.contextmanager
    def level():
        depth[0] += 1
        try:
            yield depth[0]
        finally:
            depth[0] -= 1

    def fn(x):
        with level() as a, level() as b:
            return x * a + b

    return (fn, [(tb.ones(2),)] * 4, depth)


@program
def wrapper_tensor_like():

    class W:
        def __init__(self, t):
            self.t = t

        def __add__(self, o):
            return W(self.t + (o.t if isinstance(o, W) else o))

        __radd__ = __add__

        def __mul__(self, o):
            return W(self.t * (o.t if isinstance(o, W) else o))

        def __getattr__(self, n):
            if n == "t":
                raise AttributeError(n)
            return getattr(self.t, n)

        def __matmul__(self, o):
            return W(self.t @ o.t)

        def __getitem__(self, k):
            return W(self.t[k])

    def fn(w):
        return ((w + 1) * w, w.sum(), w[0], w.shape)

    return (fn, [(W(tb.ones(2)),), (W(tb.arange(2.0)),), (W(tb.ones((2, 2))),)])
