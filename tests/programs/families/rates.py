"""Numbers of optimizers and schedules that programs read or set themselves."""

from __future__ import annotations

import tensorbus as tb

from program import Family

program = Family(__name__)
nn = tb.nn


def training(kind=None, **k):
    m = nn.Linear(2, 1)
    opt = (kind or tb.optim.Adam)(m.parameters(), **{"lr": 0.1, **k})

    def train(x):
        opt.zero_grad()
        part = (m(x) ** 2).mean()
        part.backward()
        opt.step()
        return part.detach()

    return (m, opt, train)


def five():
    return [(tb.ones((2, 2)),)] * 5


@program
def step_count_is_read():
    m, opt, train = training()

    def fn(x):
        return (train(x), opt.state[m.weight]["step"])

    return (fn, five(), m, opt)


@program
def state_dict_inside():
    m, opt, train = training()

    def fn(x):
        part = train(x)
        return (part, opt.state_dict()["state"][0]["step"])

    return (fn, five(), m, opt)


@program
def epoch_of_a_schedule():
    m, opt, train = training()
    sch = tb.optim.lr_scheduler.StepLR(opt, 2)

    def fn(x):
        part = train(x)
        sch.step()
        return (part, sch.last_epoch)

    return (fn, five(), m, opt)


@program
def state_of_a_schedule():
    m, opt, train = training()
    sch = tb.optim.lr_scheduler.StepLR(opt, 2)

    def fn(x):
        part = train(x)
        sch.step()
        return (part, sch.state_dict())

    return (fn, five(), m, opt)


@program
def group_held_by_the_script():
    m, opt, train = training()
    g = opt.param_groups[0]

    def fn(x, lr):
        g["lr"] = lr
        return train(x)

    x = tb.ones((2, 2))
    return (fn, [(x, 0.1), (x, 0.1), (x, 0.1), (x, 0.5), (x, 0.1), (x, 0.1)], m, opt)


@program
def group_read_by_the_script():
    m, opt, train = training(tb.optim.SGD)
    g = opt.param_groups[0]

    def fn(x):
        return train(x) * g["lr"]

    def calls():
        x = tb.ones((2, 2))
        yield (x,)
        yield (x,)
        g["lr"] = 0.5
        yield (x,)
        yield (x,)

    return (fn, calls(), m, opt)


@program
def warm_up_by_hand():
    m, opt, train = training(tb.optim.SGD, momentum=0.9)

    def fn(x, step):
        for g in opt.param_groups:
            g["lr"] = 0.1 * min(1.0, step / 3)
        return (train(x), opt.param_groups[0]["lr"])

    return (fn, [(tb.ones((2, 2)), k) for k in range(1, 7)], m, opt)


@program
def constant_rate_is_returned():
    m, opt, train = training()

    def fn(x):
        return (train(x), [g["lr"] for g in opt.param_groups])

    def calls():
        x = tb.ones((2, 2))
        for _ in range(4):
            yield (x,)
        opt.param_groups[0]["lr"] = 0.3
        for _ in range(2):
            yield (x,)

    return (fn, calls(), m, opt)


@program
def items_of_a_group():
    m, opt, train = training(tb.optim.SGD)

    def fn(x):
        return (train(x), sum((v for q in opt.param_groups for k, v in q.items() if type(v) is float)))

    def calls():
        x = tb.ones((2, 2))
        for _ in range(3):
            yield (x,)
        opt.param_groups[0]["lr"] = 0.3
        for _ in range(2):
            yield (x,)

    return (fn, calls(), m, opt)


@program
def items_of_a_held_group():
    m, opt, train = training(tb.optim.SGD)
    gs = opt.param_groups

    def fn(x):
        return (train(x), sum((v for q in gs for k, v in q.items() if type(v) is float)))

    def calls():
        x = tb.ones((2, 2))
        for _ in range(3):
            yield (x,)
        gs[0]["lr"] = 0.3
        for _ in range(2):
            yield (x,)

    return (fn, calls(), m, opt)


@program
def schedule_outside_the_step():
    m, opt, train = training(tb.optim.AdamW)
    sch = tb.optim.lr_scheduler.CosineAnnealingLR(opt, 6)

    def calls():
        for _k in range(6):
            yield (tb.ones((2, 2)),)
            sch.step()

    return (train, calls(), m, opt)


@program
def two_optimizers_one_schedule():
    m, opt, train = training()
    m2, opt2, train2 = training(tb.optim.SGD)
    sch = tb.optim.lr_scheduler.StepLR(opt, 1)

    def fn(x):
        a = train(x)
        b = train2(x)
        sch.step()
        return a + b

    return (fn, five(), m, opt, m2, opt2)


@program
def clipped_and_skipped_on_overflow():
    m, opt, _train = training()

    def fn(x):
        opt.zero_grad()
        part = (m(x) ** 2).mean()
        part.backward()
        n = tb.optim.clip_grad_norm_(m.parameters(), 1.0)
        ok = tb.isfinite(n)
        for p in m.parameters():
            p.grad = tb.where(ok, p.grad, tb.zeros_like(p.grad))
        opt.step()
        return n

    return (fn, five(), m, opt)
