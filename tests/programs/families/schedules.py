"""Training that changes on its way: schedules, groups, checkpoints, optimizers' states."""

from __future__ import annotations

import copy

import tensorbus as tb
from tensorbus import nn, optim

from program import Family

program = Family(__name__)


def regression(optimizer_of, schedule_of=None):
    """Return a step that takes data, and what must be the same after it."""
    model = nn.Linear(2, 1)
    optimizer = optimizer_of(model.parameters())
    schedule = schedule_of(optimizer) if schedule_of else None

    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        if schedule is not None:
            schedule.step()
        return loss.detach(), [group["lr"] for group in optimizer.param_groups]

    return step, model, optimizer, schedule


def data():
    return tb.asarray([[0.0, 1.0], [1.0, 0.5]]), tb.asarray([[1.0], [0.0]])


@program
def steps_down():
    step, *state = regression(
        lambda p: optim.SGD(p, lr=0.1, momentum=0.5), lambda o: optim.StepLR(o, step_size=2)
    )
    return step, [data()] * 3, *state


@program
def one_cycle_moves_momentum_too():
    step, *state = regression(
        lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
        lambda o: optim.lr_scheduler.OneCycleLR(o, max_lr=0.2, total_steps=10),
    )
    return step, [data()] * 3, *state


@program
def warm_up_then_decay():
    def schedule(o):
        parts = [
            optim.lr_scheduler.LinearLR(o, start_factor=0.5, total_iters=2),
            optim.lr_scheduler.ExponentialLR(o, gamma=0.5),
        ]
        return optim.lr_scheduler.SequentialLR(o, parts, milestones=[2])

    step, *state = regression(lambda p: optim.AdamW(p, lr=0.1), schedule)
    return step, [data()] * 3, *state


@program(data_dependent=True)
def reduced_on_a_plateau():
    model = nn.Linear(2, 1)
    optimizer = optim.SGD(model.parameters(), lr=0.5)
    schedule = optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.5)

    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        schedule.step(loss.item())
        return schedule.get_last_lr()

    return step, [data()] * 3, model


@program
def resumed_from_a_checkpoint():
    step, model, optimizer, _ = regression(lambda p: optim.Adam(p, lr=0.1))

    def calls():
        yield data()
        saved = copy.deepcopy({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
        yield data()
        yield data()
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        yield data()

    return step, calls(), model, optimizer


@program
def layers_join_later():
    body, head = nn.Linear(2, 2), nn.Linear(2, 1)
    body.requires_grad_(False)
    optimizer = optim.Adam(head.parameters(), lr=0.1)

    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.l1_loss(head(tb.tanh(body(x))), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def calls():
        yield data()
        body.requires_grad_(True)
        optimizer.add_param_group({"params": list(body.parameters()), "lr": 0.01})
        yield data()
        yield data()

    return step, calls(), body, head, optimizer


@program
def optimizer_replaced_on_the_way():
    model = nn.Linear(2, 1)
    optimizer = optim.Adam(model.parameters(), lr=0.1)

    def step(x, y):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        return type(optimizer).__name__

    def calls():
        nonlocal optimizer
        yield data()
        yield data()
        optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        yield data()
        yield data()

    return step, calls(), model


@program
def optimizer_written_by_the_user():
    class Lion(optim.Optimizer):
        def __init__(self, params, lr=0.1, beta=0.9):
            super().__init__(params, {"lr": lr, "beta": beta})

        @tb.no_grad()
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    state = self.state.setdefault(p, {})
                    old = state.get("momentum", tb.zeros_like(p))
                    p -= group["lr"] * tb.sign(group["beta"] * old + (1 - group["beta"]) * p.grad)
                    state["momentum"] = 0.99 * old + 0.01 * p.grad

    step, model, *_ = regression(Lion)
    return step, [data()] * 3, model


@program
def adam_written_by_hand():
    w = tb.asarray([[0.5], [-0.5]]).requires_grad_()
    m, v, t = tb.zeros_like(w), tb.zeros_like(w), 0

    def step(x, y, lr=0.1, b1=0.9, b2=0.99):
        nonlocal m, v, t
        t += 1
        (g,) = tb.grad(tb.square(x @ w - y).mean(), w)
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g * g
        with tb.no_grad():
            w.rebind(w - lr * (m / (1 - b1**t)) / (tb.sqrt(v / (1 - b2**t)) + 1e-8))
        return t, m

    return step, [data(), data(), (*data(), 0.05)], w


@program
def distilled_from_a_teacher():
    teacher, student = nn.Linear(2, 3), nn.Linear(2, 3)
    teacher.eval()
    optimizer = optim.SGD(student.parameters(), lr=0.1)

    def step(x, temperature):
        with tb.no_grad():
            target = tb.softmax(teacher(x) / temperature, axis=-1)
        log = tb.log_softmax(student(x) / temperature, axis=-1)
        loss = nn.functional.kl_div(log, target, reduction="batchmean") * temperature**2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    x, _ = data()
    return step, [(x, 2.0), (x, 2.0), (x, 1.0)], student, teacher


def _epoch(optimizer_of, schedule_of):
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.25), nn.Linear(4, 1))
    optimizer = optimizer_of(model.parameters())
    schedule = schedule_of(optimizer)

    def epoch(batches):
        losses = []
        for x in batches:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.detach())
        return tb.stack(losses)

    x = tb.reshape(tb.arange(12.0), (4, 3)) * 0.1 - 0.4
    return epoch, [([x, x + 0.1 * k, x * 2],) for k in range(4)], model, optimizer


@program
def rates_that_differ_within_one_call():
    return _epoch(
        lambda ps: optim.SGD(ps, lr=0.1, momentum=0.5),
        lambda o: optim.lr_scheduler.ExponentialLR(o, 0.8),
    )


@program
def rates_of_adam_that_differ_within_one_call():
    return _epoch(
        lambda ps: optim.Adam(ps, lr=0.02),
        lambda o: optim.lr_scheduler.LambdaLR(o, lambda k: 1 / (k + 1)),
    )


@program
def several_steps_of_adam_with_drawn_numbers_between():
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.25), nn.Linear(4, 1))
    optimizer = optim.Adam(model.parameters(), lr=0.02)

    def update(x, share):
        optimizer.param_groups[0]["lr"] = 0.02 * share
        for _ in range(2):
            order = tb.randperm(x.shape[0])
            for k in range(0, 4, 2):
                optimizer.zero_grad()
                loss = model(x[order[k : k + 2]]).square().mean()
                loss.backward()
                optimizer.step()
        return loss.detach()

    x = tb.reshape(tb.arange(12.0), (4, 3)) * 0.1 - 0.4
    return update, [(x, 1 - k / 8) for k in range(5)], model, optimizer
