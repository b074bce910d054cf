"""Models and training as users write them: hooks, tied weights, groups, schedules."""

from __future__ import annotations

import itertools

import tensorbus as tb

from program import Family, call_of

program = Family(__name__)
nn, F = (tb.nn, tb.nn.functional)


def mlp(*n):
    return nn.Sequential(*[m for a, b in itertools.pairwise(n) for m in (nn.Linear(a, b), nn.Tanh())])


@program
def hooks_come_and_go():
    m = mlp(2, 3, 2)

    def calls():
        x = tb.ones((2, 2))
        yield (x,)
        h = m[0].register_forward_hook(lambda mod, a, out: out * 2)
        yield (x,)
        yield (x,)
        h2 = m[2].register_forward_pre_hook(lambda mod, a: (a[0] + 1,))
        yield (x,)
        h.remove()
        yield (x,)
        h2.remove()
        yield (x,)

    return (m, calls(), m)


@program
def hook_with_kwargs_and_state():

    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.l = nn.Linear(2, 2)
            self.stat = {}
            self.l.register_forward_hook(self.note)

        def note(self, mod, a, out):
            self.stat["mean"] = out.detach().mean()

        def forward(self, x, *, scale=1.0):
            return self.l(x) * scale

    m = M()
    x = tb.ones((2, 2))
    return (m, [call_of(x), call_of(x, scale=2.0), call_of(x * 2), call_of(x * 3, scale=2.0)], m.stat)


@program
def full_backward_hook():
    m = mlp(2, 3)
    got = {}
    m[0].register_full_backward_hook(lambda mod, gi, go: got.__setitem__("g", go[0]))

    def fn(x):
        for p in m.parameters():
            p.grad = None
        m(x).sum().backward()
        return m[0].weight.grad

    return (fn, [(tb.ones((2, 2)),), (tb.ones((2, 2)) * 2,), (tb.ones((2, 2)),)], got, m)


@program
def tensor_hook_scales():
    w = tb.ones(2).requires_grad_()

    def fn(x, k):
        y = w * x
        y.register_hook(lambda g: g * k)
        y.sum().backward()
        return w.grad

    return (fn, [(tb.ones(2), 1.0), (tb.ones(2), 2.0), (tb.ones(2), 2.0), (tb.ones(2), 2.0)], w)


@program
def parametrized_weight():
    m = nn.Linear(2, 2)

    class Sym(nn.Module):
        def forward(self, w):
            return tb.triu(w) + tb.triu(w, k=1).T

    def calls():
        x = tb.ones((2, 2))
        yield (x,)
        nn.parametrize.register_parametrization(m, "weight", Sym())
        yield (x,)
        yield (x * 2,)
        nn.parametrize.remove_parametrizations(m, "weight")
        yield (x,)

    return (m, calls())


@program
def weight_tying():

    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Embedding(5, 3)
            self.o = nn.Linear(3, 5, bias=False)
            self.o.weight = self.e.weight

        def forward(self, i):
            return self.o(tb.tanh(self.e(i)))

    m = M()
    opt = tb.optim.SGD(m.parameters(), lr=0.1)

    def fn(i):
        opt.zero_grad()
        part = F.cross_entropy(m(i), i)
        part.backward()
        opt.step()
        return part.detach()

    i = tb.asarray([0, 1, 2])
    return (fn, [(i,), (i + 1,), (i,), (i + 2,)], m, opt)


@program
def batch_norm_train_and_eval():
    m = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Dropout(0.5))

    def calls():
        x = tb.reshape(tb.arange(8.0), (4, 2))
        yield (x,)
        yield (x * 2,)
        yield (x,)
        m.eval()
        yield (x,)
        yield (x,)
        m.train()
        m[1].eval()
        yield (x,)
        m[1].momentum = 0.5
        m.train()
        yield (x,)
        yield (x,)
        m[3].p = 0.0
        yield (x,)

    return (m, calls(), m)


@program
def requires_grad_flips():
    m = mlp(2, 2, 2)

    def fn(x):
        m.zero_grad()
        part = m(x).sum()
        if part.requires_grad:
            part.backward()
        return part.detach()

    def calls():
        x = tb.ones((1, 2))
        yield (x,)
        yield (x,)
        m[0].weight.requires_grad_(False)
        yield (x,)
        for p in m.parameters():
            p.requires_grad_(False)
        yield (x,)
        m[2].bias.requires_grad_(True)
        yield (x,)
        yield (x,)

    return (fn, calls(), m)


@program
def parameter_groups_and_schedule():
    m = mlp(2, 3, 1)
    opt = tb.optim.AdamW(
        [{"params": m[0].parameters(), "lr": 0.1}, {"params": m[2].parameters(), "weight_decay": 0.1}],
        lr=0.01,
    )
    sch = tb.optim.lr_scheduler.CosineAnnealingLR(opt, 5)

    def fn(x):
        opt.zero_grad()
        part = (m(x) ** 2).mean()
        part.backward()
        n = tb.optim.clip_grad_norm_(m.parameters(), 0.5)
        opt.step()
        sch.step()
        return (part.detach(), n)

    x = tb.ones((2, 2))
    return (fn, [(x,), (x * 2,), (x,), (x * 3,), (x,)], m, opt, sch)


@program
def rate_read_for_the_log():
    m = mlp(2, 1)
    opt = tb.optim.SGD(m.parameters(), lr=0.1)
    sch = tb.optim.lr_scheduler.StepLR(opt, 2, 0.5)

    def fn(x):
        opt.zero_grad()
        part = (m(x) ** 2).mean()
        part.backward()
        opt.step()
        sch.step()
        return (part.detach(), opt.param_groups[0]["lr"])

    x = tb.ones((2, 2))
    return (fn, [(x,)] * 6, m, opt)


@program
def rate_set_by_hand():
    m = mlp(2, 1)
    opt = tb.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)

    def fn(x, lr):
        for g in opt.param_groups:
            g["lr"] = lr
        opt.zero_grad()
        part = (m(x) ** 2).mean()
        part.backward()
        opt.step()
        return part.detach()

    x = tb.ones((2, 2))
    return (fn, [(x, 0.1), (x, 0.1), (x, 0.2), (x, 0.1), (x, 0.05)], m, opt)


@program
def rate_set_outside():
    m = mlp(2, 1)
    opt = tb.optim.Adam(m.parameters(), lr=0.1)

    def fn(x):
        opt.zero_grad()
        part = (m(x) ** 2).mean()
        part.backward()
        opt.step()
        return part.detach()

    def calls():
        x = tb.ones((2, 2))
        for k in range(6):
            opt.param_groups[0]["lr"] = 0.1 / (k + 1)
            yield (x,)
        opt.param_groups[0]["weight_decay"] = 0.1
        yield (x,)
        opt.param_groups[0]["betas"] = (0.5, 0.9)
        yield (x,)

    return (fn, calls(), m, opt)


@program
def group_added_later():
    a, b = (nn.Linear(2, 2), nn.Linear(2, 1))
    opt = tb.optim.SGD(a.parameters(), lr=0.1)

    def fn(x):
        opt.zero_grad()
        part = (b(a(x)) ** 2).mean()
        part.backward()
        opt.step()
        return part.detach()

    def calls():
        x = tb.ones((2, 2))
        yield (x,)
        yield (x,)
        opt.add_param_group({"params": b.parameters(), "lr": 0.5})
        yield (x,)
        yield (x,)
        yield (x,)

    return (fn, calls(), a, b, opt)


@program
def accumulate_then_step():
    m = mlp(2, 1)
    opt = tb.optim.SGD(m.parameters(), lr=0.1)

    def fn(x, last):
        ((m(x) ** 2).mean() / 2).backward()
        if last:
            opt.step()
            opt.zero_grad()
        return m[0].weight.grad is None

    x = tb.ones((2, 2))
    return (fn, [(x, False), (x * 2, True)] * 3, m, opt)


@program(data_dependent=True)
def lbfgs_closure():
    w = nn.Parameter(tb.ones(2))
    opt = tb.optim.LBFGS([w], lr=0.5, max_iter=3)

    def fn(t):

        def closure():
            opt.zero_grad()
            part = ((w - t) ** 2).sum()
            part.backward()
            return part

        return opt.step(closure)

    return (fn, [(tb.zeros(2),), (tb.zeros(2),), (tb.ones(2) * 3,)], w)


@program
def double_backward_penalty():
    m = mlp(2, 4, 1)

    def fn(x):
        x = x.requires_grad_()
        y = m(x).sum()
        (g,) = tb.grad(y, x, create_graph=True)
        part = (g**2).sum()
        part.backward()
        return (part.detach(), g.detach())

    def calls():
        for k in range(3):
            for p in m.parameters():
                p.grad = None
            yield (tb.ones((2, 2)) * (k + 1),)

    return (fn, calls(), m)


@program
def jacobian_by_rows():

    def f(x):
        return tb.stack([x[0] * x[1], tb.sin(x[0]), x[1] ** 2])

    def fn(x):
        x = x.detach().requires_grad_()
        y = f(x)
        return tb.stack([tb.grad(y[k], x, retain_graph=True)[0] for k in range(3)])

    return (fn, [(tb.ones(2),), (tb.arange(2.0),), (tb.ones(2) * 3,)])


@program
def maml_like_inner_loop():
    w = nn.Parameter(tb.ones(2))
    opt = tb.optim.SGD([w], lr=0.1)

    def fn(x, n):
        fast = w
        for _ in range(n):
            part = ((fast * x) ** 2).sum()
            (g,) = tb.grad(part, fast, create_graph=True)
            fast = fast - 0.1 * g
        opt.zero_grad()
        (fast**2).sum().backward()
        opt.step()
        return fast.detach()

    return (fn, [(tb.ones(2), 1), (tb.ones(2), 2), (tb.arange(2.0), 2), (tb.ones(2), 2)], w)


@program
def custom_rnn_over_time():
    cell = nn.GRUCell(2, 3)

    def fn(xs, h=None):
        out = []
        h = tb.zeros((xs.shape[1], 3)) if h is None else h
        for x in tb.unstack(xs):
            h = cell(x, h)
            out.append(h)
        return (tb.stack(out), h)

    return (
        fn,
        [
            (tb.ones((4, 2, 2)),),
            (tb.ones((6, 2, 2)),),
            (tb.ones((4, 2, 2)), tb.ones((2, 3))),
            (tb.ones((4, 2, 2)) * 2,),
        ],
    )


@program(divided=True)
def long_loop():

    def fn(x, n):
        for _k in range(n):
            x = x * 0.999 + 0.001
        return x

    return (fn, [(tb.ones(2), 300), (tb.zeros(2), 300), (tb.zeros(2), 1000), (tb.ones(2), 1000)])


@program
def deep_nesting():

    def fn(t):

        def walk(q):
            return (
                {k: walk(v) for k, v in q.items()}
                if isinstance(q, dict)
                else [walk(v) for v in q]
                if isinstance(q, list)
                else q * 2
            )

        return walk(t)

    def tree(d, x):
        return x if d == 0 else {"a": tree(d - 1, x), "b": [tree(d - 1, x + 1)]}

    return (fn, [(tree(5, tb.ones(2)),), (tree(5, tb.zeros(2)),), (tree(4, tb.ones(2)),)])


@program
def beam_search():
    emb = nn.Embedding(6, 6)

    def fn(start, width, steps):
        seqs, scores = (start[None, :], tb.zeros((1,)))
        for _ in range(steps):
            lp = tb.log_softmax(emb(seqs[:, -1]), axis=-1)
            tot = (scores[:, None] + lp).reshape(-1)
            scores, idx = tb.topk(tot, min(width, tot.shape[0]))
            seqs = tb.concat([seqs[idx // 6], (idx % 6)[:, None]], axis=1)
        return (seqs, scores)

    s = tb.asarray([1])
    return (fn, [(s, 2, 3), (s, 3, 2), (s + 1, 2, 3), (s, 2, 3)])
