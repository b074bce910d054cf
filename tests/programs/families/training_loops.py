"""What people put around training steps: accumulation, averages, two models, loops, classes."""

from __future__ import annotations

import copy

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


@program
def accumulated_over_micro_batches():
    model = network()
    optimizer = optim.Adam(model.parameters(), lr=0.05)

    def step(batches):
        optimizer.zero_grad()
        total = 0.0
        for x, y in batches:
            loss = nn.functional.mse_loss(model(x), y) / len(batches)
            loss.backward()
            total = total + loss.detach()
        optimizer.step()
        return total

    x, y = data()
    halves = [(x[:2], y[:2]), (x[2:], y[2:])]
    return step, [(halves,), (halves[::-1],), (halves[:1],), (halves,)], model


@program
def update_every_second_call():
    model = network()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    micro = 0

    def step(x, y):
        nonlocal micro
        nn.functional.mse_loss(model(x), y).backward()
        micro += 1
        if micro % 2 == 0:
            optimizer.step()
            optimizer.zero_grad()
        return micro

    return step, [data()] * 5, model


@program
def average_of_the_weights():
    model = network()
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    def step(x, y, decay=0.9):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        with tb.no_grad():
            for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
                slow *= decay
                slow += (1 - decay) * fast
        return average(x)

    return step, [data(), data(), (*data(), 0.5)], model, average


@program
def generator_and_discriminator():
    maker, judge = nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    for_maker, for_judge = optim.Adam(maker.parameters(), lr=0.05), optim.Adam(judge.parameters(), lr=0.05)
    bce = nn.functional.binary_cross_entropy_with_logits

    def step(real):
        noise = tb.randn(real.shape[0], 2)
        fake = maker(noise)
        for_judge.zero_grad()
        judged = judge(real), judge(fake.detach())
        loss = bce(judged[0], tb.ones_like(judged[0])) + bce(judged[1], tb.zeros_like(judged[1]))
        loss.backward()
        for_judge.step()
        for_maker.zero_grad()
        score = judge(fake)
        bce(score, tb.ones_like(score)).backward()
        for_maker.step()
        return loss.detach()

    x, _ = data()
    return step, [(x,), (x[:2],), (x,)], maker, judge


@program
def critic_that_is_frozen_in_turns():
    maker, judge = nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    makers, judges = (tb.optim.RMSprop(m.parameters(), lr=0.01) for m in (maker, judge))

    def step(real, noise, turn):
        judges.zero_grad()
        with tb.no_grad():
            result = maker(noise)
        gap = judge(result).mean() - judge(real).mean()
        gap.backward()
        judges.step()
        with tb.no_grad():
            for p in judge.parameters():
                p.clamp_(-0.2, 0.2)
        if turn % 3 == 2:
            judge.requires_grad_(False)
            makers.zero_grad()
            (-judge(maker(noise)).mean()).backward()
            makers.step()
            judge.requires_grad_(True)
        return gap.detach()

    real = tb.reshape(tb.arange(12.0), (4, 3)) * 0.1
    return step, [(real, tb.ones((4, 2)) * 0.3 * k, k) for k in range(6)], maker, judge


@program
def training_or_not_by_an_argument():
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.25), nn.Tanh(), nn.Linear(4, 1))
    optimizer = tb.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def run(x, training):
        model.train(training)
        with tb.set_grad_enabled(training):
            loss = model(x).square().mean()
        if training:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss.detach(), model.training

    x = tb.reshape(tb.arange(12.0), (4, 3)) * 0.1
    return run, [(x + k / 4, k % 3 != 2) for k in range(7)], model


@program
def weights_written_by_hand():
    w, b = tb.zeros((2, 1)).requires_grad_(), tb.zeros(1).requires_grad_()

    def step(x, y, lr):
        loss = tb.square(x @ w + b - y).mean()
        loss.backward()
        with tb.no_grad():
            for p in (w, b):
                p -= lr * p.grad
                p.grad = None
        return loss.detach()

    x, y = data()
    return step, [(x, y, 0.1), (x, y, 0.1), (x, y, 0.2)], w, b


@program(data_dependent=True)
def stops_early():
    model = nn.Linear(2, 1)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    best, patience = float("inf"), 0

    def fit(x, y, epochs):
        nonlocal best, patience
        losses = []
        for _ in range(epochs):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if losses[-1] < best * 0.9:
                best, patience = losses[-1], 0
            else:
                patience += 1
            if patience >= 2:
                break
        return losses

    x, y = data()
    return fit, [(x, y, 4), (x, y, 3)], model


@program
def an_epoch_over_batches():
    model, seen = network(), []
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    def epoch(x, y, size):
        total = tb.zeros(())
        for k in range(0, x.shape[0], size):
            a, b = x[k : k + size], y[k : k + size]
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(a), b)
            loss.backward()
            optimizer.step()
            total += loss.detach() * a.shape[0]
            seen.append(a.shape[0])
        return total / x.shape[0]

    x, y = data()
    return epoch, [(x, y, 2), (x, y, 3), (x, y, 2)], model, seen


@program(data_dependent=True)
def trainer_class():
    class Trainer:
        def __init__(self, model, lr):
            self.model, self.optimizer = model, optim.Adam(model.parameters(), lr=lr)
            self.history = {"loss": []}

        def fit(self, x, y, epochs=1):
            for _ in range(epochs):
                self.optimizer.zero_grad()
                loss = self.loss(x, y)
                loss.backward()
                self.optimizer.step()
                self.history["loss"].append(float(loss))
            return self

        def loss(self, x, y):
            return nn.functional.huber_loss(self.model(x), y)

    trainer = Trainer(network(), 0.05)
    x, y = data()
    return trainer.fit, [(x, y), (x, y, 2), (x[:3], y[:3])], trainer


@program
def evaluation_between_steps():
    model = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4, 1))
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    def run(x, y, train):
        model.train(train)
        if not train:
            with tb.no_grad():
                return nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    x, y = data()
    return run, [(x, y, True), (x, y, False), (x, y, True), (x, y, False)], model
