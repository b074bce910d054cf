"""Whole training steps: forward, backward, optimizer, schedule and what people put around them."""

from __future__ import annotations

import tensorbus as tb
from tensorbus import nn, optim

from program import Family

program = Family(__name__)

X = [[0.0, 1.0], [1.0, 0.5], [-1.0, 0.25], [0.5, -0.5]]

Y = [[1.0], [0.0], [1.0], [0.5]]


def data():
    return tb.asarray(X), tb.asarray(Y)


def network():
    return nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))


def stepper(make_optimizer, model=None):
    """Return the usual step, and model and optimizer."""
    model = network() if model is None else model
    optimizer = make_optimizer(model.parameters())

    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, model, optimizer


@program
def plain_sgd():
    step, *state = stepper(lambda p: optim.SGD(p, lr=0.1))
    x, y = data()
    return step, [(x, y), (x, y), (x[:2], y[:2]), (x, y)], *state


@program
def momentum_and_decay():
    step, *state = stepper(lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01))
    return step, [data()] * 4, *state


@program
def adam():
    step, *state = stepper(lambda p: optim.Adam(p, lr=0.01))
    return step, [data()] * 4, *state


@program
def adamw_with_groups():
    model = network()
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.ndim <= 1], "weight_decay": 0.0, "lr": 0.1},
    ]
    step, *state = stepper(lambda _: optim.AdamW(groups, lr=0.01), model)
    return step, [data()] * 3, *state


@program
def rmsprop_and_adagrad_take_turns():
    model = network()
    optimizers = [optim.RMSprop(model.parameters(), lr=0.01), optim.Adagrad(model.parameters(), lr=0.05)]

    def step(x, y, k):
        optimizer = optimizers[k % 2]
        optimizer.zero_grad()
        nn.functional.smooth_l1_loss(model(x), y).backward()
        optimizer.step()

    x, y = data()
    return step, [(x, y, k) for k in range(4)], model, optimizers


@program
def clipped_by_norm():
    model = network()
    optimizer = optim.SGD(model.parameters(), lr=0.5)

    def step(x, y):
        optimizer.zero_grad()
        loss = (100 * tb.square(model(x) - y)).sum()
        loss.backward()
        norm = optim.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach(), norm

    return step, [data()] * 3, model


@program
def clipped_by_value():
    model = network()
    optimizer = optim.SGD(model.parameters(), lr=0.5)

    def step(x, y):
        (100 * tb.square(model(x) - y)).mean().backward()
        optim.clip_grad_value_(model.parameters(), 0.25)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    return step, [data()] * 3, model


@program
def cosine_schedule():
    model = network()
    optimizer = optim.SGD(model.parameters(), lr=0.2)
    schedule = optim.CosineAnnealingLR(optimizer, T_max=4)

    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss.detach(), schedule.get_last_lr()

    return step, [data()] * 5, model, schedule


@program
def warm_up_by_a_lambda():
    model = network()
    optimizer = optim.AdamW(model.parameters(), lr=0.1)
    schedule = optim.lr_scheduler.LambdaLR(optimizer, lambda k: min(1.0, (k + 1) / 3))

    def step(x, y):
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        return optimizer.param_groups[0]["lr"]

    return step, [data()] * 4, model


@program
def learning_rate_set_by_hand():
    step, model, optimizer = stepper(lambda p: optim.SGD(p, lr=0.1))

    def calls():
        for lr in (0.1, 0.05, 0.05, 0.2):
            for group in optimizer.param_groups:
                group["lr"] = lr
            yield data()

    return step, calls(), model, optimizer


@program
def classifier_with_labels():
    model = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 3))
    optimizer = optim.AdamW(model.parameters(), lr=0.05)

    def step(x, labels, smoothing=0.0):
        model.train()
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, labels, label_smoothing=smoothing)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        correct = (logits.argmax(axis=1) == labels).sum()
        return {"loss": loss.detach(), "correct": correct}

    x, _ = data()
    labels = tb.asarray([0, 2, 1, 1])
    return step, [(x, labels), (x, labels), (x, labels, 0.1), (x[:2], labels[:2])], model


@program(ulps=256, data_dependent=True)
def closure_for_lbfgs():
    w = nn.Parameter(tb.zeros(2))
    optimizer = optim.LBFGS([w], lr=0.5, max_iter=2)

    def step(target):
        def closure():
            optimizer.zero_grad()
            loss = tb.square(w - target).sum()
            loss.backward()
            return loss

        return optimizer.step(closure)

    return step, [(tb.ones(2),), (tb.ones(2),), (tb.arange(2.0),)], w


@program
def optimizer_in_the_backward_pass():
    model = nn.Linear(2, 3)
    optimizers = {p: optim.SGD([p], lr=0.1, momentum=0.9) for p in model.parameters()}

    def follow(p):
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(follow)

    def step(x):
        loss = nn.functional.gelu(model(x)).square().mean()
        loss.backward()
        return loss.detach()

    x, _ = data()
    return step, [(x,), (x * 2,), (x,)], model
