"""Numbers, lists and rates that move from call to call: what a replay must read and write each time."""

from __future__ import annotations

import math
from collections import deque
from math import cos

import tensorbus as tb

from program import Family

program = Family(__name__)
nn = tb.nn


def xs(n=6):
    return [(tb.arange(3.0) + k,) for k in range(n)]


@program
def counter_type_is_asked():
    s = {"n": 0}

    def fn(x):
        s["n"] += 1
        return x * (2 if type(s["n"]) is int else 5), isinstance(s["n"], int), isinstance(s["n"], float)

    return fn, xs(), s


@program
def counter_in_a_text():
    s = {"n": 0}

    def fn(x):
        s["n"] += 1
        return x, f"step {s['n']}", str(s["n"]), "{:d}".format(s["n"]), repr(s["n"])

    return fn, xs(), s


@program
def counter_as_an_index_and_key():
    s = {"n": 0}
    table = {0: 1.0, 1: 5.0, 2: 7.0}

    def fn(x):
        k = s["n"] % 3
        s["n"] += 1
        return x * table[k], x[k], [1, 2, 3][k]

    return fn, xs(), s


@program
def counter_over_a_range():
    s = [0]

    def fn(x):
        s[0] += 1
        for _ in range(s[0]):
            x = x * 1.5
        return x

    return fn, xs(5), s


@program
def counter_resets_and_floats():
    class C:
        n = 0
        t = 0.0
        best = 1e9

    c = C()

    def fn(x):
        c.n += 1
        c.t = 0.9 * c.t + 0.1 * c.n
        if c.n == 3:
            c.n = 0
        c.best = min(c.best, c.t)
        return x * c.t, c.n, c.best

    return fn, xs(9), c


@program
def counter_becomes_float_midway():
    s = {"n": 0}

    def fn(x):
        s["n"] = s["n"] + (1 if s["n"] < 3 else 0.5)
        return x * s["n"]

    return fn, xs(8), s


@program
def counter_changed_from_outside():
    s = {"n": 0}

    def fn(x):
        s["n"] += 1
        return x * s["n"], s["n"]

    def calls():
        for k in range(8):
            if k == 3:
                s["n"] = 100
            if k == 5:
                s["n"] = 1.5
            if k == 6:
                s["n"] = "text"[0:0] or 7
            yield (tb.arange(3.0) + k,)

    return fn, calls(), s


@program(raises=("ZeroDivisionError",))
def counter_divides_by_zero():
    s = {"n": 4}

    def fn(x):
        s["n"] -= 1
        return x * (12 / s["n"])

    return fn, xs(4), s


@program
def counter_and_mathematics():
    s = {"n": 0}

    def fn(x):
        s["n"] += 1
        lr = (
            0.5 * (1 + math.cos(math.pi * s["n"] / 10))
            + cos(s["n"])
            + math.floor(s["n"] / 2)
            + math.log(s["n"])
        )
        return (
            x * lr,
            lr,
            x ** s["n"],
            abs(-s["n"]),
            2 ** s["n"],
            7 % s["n"],
            9 // s["n"],
            +s["n"],
            max(3, s["n"]),
            s["n"] == 2,
        )

    return fn, xs(), s


@program
def log_given_away_and_read():
    log = []
    seen = {"log": log}

    def fn(x):
        log.append(x.sum())
        if len(log) > 3:
            seen["log"].pop(0)
        return x + len(log)

    return fn, xs(), log


@program
def log_of_many_kinds():
    log = []
    n = [0]

    def fn(x):
        n[0] += 1
        y = x * 2
        log.append({"step": n[0], "y": y, "both": (y, y)})
        log.extend([y, "done"])
        log.append(None)
        return y

    return fn, xs(), log, n


@program
def log_replaced_between_calls():
    class T:
        def __init__(self):
            self.log = []

        def __call__(self, x):
            self.log.append(x * 2)
            return x

    t = T()

    def calls():
        for k in range(8):
            if k == 4:
                t.log = []
            if k == 6:
                t.log = deque(maxlen=1)
            yield (tb.arange(3.0) + k,)

    return t, calls(), t


@program
def window_of_recent_values():
    recent = deque(maxlen=2)
    means = deque([0.0], maxlen=3)

    def fn(x):
        recent.append(x.mean())
        means.append(1.0)
        return x

    return fn, xs(), recent, means


@program
def log_is_a_default_argument():
    def fn(x, log=[]):  # noqa: B006
        log.append(x)
        return x * 2

    return fn, xs(), fn.__defaults__


@program
def same_item_in_two_logs_and_result():
    a, b = [], []

    def fn(x):
        y = x + 1
        a.append(y)
        b.append(y)
        return y

    def calls():
        for k in range(5):
            got = yield (tb.arange(3.0) + k,)
            if got is not None and k:
                assert a[-1] is b[-1]

    return fn, calls(), a, b


@program
def argument_appended_to_log():
    log = []

    def fn(x):
        log.append(x)
        x += 1
        return x

    return fn, xs(), log


@program
def bound_append_and_setitem():
    log, d = [], {}
    add, put = log.append, d.__setitem__

    def fn(x):
        add(x * 2)
        put("last", x)
        return x

    return fn, xs(), log, d


@program
def global_made_inside():
    def fn(x):
        global _MADE
        _MADE = x * 2
        return x

    def calls():
        for k in range(4):
            yield (tb.arange(3.0) + k,)
            retained.append(globals()["_MADE"])

    retained = []
    return fn, calls(), retained


@program
def carried_tuple_of_tensors():
    class R:
        def __init__(self):
            self.h = (tb.zeros((3,)), [tb.zeros((3,))])
            self.n = 0

        def __call__(self, x):
            a, (b,) = self.h
            self.h = (a + x, [b + a])
            self.n += 1
            return a, b, self.n

    r = R()

    def calls():
        for k in range(8):
            if k == 4:
                r.h = (tb.ones((3,)), [tb.ones((3,)) * 2])
            if k == 6:
                r.h = (tb.ones((2, 3)), [tb.ones((3,)) * 2])
            yield (tb.arange(3.0) + k,)

    return r, calls(), r


@program
def carried_state_kept_by_the_caller():
    s = {"h": (tb.zeros((3,)), tb.ones((3,)))}
    retained = []

    def fn(x):
        a, b = s["h"]
        s["h"] = (b + x, a * 2)
        return s["h"]

    def calls():
        for k in range(6):
            retained.append(s["h"])
            yield (tb.arange(3.0) + k,)

    return fn, calls(), s, retained


@program
def two_functions_share_a_counter():
    s = {"n": 0}

    def other(x):
        s["n"] += 10
        return x * s["n"]

    def fn(x):
        s["n"] += 1
        return x * s["n"]

    second = tb.compile(other)

    def calls():
        for k in range(8):
            if k % 3 == 2:
                second(tb.ones((3,)))
            yield (tb.arange(3.0) + k,)

    return fn, calls(), s


@program
def evaluation_every_third_step():
    m = nn.Linear(3, 1)
    opt = tb.optim.Adam(m.parameters(), lr=0.05)
    st = {"step": 0}
    evals = []

    def fn(x):
        opt.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        opt.step()
        st["step"] += 1
        if st["step"] % 3 == 0:
            with tb.no_grad():
                evals.append(m(x * 0 + 1).mean())
        return loss.detach()

    return fn, xs(8), m, st, evals


@program
def dropout_with_a_warming_rate():
    m = nn.Linear(3, 3)
    s = {"it": 0}

    def fn(x):
        s["it"] += 1
        noise = tb.rand((3,))
        keep = min(1.0, 0.5 + 0.1 * s["it"])
        return m(x) * (noise < keep) / keep

    return fn, xs(8), m, s


@program
def rates_logged_from_the_schedule():
    m = nn.Linear(3, 1)
    opt = tb.optim.SGD(m.parameters(), lr=0.1, momentum=0.5)
    sch = tb.optim.lr_scheduler.CosineAnnealingLR(opt, 8)
    hist = []

    def fn(x):
        opt.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        opt.step()
        sch.step()
        hist.append(sch.get_last_lr()[0])
        return loss.detach(), opt.param_groups[0]["lr"], sch.last_epoch

    return fn, xs(7), m, hist


@program
def schedule_of_two_kinds_with_momentum():
    m = nn.Linear(3, 1)
    opt = tb.optim.Adam(m.parameters(), lr=0.02)
    sch = tb.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.05, total_steps=20)

    def fn(x):
        opt.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        opt.step()
        sch.step()
        return loss.detach(), opt.param_groups[0]["betas"], opt.param_groups[0]["lr"]

    return fn, xs(7), m


@program
def rate_halved_by_hand_after_the_schedule():
    m = nn.Linear(3, 1)
    opt = tb.optim.SGD(m.parameters(), lr=0.01)
    sch = tb.optim.lr_scheduler.StepLR(opt, 2, 0.9)

    def fn(x):
        opt.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        opt.step()
        sch.step()
        for g in opt.param_groups:
            g["lr"] = g["lr"] * 0.5
        return loss.detach(), opt.param_groups[0]["lr"]

    return fn, xs(7), m, opt


@program
def warm_up_by_hand_then_schedule():
    m = nn.Linear(3, 1)
    opt = tb.optim.SGD(m.parameters(), lr=0.001)
    s = {"n": 0}

    def fn(x):
        s["n"] += 1
        for g in opt.param_groups:
            g["lr"] = 0.001 * min(1.0, s["n"] / 4)
        opt.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        opt.step()
        return loss.detach()

    return fn, xs(7), m, opt, s


@program
def step_count_of_the_state_is_used():
    m = nn.Linear(3, 1)
    opt = tb.optim.Adam(m.parameters(), lr=0.1)

    def fn(x):
        opt.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        opt.step()
        return loss.detach(), opt.state[m.weight]["step"], x * opt.state[m.weight]["step"]

    return fn, xs(6), m
