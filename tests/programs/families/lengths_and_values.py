"""Lengths that differ from call to call, and values, errors and gradients at their edges."""

from __future__ import annotations

import math

import tensorbus as tb

from program import Family

program = Family(__name__)
nn, F = tb.nn, tb.nn.functional


def ramp(*shape):
    return tb.reshape(tb.arange(float(math.prod(shape))), shape) * 0.1


def sizes(*ns, cols=3):
    return [(ramp(n, cols),) for n in ns]


@program
def row_softmax_any_length():
    return lambda x: tb.softmax(x, axis=0) * x.shape[0] + x.shape[0] // 2, sizes(4, 5, 2, 1, 0, 7, 3)


@program
def mean_over_open_axis_and_slices():
    def fn(x):
        n = x.shape[0]
        if n > 4:
            x = x[: n // 2]
        return x.mean(axis=0), x[-1:], x[::2], x.shape

    return fn, sizes(3, 4, 6, 9, 1, 2)


@program
def causal_mask_of_length():
    def fn(x):
        n = x.shape[0]
        s = x @ x.T
        mask = tb.arange(n)[:, None] >= tb.arange(n)
        return tb.softmax(tb.where(mask, s, -math.inf), axis=-1) @ x / math.sqrt(n)

    return fn, sizes(3, 5, 2, 1, 8)


@program
def loop_over_rows():
    def fn(x):
        total = tb.zeros((x.shape[1],))
        for k in range(x.shape[0]):
            total = total * 0.5 + x[k]
        return total

    return fn, sizes(2, 3, 5, 0, 1)


@program
def windows_and_padding():
    def fn(x):
        n = x.shape[0]
        pad = (-n) % 4
        x = tb.concat([x, tb.zeros((pad, x.shape[1]))])
        return tb.reshape(x, (-1, 4, x.shape[1])).sum(axis=1), pad

    return fn, sizes(3, 4, 5, 8, 1, 0, 7)


@program
def pairs_of_lengths():
    def fn(a, b):
        return (a[:, None] * b).sum(axis=1), a.shape[0] * b.shape[0], a.shape[0] == b.shape[0]

    return fn, [(ramp(n), ramp(m)) for n, m in ((2, 3), (3, 3), (4, 2), (5, 5), (1, 4), (0, 2))]


@program
def last_batch_is_smaller():
    m = nn.Sequential(nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    opt = tb.optim.SGD(m.parameters(), lr=0.1)

    def step(x):
        opt.zero_grad()
        loss = F.cross_entropy(m(x), tb.zeros((x.shape[0],), dtype=tb.int64))
        loss.backward()
        opt.step()
        return loss.detach() * x.shape[0]

    return step, sizes(6, 6, 4, 6, 2, 6), m


@program
def conv_over_lengths():
    c = nn.Conv1d(2, 3, 3, padding=1, stride=2)
    return lambda x: tb.relu(c(x)).mean(axis=-1), [(ramp(2, 2, n),) for n in (5, 6, 8, 3, 9)], c


@program
def rnn_over_lengths():
    r = nn.GRU(3, 4)
    return lambda x: r(x)[0][-1], [(ramp(n, 2, 3),) for n in (2, 3, 4, 2, 1)], r


@program
def lengths_in_results_and_strings():
    def fn(x):
        n, m = x.shape
        return {
            "n": n,
            "half": n / 2,
            "text": f"{n}x{m}",
            "list": [n] * 2,
            "neg": -n,
            "pow": n**2,
            "div": divmod(n, 2),
            "min": min(n, 4),
            "t": tb.full((2,), float(n)),
        }, x * n

    return fn, sizes(3, 5, 4, 2, 1)


@program
def split_chunk_stack_unstack():
    def fn(x):
        a = tb.split(x, x.shape[0] // 2 or 1) if x.shape[0] else [x]
        return [p.sum() for p in a], tb.stack([x, x], axis=1), tb.unstack(x[:2])

    return fn, sizes(4, 6, 2, 8)


@program
def sort_topk_by_length():
    def fn(x):
        k = min(2, x.shape[0])
        v, i = tb.topk(x, k, axis=0)
        return v, i, tb.sort(x, axis=0, descending=True), tb.argsort(-x[:, 0]), tb.cumulative_sum(x, axis=0)

    return fn, sizes(3, 5, 2, 1, 6)


@program
def marked_batch_with_limits():
    def fn(x):
        return (x @ x.T).sum(axis=0)

    def calls():
        x = ramp(4, 3)
        tb.mark_dynamic(x, 0, min=2, max=6)
        yield (x,)
        for n in (5, 6, 2, 7, 1, 3, 8):
            yield (ramp(n, 3),)

    return fn, calls()


@program
def gradients_of_open_lengths():
    w = ramp(3).requires_grad_()

    def fn(x):
        return tb.tanh(x * w).sum(axis=1)

    def calls():
        for n in (3, 4, 5, 2, 1):
            out = yield (ramp(n, 3),)
            if out is not None:
                out.sum().backward()

    return fn, calls(), w


@program
def nan_argument_is_itself():
    def fn(x, k):
        return tb.where(tb.isnan(x * k), 0.0, x), k != k

    return fn, [(ramp(3), k) for k in (float("nan"), 1.0, float("nan"), 2.0)]


@program
def assignments_of_all_kinds():
    def fn(x, i, m, v):
        x[0] = 1.0
        x[:, 1] += 2
        x[i] = v
        x[m] = -1
        x[..., -1] = x[..., 0]
        x[1:2, ::2] *= 3
        return x, x[None, ..., 0], x[i][:, [0, 1]]

    return fn, [
        (ramp(4, 3) + k, tb.asarray([1, 2 + k % 2]), ramp(4, 3) > 0.5 + 0.1 * k, float(k)) for k in range(4)
    ]


@program
def aliases_and_copies():
    def fn(x):
        y = x
        z = x.clone()
        v = x[0]
        y += 1
        v *= 100
        w = tb.reshape(x, (-1,))
        w[0] = -5
        return x, y is x, z, v, w, x.T

    return fn, [(ramp(2, 3) + k,) for k in range(4)]


@program
def argument_rebound_and_swapped_inside():
    def fn(a, b):
        a, b = b, a
        a -= 1
        b[...] = a
        c = a
        a = a * 2
        return a, b, c

    return fn, [(ramp(3) + k, ramp(3) * k) for k in range(4)]


@program
def grad_inside_vmap_and_back():
    def loss(w, x):
        return (tb.tanh(x @ w)).sum()

    def fn(w, xs):
        w = w.clone().requires_grad_()
        outs = tb.vmap(lambda x: loss(w, x))(xs)
        (g,) = tb.grad(outs.sum(), [w])
        return outs.detach(), g

    return fn, [(ramp(3) + k, ramp(4, 3)) for k in range(3)]


@program
def custom_vjp_by_detach_trick():
    def round_st(x):
        return x + (tb.round(x) - x).detach()

    w = ramp(3).requires_grad_()

    def fn(x):
        w.grad = None
        (round_st(w * x) ** 2).sum().backward()
        return w.grad

    return fn, [(ramp(3) * 10 + k,) for k in range(4)], w


@program
def retained_graph_twice_and_none_grads():
    w, u = ramp(3).requires_grad_(), ramp(3).requires_grad_()

    def fn(x):
        y = (w * x).sum()
        y.backward(retain_graph=True)
        y.backward()
        return w.grad, u.grad, y.requires_grad, w.grad is w.grad

    def calls():
        for k in range(4):
            yield (ramp(3) + k,)
            if k == 1:
                w.grad = None

    return fn, calls(), w, u


@program
def requires_grad_of_argument_varies():
    def fn(x):
        y = x * x
        if y.requires_grad:
            y = y + 1
        return y

    return fn, [
        (ramp(3),),
        (ramp(3).requires_grad_(),),
        (ramp(3),),
        (ramp(3).requires_grad_() * 2,),
        (ramp(3).requires_grad_(),),
    ]


@program
def errors_by_value_handled_inside():
    def fn(a):
        try:
            return tb.linalg.cholesky(a), "ok"
        except tb.LinAlgError:
            return a * 0, "no"

    e = tb.eye(2)
    return fn, [(e,), (e * 2,), (-e,), (e * 3,), (-e,), (e,)]


@program(raises=("ShapeError",))
def shape_errors_inside_and_after():
    seen = {"n": 0}

    def fn(a, b):
        seen["n"] += 1
        c = a + 1
        return c @ b

    return (
        fn,
        [
            (ramp(2, 3), ramp(3, 2)),
            (ramp(2, 3), ramp(2, 2)),
            (ramp(2, 3), ramp(3, 2)),
            (ramp(2, 2), ramp(3, 2)),
            (ramp(2, 3), ramp(3, 2)),
        ],
        seen,
    )


@program
def no_grad_toggled_by_argument():
    w = ramp(3).requires_grad_()

    def fn(x, on):
        with tb.enable_grad() if on else tb.no_grad():
            y = w * x
        return y, y.requires_grad, tb.is_grad_enabled()

    return fn, [(ramp(3), b) for b in (True, False, True, False)], w


@program
def arguments_made_of_each_other():
    w = ramp(3).requires_grad_()

    def fn(x, y):
        return x * y + w

    def calls():
        for k in range(4):
            x = (ramp(3) + k).requires_grad_()
            out = yield (x, x * 2 + w)
            if out is not None:
                retained.append(x)

    retained = []

    def drive():
        steps, out = calls(), None
        while True:
            try:
                step = steps.send(out)
            except StopIteration:
                return
            out = yield step
            if out is not None:
                out.sum().backward()

    return fn, drive(), w, retained
