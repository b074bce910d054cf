"""Programs of two devices: what is carried between them is part of the program."""

from __future__ import annotations

import math

import tensorbus as tb

from program import Family

program = Family(__name__)
nn = tb.nn
OTHER = "refdev:1"


def ramp(*shape):
    return tb.reshape(tb.arange(float(math.prod(shape))), shape) * 0.1


@program
def gradients_across_devices():
    w = ramp(3).requires_grad_()

    def fn(x):
        w.grad = None
        far = (w * x).to(OTHER)
        loss = (far * far).sum().to("cpu")
        loss.backward()
        return loss.detach().to(w.device), w.grad

    return fn, [(ramp(3) + k,) for k in range(4)], w


@program
def pipeline_over_two_devices():
    a, b = nn.Linear(3, 3), nn.Linear(3, 2).to(OTHER)
    opt = tb.optim.SGD([*a.parameters(), *b.parameters()], lr=0.1)

    def step(x):
        opt.zero_grad()
        loss = b(tb.relu(a(x)).to(OTHER)).square().mean()
        loss.backward()
        opt.step()
        return loss.detach()

    return (
        step,
        [(ramp(2, 3) + k,) for k in range(4)],
    )


@program
def constants_made_on_another_device():
    def fn(x):
        t = tb.arange(3.0, device=OTHER) * 2
        return x + t.to(x), t

    return fn, [(ramp(3) + k,) for k in range(4)]


@program
def results_of_two_devices():
    def fn(x, y):
        return x * 2, y + 1

    return fn, [(ramp(3) + k, (ramp(3) * k).to(OTHER)) for k in range(4)]
