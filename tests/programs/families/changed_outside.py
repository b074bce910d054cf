"""Numbers that the code around a compiled call changes between calls: rates, weights, two players' turns."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import tensorbus as tb

from program import Family

program = Family(__name__)
nn = tb.nn
functional = nn.functional
temperature = 1.0


def rows(n, width=2):
    return tb.sin(tb.reshape(tb.arange(float(n * width)), (n, width)))


def pair():
    models = nn.ModuleList([nn.Linear(2, 1), nn.Linear(2, 1)])
    optimizers = [
        tb.optim.Adam(models[0].parameters(), lr=0.1),
        tb.optim.SGD(models[1].parameters(), lr=0.1, momentum=0.5),
    ]
    schedules = [
        tb.optim.lr_scheduler.CosineAnnealingLR(optimizers[0], 20),
        tb.optim.lr_scheduler.ExponentialLR(optimizers[1], 0.9),
    ]
    return models, optimizers, schedules


@program
def players_take_turns_with_schedules():
    models, optimizers, schedules = pair()

    def fn(turn, x):
        optimizers[turn].zero_grad()
        loss = tb.square(models[turn](x) - models[1 - turn](x).detach() - 1.0).mean()
        loss.backward()
        optimizers[turn].step()
        schedules[turn].step()
        return loss.detach()

    return fn, [(k % 2, rows(3) + k / 8) for k in range(6)], models, optimizers


@program
def players_are_given_as_arguments():
    models, optimizers, schedules = pair()

    def fn(optimizer, schedule, x):
        turn = 0 if optimizer is optimizers[0] else 1
        optimizer.zero_grad()
        loss = tb.square(models[turn](x) - models[1 - turn](x).detach() - 1.0).mean()
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss.detach()

    calls = [(optimizers[k % 2], schedules[k % 2], rows(3) + k / 8) for k in range(8)]
    return fn, calls, models, optimizers


@program
def schedules_step_between_calls():
    models, optimizers, schedules = pair()
    optimizer, model = optimizers[0], models[0]

    def fn(x, log):
        optimizer.zero_grad()
        loss = tb.square(model(x)).mean()
        loss.backward()
        optimizer.step()
        if log:
            return loss.detach(), schedules[0].last_epoch
        return loss.detach()

    def calls():
        for k in range(5):
            yield (rows(3) + k / 8, False)
            schedules[0].step()

    return fn, calls(), models, optimizers


@program
def weights_of_an_object_are_annealed():
    owner, model = SimpleNamespace(weight=1.0, other=3), nn.Linear(2, 2)

    def fn(x):
        return functional.softmax(model(x) * owner.weight, dim=-1) + owner.other

    def calls():
        for k in range(5):
            yield (rows(3),)
            owner.weight *= 0.5
            owner.other = k

    return fn, calls(), model


@dataclass
class Setting:
    scale: float
    times: int
    tag: str = "plain"


@program
def settings_are_made_anew():
    def fn(x, setting):
        for _ in range(setting.times):
            x = x * setting.scale
        return x + len(setting.tag)

    return fn, [(rows(2), Setting(0.5 + k, 1 + k // 3)) for k in range(6)]


@program
def a_global_is_changed_between_calls():
    def fn(x):
        return functional.softmax(x / temperature, dim=-1) if temperature < 3 else x * temperature

    def calls():
        global temperature
        for value in (1.0, 2.0, 2.5, 3.0, 4.0, 1.5):
            temperature = value
            yield (rows(3),)
        temperature = 1.0

    return fn, calls()


@program
def numbers_in_a_list_and_a_tuple():
    rates, state = [0.1, 0.2, 0.3, 0.4, 0.5], {"betas": (0.9, 0.99)}

    def fn(x):
        first, second = state["betas"]
        return x * rates[0] + rates[4] * first - second

    def calls():
        for k in range(5):
            yield (rows(2),)
            rates[k] = 1.0 + k
            state["betas"] = (0.5 + k, 0.25)

    return fn, calls(), rates, state


@program
def gradients_through_a_weight_that_is_annealed():
    model, owner = nn.Linear(2, 1), SimpleNamespace(weight=1.0)

    def fn(x):
        return (model(x) * owner.weight) ** 2

    def calls():
        for _ in range(5):
            model.zero_grad()
            loss = yield (rows(3),)
            if loss is not None:
                loss.sum().backward()
            owner.weight += 0.5

    return fn, calls(), model
