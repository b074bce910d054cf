"""Training as it is found in the wild: penalties, targets, averages, decoding."""

from __future__ import annotations

import copy
import math
from collections import deque

import tensorbus as tb

from program import Family, call_of

program = Family(__name__)
nn, F = tb.nn, tb.nn.functional


def batches(n=5, rows=4, cols=3):
    return [tb.reshape(tb.arange(float(rows * cols)) * 0.1 * (k + 1) - 0.3, (rows, cols)) for k in range(n)]


def net(i=3, h=4, o=1):
    return nn.Sequential(nn.Linear(i, h), nn.Tanh(), nn.Linear(h, o))


@program
def ema_of_the_weights():
    m = net()
    ema = copy.deepcopy(m)
    for p in ema.parameters():
        p.requires_grad_(False)
    opt = tb.optim.AdamW(m.parameters(), lr=0.01)

    def step(x, decay=0.9):
        opt.zero_grad()
        loss = (m(x) ** 2).mean()
        loss.backward()
        opt.step()
        with tb.no_grad():
            for a, b in zip(ema.parameters(), m.parameters(), strict=True):
                a[...] = a * decay + b * (1 - decay)
        return loss.detach()

    return step, [(x,) for x in batches()], m, ema, opt


@program
def the_step_of_the_optimizer_alone():
    m = net()
    opt = tb.optim.NAdam(m.parameters(), lr=0.05)

    def fn():
        norm = sum((p.grad**2).sum() for p in m.parameters())
        opt.step()
        return norm

    def calls():
        for x in batches(4):
            opt.zero_grad()
            (m(x) ** 2).mean().backward()
            yield ()

    return fn, calls(), m, opt


@program
def ema_bias_corrected_class():
    class EMA:
        def __init__(self, model, decay):
            self.decay, self.n = decay, 0
            self.shadow = {k: v.detach().clone() for k, v in model.state_dict().items()}

        def update(self, model):
            self.n += 1
            d = min(self.decay, (1 + self.n) / (10 + self.n))
            for k, v in model.state_dict().items():
                self.shadow[k] = d * self.shadow[k] + (1 - d) * v.detach()

    m = net()
    ema = EMA(m, 0.99)
    opt = tb.optim.SGD(m.parameters(), lr=0.1)

    def step(x):
        opt.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        opt.step()
        ema.update(m)
        return loss.detach()

    return step, [(x,) for x in batches(6)], m, ema


@program
def accumulation_over_four():
    m = net()
    opt = tb.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
    state = {"micro": 0, "updates": 0}

    def step(x):
        loss = m(x).square().mean() / 4
        loss.backward()
        state["micro"] += 1
        if state["micro"] % 4 == 0:
            opt.step()
            opt.zero_grad()
            state["updates"] += 1
        return loss.detach() * 4

    return step, [(x,) for x in batches(9)], m, state


@program
def wgan_gradient_penalty():
    critic = net(3, 5, 1)
    gen = net(2, 5, 3)
    oc = tb.optim.Adam(critic.parameters(), lr=0.01, betas=(0.5, 0.9))
    og = tb.optim.Adam(gen.parameters(), lr=0.01)

    def step(real, z):
        fake = gen(z).detach()
        eps = tb.rand((real.shape[0], 1))
        mixed = (eps * real + (1 - eps) * fake).requires_grad_()
        (g,) = tb.grad(critic(mixed).sum(), [mixed], create_graph=True)
        pen = ((g.square().sum(axis=1) + 1e-12).sqrt() - 1).square().mean()
        lc = critic(fake).mean() - critic(real).mean() + 10 * pen
        oc.zero_grad()
        lc.backward()
        oc.step()
        lg = -critic(gen(z)).mean()
        og.zero_grad()
        lg.backward()
        og.step()
        return lc.detach(), lg.detach(), pen.detach()

    return step, [(x, tb.ones((4, 2)) * k) for k, x in enumerate(batches(5))], critic, gen


@program
def r1_penalty_on_real():
    d = net(3, 4, 1)
    opt = tb.optim.SGD(d.parameters(), lr=0.05)

    def step(real):
        real = real.detach().clone().requires_grad_()
        out = d(real)
        (g,) = tb.grad(out.sum(), [real], create_graph=True)
        loss = F.softplus(-out).mean() + 0.5 * g.square().sum(axis=1).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach(), g.detach()

    return step, [(x,) for x in batches(5)], d


@program
def penalty_on_argument_itself():
    d = net(3, 4, 1)

    def fn(x):
        x.requires_grad_()
        (g,) = tb.grad(d(x).sum(), [x], create_graph=True)
        pen = g.square().sum()
        pen.backward()
        return pen.detach(), x.grad

    return fn, [(x,) for x in batches(4)], d


@program
def lstm_language_model():
    emb, lstm, out = nn.Embedding(7, 4), nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 7)
    params = [*emb.parameters(), *lstm.parameters(), *out.parameters()]
    opt = tb.optim.Adam(params, lr=0.01)
    hidden = None

    def step(tokens, carry):
        nonlocal hidden
        h, hidden_new = lstm(emb(tokens[:, :-1]), hidden if carry else None)
        loss = F.cross_entropy(out(h).reshape((-1, 7)), tokens[:, 1:].reshape((-1,)))
        opt.zero_grad()
        loss.backward()
        tb.optim.clip_grad_norm_(params, 0.5)
        opt.step()
        hidden = tuple(s.detach() for s in hidden_new)
        return loss.detach()

    t = tb.reshape(tb.arange(10) % 7, (2, 5))
    return (
        step,
        [
            call_of(t, carry=False),
            call_of((t + 1) % 7, carry=True),
            call_of((t + 2) % 7, carry=True),
            call_of((t * 3) % 7, carry=True),
            call_of(t, carry=False),
        ],
        emb,
        lstm,
        out,
    )


@program
def gru_over_lengths_with_masks():
    cell = nn.GRUCell(2, 3)

    def fn(x, lengths):
        h = tb.zeros((x.shape[0], 3))
        outs = []
        for t in range(x.shape[1]):
            new = cell(x[:, t], h)
            mask = (lengths > t)[:, None]
            h = tb.where(mask, new, h)
            outs.append(h * mask)
        return tb.stack(outs, axis=1), h

    x = tb.reshape(tb.arange(16.0) * 0.1, (2, 4, 2))
    return fn, [(x, tb.asarray([4, 2])), (x * 2, tb.asarray([1, 3])), (x, tb.asarray([0, 4]))], cell


@program
def logging_losses_as_tensors():
    m = net()
    opt = tb.optim.Adam(m.parameters(), lr=0.02)
    losses = []
    norms = deque(maxlen=3)

    def step(x):
        opt.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        norms.append(sum(p.grad.square().sum() for p in m.parameters()).sqrt())
        opt.step()
        losses.append(loss.detach())
        return loss.detach()

    return step, [(x,) for x in batches(6)], m, losses, norms


@program
def schedule_per_epoch_inside():
    m = net()
    opt = tb.optim.SGD(m.parameters(), lr=0.1)
    sch = tb.optim.lr_scheduler.MultiStepLR(opt, milestones=[2, 4], gamma=0.1)
    step_no = 0

    def step(x):
        nonlocal step_no
        step_no += 1
        opt.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        opt.step()
        if step_no % 2 == 0:
            sch.step()
        return loss.detach(), opt.param_groups[0]["lr"]

    return step, [(x,) for x in batches(9)], m, opt


@program
def cosine_rate_by_hand():
    m = net()
    opt = tb.optim.SGD(m.parameters(), lr=0.1)

    class State:
        it = 0

    s = State()

    def step(x):
        lr = 0.1 * 0.5 * (1 + math.cos(math.pi * s.it / 10))
        for g in opt.param_groups:
            g["lr"] = lr
        opt.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        opt.step()
        s.it += 1
        return loss.detach(), lr

    return step, [(x,) for x in batches(6)], m, s


@program
def hooks_collect_activations():
    m = net(3, 4, 2)
    acts = {}
    for name, mod in m.named_modules():
        if name:
            mod.register_forward_hook(lambda mod, a, out, name=name: acts.__setitem__(name, out.detach()))
    m[0].weight.register_hook(lambda g: g.clip(-0.1, 0.1) if hasattr(g, "clip") else tb.clip(g, -0.1, 0.1))

    def fn(x):
        m(x).square().sum().backward()
        return {k: v.mean() for k, v in acts.items()}

    return fn, [(x,) for x in batches(4)], m, acts


@program
def contrastive_with_queue():
    enc = nn.Linear(3, 2)
    queue = {"keys": tb.zeros((6, 2)), "ptr": 0}

    def step(x):
        q = enc(x)
        q = q / (q.square().sum(axis=1, keepdims=True) + 1e-6).sqrt()
        logits = q @ queue["keys"].clone().T
        loss = tb.logsumexp(logits, axis=1).mean()
        with tb.no_grad():
            p = queue["ptr"]
            queue["keys"][p : p + 2] = q.detach()[:2]
            queue["ptr"] = (p + 2) % 6
        loss.backward()
        return loss.detach()

    return step, [(x,) for x in batches(5)], enc, queue


@program
def dqn_with_target_and_replay():
    q, target = net(3, 4, 2), net(3, 4, 2)
    target.load_state_dict(q.state_dict())
    opt = tb.optim.Adam(q.parameters(), lr=0.01)
    count = [0]

    def learn(s, a, r, s2):
        with tb.no_grad():
            best = r + 0.9 * tb.max(target(s2), axis=1)
        val = tb.take_along_axis(q(s), a[:, None], axis=1)[:, 0]
        loss = F.smooth_l1_loss(val, best)
        opt.zero_grad()
        loss.backward()
        opt.step()
        count[0] += 1
        if count[0] % 3 == 0:
            target.load_state_dict(q.state_dict())
        return loss.detach()

    bs = batches(7)
    return (
        learn,
        [(bs[k], tb.asarray([0, 1, 1, 0]), tb.ones((4,)) * k, bs[k + 1]) for k in range(6)],
        q,
        target,
        count,
    )


@program
def vae_step():
    enc, dec = nn.Linear(3, 4), nn.Linear(2, 3)
    opt = tb.optim.Adam([*enc.parameters(), *dec.parameters()], lr=0.01)

    def step(x, beta):
        mu, logvar = tb.split(enc(x), 2, axis=1)
        z = mu + tb.exp(0.5 * logvar) * tb.randn_like(mu)
        rec = dec(z)
        kl = -0.5 * (1 + logvar - mu.square() - logvar.exp()).sum(axis=1).mean()
        loss = (rec - x).square().mean() + beta * kl
        opt.zero_grad()
        loss.backward()
        opt.step()
        return {"loss": loss.detach(), "kl": kl.detach()}

    return step, [(x, 0.1 * (k % 2)) for k, x in enumerate(batches(6))], enc, dec


@program
def sharpness_aware_two_steps():
    m = net()
    opt = tb.optim.SGD(m.parameters(), lr=0.1)

    def step(x):
        opt.zero_grad()
        m(x).square().mean().backward()
        with tb.no_grad():
            norm = tb.stack([p.grad.square().sum() for p in m.parameters()]).sum().sqrt()
            es = []
            for p in m.parameters():
                e = p.grad * (0.05 / (norm + 1e-12))
                p += e
                es.append(e)
        opt.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        with tb.no_grad():
            for p, e in zip(m.parameters(), es, strict=True):
                p -= e
        opt.step()
        return loss.detach()

    return step, [(x,) for x in batches(5)], m


@program
def swa_running_average_of_models():
    m = net()
    avg = [p.detach().clone() for p in m.parameters()]
    n = 0
    opt = tb.optim.SGD(m.parameters(), lr=0.1)

    def step(x):
        nonlocal n
        opt.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        opt.step()
        n += 1
        for k, p in enumerate(m.parameters()):
            avg[k] = avg[k] + (p.detach() - avg[k]) / n
        return loss.detach()

    return step, [(x,) for x in batches(6)], m, avg


@program
def meta_learning_over_tasks():
    w = tb.ones((3, 1)).requires_grad_()
    opt = tb.optim.SGD([w], lr=0.05)

    def step(tasks):
        opt.zero_grad()
        total = 0.0
        for x, y in tasks:
            inner = (x @ w - y).square().mean()
            (g,) = tb.grad(inner, [w], create_graph=True)
            fast = w - 0.1 * g
            total = total + (x @ fast - y).square().mean()
        total = total / len(tasks)
        total.backward()
        opt.step()
        return total.detach()

    b = batches(6)
    return (
        step,
        [
            ([(b[0], tb.ones((4, 1))), (b[1], tb.zeros((4, 1)))],),
            ([(b[2], tb.ones((4, 1))), (b[3], tb.zeros((4, 1)))],),
            ([(b[4], tb.ones((4, 1)))],),
        ],
        w,
    )


@program
def per_example_gradients_by_vmap():
    w = tb.reshape(tb.arange(3.0), (3,))

    def loss(x, y):
        return (tb.tanh((x * w).sum()) - y) ** 2

    def fn(xs, ys):
        return tb.vmap(loss)(xs, ys).sum(), tb.vmap(lambda x: tb.vmap(lambda v: v * 2)(x))(xs)

    return fn, [(x, tb.ones((4,))) for x in batches(3)], w


@program
def jacobian_and_hessian_inside():
    def f(x):
        return tb.stack([x[0] * x[1], x[1] ** 2, tb.sin(x[2])])

    def fn(x):
        x = x.clone().requires_grad_()
        y = f(x)
        jac = tb.stack([tb.grad(y[k], [x], retain_graph=True, create_graph=True)[0] for k in range(3)])
        hess = tb.stack([tb.grad(jac[1, k], [x], retain_graph=True)[0] for k in range(2)])
        return jac.detach(), hess

    return fn, [
        (tb.asarray([1.0, 2.0, 3.0]),),
        (tb.asarray([0.5, -2.0, 1.0]),),
        (tb.asarray([0.0, 0.0, 0.0]),),
    ]
