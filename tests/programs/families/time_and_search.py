"""Time steps, inner loops, nested trees, shapes of all kinds, blocks and caches."""

from __future__ import annotations

import functools
import itertools

import tensorbus as tb

from program import Family

program = Family(__name__)
nn, F = (tb.nn, tb.nn.functional)


def mlp(*n):
    return nn.Sequential(*[m for a, b in itertools.pairwise(n) for m in (nn.Linear(a, b), nn.Tanh())])


@program
def tree_with_the_same_leaf():

    def fn(t):
        return t["a"] + t["b"][0]

    x, y = (tb.ones(2), tb.zeros(2))
    return (fn, [({"a": x, "b": [x]},), ({"a": x, "b": [y]},), ({"a": y, "b": [y]},), ({"a": y, "b": [x]},)])


@program
def einsum_fft_linalg_complex():

    def fn(a, b):
        c = tb.einsum("ij,jk->ik", a, b)
        f = tb.fft.fft(c[0])
        _q, r = tb.linalg.qr(c + tb.eye(3) * 5)
        s = tb.linalg.solve(c + tb.eye(3) * 5, b)
        return (tb.abs(f), tb.real(f * tb.conj(f)), tb.abs(r), s, tb.linalg.det(c + tb.eye(3)))

    a = tb.reshape(tb.arange(9.0), (3, 3)) / 9
    return (fn, [(a, a), (a.T, a), (a, a + 1)])


@program
def ints_bools_and_shifts():

    def fn(a, b):
        c = a & b | a ^ 3
        d = a << 1
        e = ~(a > b)
        f = a // 2 - a % 3
        return (c, d, e, f, tb.sum(e), tb.any(e), tb.cumulative_sum(a), tb.astype(a, tb.float32) / 2)

    a, b = (tb.asarray([1, 5, 7]), tb.asarray([3, 5, 1]))
    return (
        fn,
        [
            (a, b),
            (b, a),
            (tb.astype(a, tb.int32), tb.astype(b, tb.int32)),
            (tb.astype(a, tb.uint8), tb.astype(b, tb.uint8)),
        ],
    )


@program
def empty_and_0d():

    def fn(x):
        return (x.sum(), x * 2, x.reshape(-1), x.shape, tb.concat([x.reshape(-1), tb.ones(1)]))

    return (
        fn,
        [
            (tb.ones(0),),
            (tb.ones(()),),
            (tb.ones((0, 3)),),
            (tb.ones((2, 0)),),
            (tb.ones(()),),
            (tb.ones(0),),
        ],
    )


@program(dtypes=("bfloat16",))
def default_dtype_and_autocast_in_and_out():
    m = nn.Linear(2, 2)

    def fn(x, low):
        with tb.autocast(tb.bfloat16) if low else tb.enable_grad():
            y = m(x)
        return (y.dtype == tb.bfloat16, tb.ones(1).dtype)

    def calls():
        x = tb.ones((1, 2))
        yield (x, True)
        yield (x, False)
        with tb.autocast(tb.bfloat16):
            yield (x, False)
        yield (x, True)

    return (fn, calls())


@program
def nograd_decorators():
    m = nn.Linear(2, 2)

    @tb.no_grad()
    def ev(x):
        return m(x)

    def fn(x, t):
        y = ev(x)
        if t:
            with tb.enable_grad():
                y = y + m(x)
        return (y, y.requires_grad, tb.is_grad_enabled())

    def calls():
        x = tb.ones((1, 2))
        yield (x, True)
        yield (x, False)
        with tb.no_grad():
            yield (x, True)
            yield (x, False)
        yield (x, True)

    return (fn, calls())


@program
def module_list_dict_parameter_list():

    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.l = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])
            self.d = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Identity()})
            self.p = nn.ParameterList([nn.Parameter(tb.ones(2)) for _ in range(2)])

        def forward(self, x, which):
            for k, part in enumerate(self.l):
                x = part(x) + self.p[k % 2]
            return self.d[which](x)

    m = M()

    def calls():
        x = tb.ones((1, 2))
        yield (x, "a")
        yield (x, "b")
        m.l.append(nn.Linear(2, 2))
        yield (x, "a")
        m.d["b"] = nn.Tanh()
        yield (x, "b")
        del m.l[0]
        yield (x, "b")
        yield (x, "a")

    return (m, calls())


@program
def state_dict_loaded_between():
    m = mlp(2, 2)
    other = {k: v * 0 + 1 for k, v in mlp(2, 2).state_dict().items()}

    def calls():
        x = tb.ones((1, 2))
        yield (x,)
        yield (x,)
        m.load_state_dict(other)
        yield (x,)
        m[0].weight = nn.Parameter(tb.ones((2, 2)) * 3)
        yield (x,)
        with tb.no_grad():
            m[0].weight[0] = 9.0
        yield (x,)

    return (m, calls())


@program(dtypes=("float64",))
def model_moved_to_float64():
    m = mlp(2, 2)

    def calls():
        x = tb.ones((1, 2))
        yield (x,)
        yield (x,)
        m.to(tb.float64)
        yield (tb.astype(x, tb.float64),)
        m.to(tb.float32)
        yield (x,)

    return (m, calls(), m)


@program
def dynamic_methods_and_static():

    class A:
        k = 2.0

        def __init__(self, w):
            self.w = w

        @classmethod
        def make(cls, x):
            return cls(x * cls.k)

        @staticmethod
        def twice(x):
            return x * 2

        @property
        def n(self):
            return self.w.shape[0]

        def __call__(self, x):
            return self.twice(x) + type(self).make(x).w * self.n

    class B(A):
        k = 3.0

        def __call__(self, x):
            return super().__call__(x) - 1

    def fn(o, x):
        return (o(x), B.make(x))

    return (
        fn,
        [
            (A(tb.ones(2)), tb.ones(2)),
            (B(tb.ones(3)), tb.ones(2)),
            (A(tb.ones(2)), tb.zeros(2)),
            (B(tb.ones(3)), tb.ones(2)),
        ],
    )


@program
def partials_reduce_lru():

    @functools.lru_cache
    def mask(n):
        return tb.tril(tb.ones((n, n)))

    add = functools.partial(tb.add, tb.ones(2))

    def fn(x):
        return functools.reduce(lambda a, b: a * b, [x, add(x), mask(x.shape[0]) @ x])

    return (fn, [(tb.ones(2),), (tb.arange(2.0),), (tb.ones(2),)])


@program
def recursion_on_shapes():

    def half(x):
        return x.sum() if x.shape[0] <= 1 else half(x[: x.shape[0] // 2]) * 2 + half(x[x.shape[0] // 2 :])

    return (half, [(tb.arange(4.0),), (tb.arange(7.0),), (tb.ones(4),), (tb.ones(1),)])


@program(data_dependent=True)
def newton_until_converged():

    def fn(x, tol):
        y, n = (x, 0)
        while True:
            new = (y + x / y) / 2
            n += 1
            if float(abs(new - y)) < tol or n > 30:
                break
            y = new
        return (new, n)

    return (fn, [(tb.asarray(2.0), 0.0001), (tb.asarray(9.0), 0.0001), (tb.asarray(100.0), 0.01)])


@program(data_dependent=True)
def item_numpy_print():

    def fn(x):
        s = x.sum().item()
        print("sum", s)
        a = x.numpy().tolist()
        y = x * s
        print(y)
        return y + len(a)

    return (fn, [(tb.ones(2),), (tb.arange(3.0),), (tb.ones(2),)])


@program(data_dependent=True)
def branch_in_training():
    m = nn.Linear(2, 1)
    opt = tb.optim.SGD(m.parameters(), lr=0.1)
    skipped = []

    def fn(x):
        opt.zero_grad()
        part = (m(x) ** 2).mean()
        part.backward()
        if part.item() > 100:
            skipped.append(1)
            return None
        opt.step()
        return part.detach()

    x = tb.ones((1, 2))
    return (fn, [(x,), (x * 100,), (x,), (x * 2,)], m, skipped)


@program
def big_closure():
    ws = {f"w{k}": tb.ones(2) * k for k in range(40)}

    def fn(x):
        for k, w in ws.items():
            x = x + w * len(k)
        return x

    def calls():
        yield (tb.ones(2),)
        yield (tb.ones(2),)
        ws["w3"] = tb.zeros(2)
        yield (tb.ones(2),)
        ws["w4"] += 1
        yield (tb.ones(2),)
        del ws["w5"]
        yield (tb.ones(2),)

    return (fn, calls())


@program
def compiled_inside_compiled():
    inner = tb.compile(lambda x, k: x * k)
    m = tb.compile(nn.Linear(2, 2))

    def fn(x, k):
        return inner(m(x), k) + inner(x, 2)

    return (fn, [(tb.ones((1, 2)), 1), (tb.zeros((1, 2)), 2), (tb.ones((1, 2)), 1)])


@program
def sorting_topk_unique_shapes():

    def fn(x):
        v, i = tb.topk(x, 2)
        return (tb.sort(x), tb.argsort(x), v, i, tb.max(x), tb.argmax(x), tb.median(x), tb.quantile(x, 0.5))

    return (fn, [(tb.asarray([3.0, 1.0, 2.0]),), (tb.asarray([1.0, 5.0, 4.0]),), (tb.arange(4.0),)])


@program
def checkpoint_blocks():
    bs = nn.ModuleList([mlp(2, 2) for _ in range(2)])

    def fn(x):
        for p in bs.parameters():
            p.grad = None
        y = x
        for b in bs:
            y = tb.checkpoint(b, y)
        part = (y**2).sum()
        part.backward()
        return part.detach()

    return (fn, [(tb.ones((2, 2)),), (tb.ones((2, 2)) * 2,), (tb.ones((2, 2)),)], bs)


@program
def result_differentiated_outside():
    m = mlp(2, 2)

    def calls():
        for k in (1, 2, 1):
            out = yield (tb.ones((2, 2)) * k,)
            (out**2).sum().backward()

    return (m, calls(), m)


@program
def views_of_inputs_returned():

    def fn(x):
        return (x, x[0], x.T, x.reshape(-1), [x], x.detach())

    def calls():
        for k in range(3):
            out = yield (tb.ones((2, 2)) * k,)
            out[0][0] = 5.0

    return (fn, calls())


@program
def setattr_on_module_in_forward():

    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.l = nn.Linear(2, 2)
            self.last = None
            self.register_buffer("n", tb.zeros(()))

        def forward(self, x):
            self.last = self.l(x).detach()
            self.n += 1
            return self.last * self.n

    m = M()
    return (m, [(tb.ones((1, 2)) * k,) for k in (1, 2, 3, 4)], m)


@program
def kv_cache_grows():

    class Att(nn.Module):
        def __init__(self):
            super().__init__()
            self.q = nn.Linear(2, 2)
            self.cache = None

        def forward(self, x):
            k = self.q(x)
            self.cache = k if self.cache is None else tb.concat([self.cache, k], axis=0)
            return tb.softmax(k @ self.cache.T, axis=-1) @ self.cache

    m = Att()
    return (m, [(tb.ones((1, 2)) * k,) for k in (1, 2, 3, 4, 5)], m)
