"""Writes to what a derivative needs raise in the backward pass, by whatever way, and no other write does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import Tensor

F = tb.nn.functional


def _leaf(device: str) -> Tensor:
    return tb.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device=device).requires_grad_()


def _under_no_grad(write: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    def unrecorded(x: Tensor) -> None:
        with tb.no_grad():
            write(x)

    return unrecorded


def _augmented(x: Tensor) -> None:
    x *= 2.0


def _rows(x: Tensor) -> None:
    for row in x:
        row += 1.0


def _step(x: Tensor) -> None:
    p = x.detach().requires_grad_()
    p.grad = tb.ones_like(p)
    tb.optim.SGD([p], lr=0.5).step()


WRITES: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "add_": (lambda x: x.add_(1), "add_"),
    "fill_": (lambda x: x.fill_(7), "fill_"),
    "zero_": (lambda x: x.zero_(), "zero_"),
    "copy_": (lambda x: x.copy_(tb.ones_like(x)), "copy_"),
    "augmented": (_augmented, r"\*="),
    "an element": (lambda x: x.__setitem__((0, 0), 1.0), "an assignment to elements"),
    "all elements": (lambda x: x.__setitem__(..., tb.ones_like(x)), "an assignment to elements"),
    "a mask": (lambda x: x.__setitem__(x > 2, 0.0), "an assignment to elements"),
    "masked_fill_": (lambda x: x.masked_fill_(x > 2, 0.0), "masked_fill_"),
    "relu_": (lambda x: F.relu(x, inplace=True), "relu_"),
    "a view": (lambda x: x[0].mul_(2), "mul_"),
    "a view of a view": (lambda x: x.T[1][:1].zero_(), "zero_"),
    "a flat view": (lambda x: x.view(-1).__setitem__(3, 0.0), "an assignment to elements"),
    "rows": (_rows, r"\+="),
    "detached": (lambda x: x.detach().add_(1), "add_"),
    "no_grad": (_under_no_grad(lambda x: x.sub_(1)), "sub_"),
    "no_grad detached": (_under_no_grad(lambda x: x.detach()[0].sub_(1)), "sub_"),
    "an optimizer": (_step, "the step of SGD"),
    "rebind": (_under_no_grad(lambda x: x.rebind(tb.ones_like(x))), "rebind"),
    "compiled": (lambda x: tb.compile(_augmented)(x.detach()), r"\*="),
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("saved", ["with history", "a leaf", "without", "a view of it", "by its base"])
def test_each_way_of_writing_raises(device: str, saved: str, name: str) -> None:
    write, by = WRITES[name]
    x, y = _leaf(device), _leaf(device)
    base: Tensor = x
    if saved == "with history":
        base = x * 1.0
        z = base * base
    elif saved == "a leaf":
        z, write = x * x, _under_no_grad(write)
    elif saved == "without":
        base = tb.ones_like(y)
        z = base * y
    elif saved == "a view of it":
        base = x * 1.0
        z = base.mT * base.mT
    else:
        whole = x * 1.0
        base = whole[:]
        z = whole * whole
    write(base)
    with pytest.raises(tb.AutogradError, match=f"multiply's derivative needs its .*, which {by} has over"):
        z.sum().backward()


SAVES: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], bool, bool]] = {
    "multiply": (lambda x, c: x * c, False, True),
    "multiply both": (lambda x, c: x * x, True, False),
    "matmul": (lambda x, c: x @ c.mT, False, True),
    "where": (lambda x, c: tb.where(c > 2, x, 0.0), False, False),
    "add": (lambda x, c: x + c, False, False),
    "exp": (lambda x, c: tb.exp(x), False, False),
    "sigmoid": (lambda x, c: tb.sigmoid(x), False, False),
    "tanh": (lambda x, c: tb.tanh(x), False, False),
    "sqrt": (lambda x, c: tb.sqrt(x), False, False),
    "reciprocal": (lambda x, c: tb.reciprocal(x), False, False),
    "relu": (lambda x, c: F.relu(x), False, False),
    "softmax": (lambda x, c: tb.softmax(x, -1), False, False),
    "log_softmax": (lambda x, c: F.log_softmax(x, -1), False, False),
    "log": (lambda x, c: tb.log(x), True, False),
    "sin": (lambda x, c: tb.sin(x), True, False),
    "abs": (lambda x, c: tb.abs(x), True, False),
    "power": (lambda x, c: x**2.0, True, False),
    "clone": (lambda x, c: x.clone() * x.clone() * c.clone(), False, False),
    "view of a clone": (lambda x, c: x.clone()[0] * c.clone()[0], False, False),
    "copied reshape": (lambda x, c: (x.mT.reshape((-1,)) ** 2.0) * c.mT.reshape((-1,)), False, False),
    "reshape": (lambda x, c: x.reshape((-1,)) ** 2.0, True, False),
    "cast": (lambda x, c: x.to(tb.float16) * c.to(tb.float16), False, False),
    "sum": (lambda x, c: x.sum(0) * c.sum(0), False, False),
    "copied into": (lambda x, c: tb.zeros_like(x).copy_(x) ** 2.0, False, False),
    "concat": (lambda x, c: tb.concat((x, c)), False, False),
    "gather": (lambda x, c: x[:, tb.asarray([0, 1], device=x.device)], False, False),
}
"""How values are saved, and whether a write to ``x``, or to ``c``, which has no history, is an error."""


@pytest.mark.parametrize("name", SAVES)
def test_only_what_the_derivative_reads_must_not_be_written(device: str, name: str) -> None:
    function, of_x, of_c = SAVES[name]
    for at, raises in ((0, of_x), (1, of_c)):
        x, c = _leaf(device) * 1.0, tb.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device=device)
        z = function(x, c).sum()
        (x, c)[at].add_(1)
        if raises:
            with pytest.raises(tb.AutogradError, match=r"operand, .*, which add_ has overwritten since"):
                z.backward()
        else:
            z.backward()


@pytest.mark.parametrize("name", ["exp", "sigmoid", "tanh", "sqrt", "reciprocal", "relu", "softmax"])
def test_results_that_derivatives_read_must_not_be_written(device: str, name: str) -> None:
    y = SAVES[name][0](_leaf(device), _leaf(device))
    z = y * 2.0
    y[0].add_(1)
    text = f"{name}'s derivative needs its result, a float32 tensor .*, which add_ has overwritten since"
    with pytest.raises(tb.AutogradError, match=text):
        z.sum().backward()
    y = SAVES["sin"][0](_leaf(device), _leaf(device))
    y.add_(1)
    y.sum().backward()


def test_a_change_keeps_what_it_computes_from(device: str) -> None:
    x = _leaf(device)
    y, c = x * 1.0, tb.ones_like(x)
    y.mul_(x)
    y *= y
    y.pow_(2.0)
    y[0] = x[0] * 2.0
    c *= x
    c += 1.0
    F.relu(y, inplace=True)
    (y + c).sum().backward()
    assert x.grad is not None
    assert x.grad[:, 0].tolist() == [2.0 + 1.0, 8 * 4.0**7 + 1.0]


def test_training_loops_are_legal(device: str) -> None:
    model = tb.nn.Sequential(
        tb.nn.Conv2d(1, 2, 3, padding=1), tb.nn.BatchNorm2d(2), tb.nn.ReLU(inplace=True),
        tb.nn.Flatten(), tb.nn.Linear(32, 3), tb.nn.Dropout(0.5, inplace=True),
    ).to(device)  # fmt: skip
    optimizer = tb.optim.Adam(model.parameters())
    x = tb.ones((2, 1, 4, 4), device=device)
    for _ in range(2):
        for _ in range(2):  # gradients add up
            out = model(x)
            out += out * 0.5
            out.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        model.eval()
        model(x).sum().backward()
        model.train()


def test_a_history_from_before_a_step_is_gone(device: str) -> None:
    model = tb.nn.Sequential(tb.nn.Linear(2, 3), tb.nn.Linear(3, 1)).to(device)
    optimizer = tb.optim.SGD(model.parameters(), lr=0.1)
    loss = model(tb.ones((4, 2), device=device)).sum()
    loss.backward(retain_graph=True)
    loss.backward(retain_graph=True)
    optimizer.step()
    with pytest.raises(tb.AutogradError, match="which the step of SGD has overwritten since"):
        loss.backward()


def test_two_optimizers(device: str) -> None:
    first, second = (tb.nn.Linear(2, 2).to(device) for _ in range(2))
    optimizer = tb.optim.SGD(second.parameters(), lr=0.1)
    image = first(tb.ones((1, 2), device=device))
    second(image.detach()).sum().backward()
    optimizer.step()
    second(image).sum().backward()
    judged = second(first(tb.ones((1, 2), device=device))).sum()
    optimizer.step()
    with pytest.raises(tb.AutogradError, match="which the step of SGD has overwritten since"):
        judged.backward()


def test_derivatives_of_derivatives(device: str) -> None:
    x, c = _leaf(device), tb.ones((2, 3), device=device)
    (dx,) = tb.grad(((x * c) ** 3.0).sum(), x, create_graph=True)
    c.add_(1)
    with pytest.raises(tb.AutogradError, match="multiply's derivative needs"):
        dx.sum().backward()


def test_several_results(device: str) -> None:
    x = _leaf(device)
    q, r = tb.linalg.qr(x.mT)
    q.zero_()
    with pytest.raises(tb.AutogradError, match="qr's derivative needs its results, which zero_ has over"):
        r.sum().backward()


class Squared(tb.autograd.Function):
    """Saves what it was given."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, c: Tensor) -> Tensor:
        ctx.save_for_backward(x, c)
        return x * x * c

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, c = ctx.saved_tensors
        return g * 2 * x * c, None


def test_functions(device: str) -> None:
    for at in range(2):
        x, c = _leaf(device) * 1.0, tb.ones((2, 3), device=device)
        z = Squared.apply(x, c)
        z.add_(1)
        (x, c)[at].add_(1)
        text = f"Squared.backward needs saved tensor {at}, a float32 tensor .*, which add_ has over"
        with pytest.raises(tb.AutogradError, match=text):
            z.sum().backward()


def test_compiled_functions(device: str) -> None:
    weight = tb.nn.Parameter(tb.ones((3, 3), device=device))

    def inside(x: Tensor) -> None:
        y = x @ weight
        z = (y * y).sum()
        y.add_(1)
        z.backward()

    def forward(x: Tensor) -> Tensor:
        return tb.exp(x @ weight).sum()

    def later(x: Tensor) -> Tensor:
        z = (x * weight).sum()
        x.add_(1)
        return z

    compiled, compiled_later, run = tb.compile(forward), tb.compile(later), tb.compile(inside)
    for _ in range(3):
        with pytest.raises(tb.AutogradError, match="multiply's derivative needs"):
            run(tb.ones((3, 3), device=device))
        x = tb.ones((3, 3), device=device)
        z = compiled_later(x)
        with pytest.raises(tb.AutogradError, match="multiply's derivative needs"):
            z.backward()
        z = compiled(x)
        x.add_(1)
        with pytest.raises(tb.AutogradError, match="matmul's derivative needs its first operand"):
            z.backward()
        z = compiled(tb.ones((3, 3), device=device))
        with tb.no_grad():
            weight.mul_(1.0)
        z.backward()
        z = compiled(tb.ones((3, 3), device=device).requires_grad_())
        with tb.no_grad():
            weight.mul_(1.0)
        with pytest.raises(tb.AutogradError, match="matmul's derivative needs its second operand"):
            z.backward()


def test_a_compiled_step_writes(device: str) -> None:
    weight = tb.nn.Parameter(tb.ones((2, 2), device=device))
    optimizer = tb.optim.SGD([weight], lr=0.5)
    step = tb.compile(lambda: optimizer.step())
    for _ in range(3):
        (weight * weight).sum().backward()
        read, unread = (weight * weight).sum(), (weight * 2.0).sum()
        step()
        with pytest.raises(tb.AutogradError, match=r"which (the step of SGD|a compiled function) has over"):
            read.backward()
        unread.backward()
