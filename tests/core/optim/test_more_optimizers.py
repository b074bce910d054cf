"""Optimizers beyond SGD and Adam against the rules of their papers in NumPy, and L-BFGS."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import optim

from error_bounds import assert_within, gamma

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(8)
START = RNG.standard_normal((3, 2))
GRADIENTS = [RNG.standard_normal((3, 2)) * 10.0**scale for scale in (0, -2, 1, 0, -1, 2, 0)]
UPDATE_ROUNDINGS = 24
"""Roundings in a row in one step of any of these optimizers."""


def rmsprop(
    lr: float, alpha: float, eps: float, decay: float, momentum: float, centered: bool
) -> Iterator[Array]:
    x, square, mean, buffer = START, np.zeros((3, 2)), np.zeros((3, 2)), np.zeros((3, 2))
    for g in GRADIENTS:
        g = g + decay * x
        square = alpha * square + (1 - alpha) * g * g
        mean = alpha * mean + (1 - alpha) * g
        step = g / (np.sqrt(square - mean * mean * centered) + eps)
        buffer = momentum * buffer + step
        x = x - lr * (buffer if momentum else step)
        yield x


def adagrad(lr: float, lr_decay: float, decay: float, start: float, eps: float) -> Iterator[Array]:
    x, total = START, np.full((3, 2), start)
    for t, g in enumerate(GRADIENTS):
        g = g + decay * x
        total = total + g * g
        x = x - lr / (1 + t * lr_decay) * g / (np.sqrt(total) + eps)
        yield x


def adadelta(lr: float, rho: float, eps: float, decay: float) -> Iterator[Array]:
    x, square, moved = START, np.zeros((3, 2)), np.zeros((3, 2))
    for g in GRADIENTS:
        g = g + decay * x
        square = rho * square + (1 - rho) * g * g
        step = np.sqrt(moved + eps) / np.sqrt(square + eps) * g
        moved = rho * moved + (1 - rho) * step * step
        x = x - lr * step
        yield x


def adamax(lr: float, betas: tuple[float, float], eps: float, decay: float) -> Iterator[Array]:
    x, mean, top = START, np.zeros((3, 2)), np.zeros((3, 2))
    for t, g in enumerate(GRADIENTS, 1):
        g = g + decay * x
        mean = betas[0] * mean + (1 - betas[0]) * g
        top = np.maximum(betas[1] * top, np.abs(g) + eps)
        x = x - lr / (1 - betas[0] ** t) * mean / top
        yield x


def nadam(lr: float, decay: float, decoupled: bool, slowing: float = 4e-3) -> Iterator[Array]:
    x, mean, square, product = START, np.zeros((3, 2)), np.zeros((3, 2)), 1.0
    for t, g in enumerate(GRADIENTS, 1):
        if decoupled:
            x = x * (1 - lr * decay)
        else:
            g = g + decay * x
        now, ahead = (0.9 * (1 - 0.5 * 0.96 ** (s * slowing)) for s in (t, t + 1))
        product *= now
        mean, square = 0.9 * mean + 0.1 * g, 0.999 * square + 0.001 * g * g
        looked = (1 - now) * g / (1 - product) + ahead * mean / (1 - product * ahead)
        x = x - lr * looked / (np.sqrt(square / (1 - 0.999**t)) + 1e-8)
        yield x


def radam(lr: float, betas: tuple[float, float], decay: float, decoupled: bool) -> Iterator[Array]:
    x, mean, square = START, np.zeros((3, 2)), np.zeros((3, 2))
    most = 2 / (1 - betas[1]) - 1
    for t, g in enumerate(GRADIENTS, 1):
        if decoupled:
            x = x * (1 - lr * decay)
        else:
            g = g + decay * x
        mean, square = betas[0] * mean + (1 - betas[0]) * g, betas[1] * square + (1 - betas[1]) * g * g
        step = mean / (1 - betas[0] ** t)
        length = most - 2 * t * betas[1] ** t / (1 - betas[1] ** t)
        if length > 5:
            rectified = (length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length)
            step = step * np.sqrt(rectified * (1 - betas[1] ** t)) / (np.sqrt(square) + 1e-8)
        x = x - lr * step
        yield x


def rprop(lr: float, etas: tuple[float, float], sizes: tuple[float, float]) -> Iterator[Array]:
    x, before, steps = START, np.zeros((3, 2)), np.full((3, 2), lr)
    for g in GRADIENTS:
        turn = np.sign(g * before)
        steps = np.clip(steps * np.choose(turn.astype(int) + 1, (etas[0], 1.0, etas[1])), *sizes)
        before = np.where(turn < 0, 0.0, g)
        x = x - np.sign(before) * steps
        yield x


def asgd(lr: float, lambd: float, alpha: float, decay: float) -> Iterator[Array]:
    x, rate = START, lr
    for t, g in enumerate(GRADIENTS, 1):
        x = x * (1 - lambd * rate) - rate * (g + decay * x)
        rate = lr / (1 + lambd * lr * t) ** alpha
        yield x


def adafactor(lr: float, power: float, eps: tuple[float, float], d: float, decay: float) -> Iterator[Array]:
    x, rows, columns = START, np.zeros((3, 1)), np.zeros((1, 2))
    for t, g in enumerate(GRADIENTS, 1):
        rate = max(eps[1], np.sqrt(np.mean(x * x))) * min(lr, t**-0.5)
        x = x * (1 - lr * decay)
        rows = rows + t**power * (np.mean(g * g, 1, keepdims=True) - rows)
        columns = columns + t**power * (np.mean(g * g, 0, keepdims=True) - columns)
        squares = rows @ columns / max(rows.mean(), eps[0])
        change = g / np.sqrt(np.maximum(squares, eps[0] ** 2))
        x = x - rate * change / max(1.0, np.sqrt(np.mean(change * change)) / d)
        yield x


CASES: dict[str, tuple[Callable[[list[tb.Tensor]], optim.Optimizer], Iterator[Array]]] = {
    "rmsprop": (optim.RMSprop, rmsprop(1e-2, 0.99, 1e-8, 0, 0, False)),
    "rmsprop settings": (
        lambda p: optim.RMSprop(p, 0.1, alpha=0.8, eps=1e-3, weight_decay=0.1, momentum=0.7, centered=True),
        rmsprop(0.1, 0.8, 1e-3, 0.1, 0.7, True),
    ),
    "adagrad": (optim.Adagrad, adagrad(1e-2, 0, 0, 0, 1e-10)),
    "adagrad settings": (
        lambda p: optim.Adagrad(
            p, 0.1, lr_decay=0.2, weight_decay=0.1, initial_accumulator_value=0.3, eps=1e-3
        ),
        adagrad(0.1, 0.2, 0.1, 0.3, 1e-3),
    ),
    "adadelta": (optim.Adadelta, adadelta(1.0, 0.9, 1e-6, 0)),
    "adadelta settings": (
        lambda p: optim.Adadelta(p, 0.5, rho=0.7, eps=1e-3, weight_decay=0.1), adadelta(0.5, 0.7, 1e-3, 0.1),
    ),
    "adamax": (optim.Adamax, adamax(2e-3, (0.9, 0.999), 1e-8, 0)),
    "adamax settings": (
        lambda p: optim.Adamax(p, 0.1, betas=(0.5, 0.8), eps=1e-3, weight_decay=0.1),
        adamax(0.1, (0.5, 0.8), 1e-3, 0.1),
    ),
    "nadam": (optim.NAdam, nadam(2e-3, 0, False)),
    "nadam decay": (lambda p: optim.NAdam(p, 0.1, weight_decay=0.2), nadam(0.1, 0.2, False)),
    "nadam decoupled": (
        lambda p: optim.NAdam(p, 0.1, weight_decay=0.2, momentum_decay=0.1, decoupled_weight_decay=True),
        nadam(0.1, 0.2, True, 0.1),
    ),
    "rprop": (optim.Rprop, rprop(1e-2, (0.5, 1.2), (1e-6, 50))),
    "rprop settings": (
        lambda p: optim.Rprop(p, 0.1, etas=(0.3, 2.0), step_sizes=(0.05, 0.3)),
        rprop(0.1, (0.3, 2.0), (0.05, 0.3)),
    ),
    "asgd": (optim.ASGD, asgd(1e-2, 1e-4, 0.75, 0)),
    "asgd settings": (
        lambda p: optim.ASGD(p, 0.1, lambd=0.2, alpha=0.5, weight_decay=0.1), asgd(0.1, 0.2, 0.5, 0.1),
    ),
    "adafactor": (optim.Adafactor, adafactor(1e-2, -0.8, (2.0**-52, 1e-3), 1.0, 0)),
    "adafactor settings": (
        lambda p: optim.Adafactor(p, 0.3, beta2_decay=-0.5, eps=(1e-3, 0.5), d=1.5, weight_decay=0.1),
        adafactor(0.3, -0.5, (1e-3, 0.5), 1.5, 0.1),
    ),
    "radam": (optim.RAdam, radam(1e-3, (0.9, 0.999), 0, False)),
    "radam settings": (
        lambda p: optim.RAdam(p, 0.1, betas=(0.8, 0.9), weight_decay=0.2), radam(0.1, (0.8, 0.9), 0.2, False),
    ),
    "radam decoupled": (
        lambda p: optim.RAdam(p, 0.1, weight_decay=0.2, decoupled_weight_decay=True),
        radam(0.1, (0.9, 0.999), 0.2, True),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_steps_equal_the_papers(name: str):
    make, reference = CASES[name]
    x = tb.asarray(START).requires_grad_()
    optimizer = make([x])
    size = np.abs(START).max()
    for k, (g, want) in enumerate(zip(GRADIENTS, reference, strict=True)):
        x.grad = tb.asarray(g)
        optimizer.step()
        size = max(size, np.abs(want).max())
        assert_within(x.detach().numpy(), want, gamma((k + 1) * UPDATE_ROUNDINGS, "float64") * size)
        if k == 2:  # going on from a state dict is going on
            again = make([x])
            again.load_state_dict(optimizer.state_dict())
            optimizer = again


def test_averaged_sgd_takes_the_mean_from_t0_on() -> None:
    x = tb.asarray(START).requires_grad_()
    optimizer = optim.ASGD([x], 0.1, lambd=0.0, t0=2)
    seen = []
    for g in GRADIENTS:
        x.grad = tb.asarray(g)
        optimizer.step()
        seen.append(x.detach().numpy())
        wanted = seen[-1] if len(seen) < 4 else np.mean(seen[3:], axis=0)
        np.testing.assert_allclose(optimizer.state[x]["ax"].numpy(), wanted, rtol=gamma(len(seen), "float64"))


def test_adafactor_keeps_all_squares_of_a_vector() -> None:
    x = tb.asarray(START[:, 0]).requires_grad_()
    optimizer = optim.Adafactor([x], 0.1)
    x.grad = tb.asarray(GRADIENTS[0][:, 0])
    optimizer.step()
    change = np.sign(GRADIENTS[0][:, 0])
    size = np.sqrt(np.mean(START[:, 0] ** 2))
    want = START[:, 0] - 0.1 * size * change
    assert_within(x.detach().numpy(), want, gamma(UPDATE_ROUNDINGS, "float64") * np.abs(START).max())


@pytest.mark.parametrize("shape", [(6, 3), (3, 6), (4, 4)])
@pytest.mark.parametrize("adjusted", [None, "match_rms_adamw"])
def test_muon_steps_are_orthogonal(shape: tuple[int, int], adjusted: str | None) -> None:
    start, g = RNG.standard_normal(shape), RNG.standard_normal(shape)
    x = tb.asarray(start).requires_grad_()
    optimizer = optim.Muon([x], 0.5, weight_decay=0.1, adjust_lr_fn=adjusted)
    x.grad = tb.asarray(g)
    optimizer.step()
    scale = 0.2 * max(shape) ** 0.5 if adjusted else max(1, shape[0] / shape[1]) ** 0.5
    step = (start * (1 - 0.05) - x.detach().numpy()) / (0.5 * scale)
    u, _, v = np.linalg.svd(g, full_matrices=False)
    singular = np.linalg.svd(step, compute_uv=False)
    assert np.all((singular > 0.6) & (singular < 1.3))
    assert np.all(np.abs(np.diag(u.T @ step @ v.T)) > 0.5)  # along the gradient's own axes


MUON_BY_PYTORCH = [  # PyTorch 2.13 after three steps, whose gradients are sin(k * (1.7 + 0.3 * step) + step)
    ((3, 2), None, True, [0.926767, 0.458765, -0.363141, -0.987026, -0.701909, 0.25252]),
    ((3, 2), None, False, [0.9603, 0.425334, -0.349542, -0.986793, -0.712178, 0.236246]),
    ((3, 2), "match_rms_adamw", True, [0.968583, 0.511457, -0.3967, -0.978557, -0.660299, 0.271818]),
    ((2, 4), None, False, [
        0.961578, 0.478964, -0.379792, -0.947871, -0.706694, 0.26036, 0.995595, 0.778578,
    ]),
    ((2, 4), "match_rms_adamw", True, [
        0.962306, 0.512332, -0.390432, -0.966776, -0.664261, 0.270349, 0.964251, 0.751904,
    ]),
]  # fmt: skip


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("shape", "adjusted", "nesterov", "want"), MUON_BY_PYTORCH)
def test_muon_goes_where_pytorch_goes(
    shape: tuple[int, int], adjusted: str | None, nesterov: bool, want: list[float], compiled: bool
) -> None:
    places = np.arange(shape[0] * shape[1]).reshape(shape)
    x = tb.asarray(np.cos(places).astype(np.float32)).requires_grad_()
    optimizer = optim.Muon([x], 0.05, weight_decay=0.1, adjust_lr_fn=adjusted, nesterov=nesterov)
    step = tb.compile(optimizer.step) if compiled else optimizer.step
    for turn in range(3):
        x.grad = tb.asarray(np.sin(places * (1.7 + 0.3 * turn) + turn).astype(np.float32))
        step()
    scale = 0.2 * max(shape) ** 0.5 if adjusted else max(1, shape[0] / shape[1]) ** 0.5
    ulp = 2**-8  # of bfloat16 at 1, about which the steps' numbers lie: each may be a few off
    assert np.abs(x.detach().numpy().ravel() - want).max() < 3 * 0.05 * scale * 8 * ulp


def test_state_of_another_shape_is_refused() -> None:
    x = tb.asarray(START).requires_grad_()
    optimizer = optim.Adafactor([x])
    x.grad = tb.asarray(GRADIENTS[0])
    optimizer.step()
    saved = optimizer.state_dict()
    saved["state"][0]["row_var"] = tb.zeros((2, 1))
    with pytest.raises(tb.StateError, match=r"'row_var' of parameter 0 has shape .*asks for"):
        optim.Adafactor([x]).load_state_dict(saved)


@pytest.mark.parametrize(
    "name", ["RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "Rprop", "ASGD", "Adafactor"]
)
def test_maximizing_is_minimizing_the_opposite(name: str):
    ends = []
    for sign, maximize in ((1, False), (-1, True)):
        x = tb.asarray(START).requires_grad_()
        optimizer = getattr(optim, name)([x], maximize=maximize)
        x.grad = tb.asarray(GRADIENTS[0] * sign)
        optimizer.step()
        ends.append(x.tolist())
    assert ends[0] == ends[1]


BAD = [
    (lambda p: optim.RMSprop(p, lr=-1.0), "RMSprop: lr must be a number >= 0"),
    (lambda p: optim.Adagrad(p, eps=-1.0), "Adagrad: eps"),
    (lambda p: optim.Adadelta(p, rho=1.5), "Adadelta: one_minus_rho"),
    (lambda p: optim.Adamax(p, betas=(1.0, 0.9)), "Adamax: betas"),
    (lambda p: optim.NAdam(p, momentum_decay=-1.0), "NAdam: momentum_decay"),
    (lambda p: optim.Rprop(p, etas=(0.5, 0.9)), "Rprop: etas"),
    (lambda p: optim.Rprop(p, step_sizes=(1.0, 0.5)), "Rprop: step_sizes"),
    (lambda p: optim.ASGD(p, lr=-1.0), "ASGD: lr"),
    (lambda p: optim.Adafactor(p, d=0.5), "Adafactor: d must be a number >= 1"),
    (lambda p: optim.Adafactor(p, beta2_decay=0.5), "Adafactor: beta2_decay"),
    (lambda p: optim.Muon([tb.ones(3).requires_grad_()]), "Muon: parameters have two axes"),
    (lambda p: optim.Muon([tb.ones((2, 2)).requires_grad_()], adjust_lr_fn="best"), "Muon: adjust_lr_fn"),
    (lambda p: optim.LBFGS(p, line_search_fn="golden"), "None or 'strong_wolfe'"),
    (lambda p: optim.LBFGS([{"params": p}, {"params": [tb.ones((1,)).requires_grad_()]}]), "one group"),
    (lambda p: optim.LBFGS(p).step(), "needs a closure"),
]


@pytest.mark.parametrize(("attempt", "text"), BAD, ids=[str(k) for k in range(len(BAD))])
def test_settings_out_of_range(attempt: Callable[[Any], Any], text: str):
    with pytest.raises(tb.ArgumentError, match=text):
        attempt([tb.ones((2,)).requires_grad_()])


def banana(x: tb.Tensor) -> tb.Tensor:
    return ((1 - x[:-1]) ** 2).sum() + 10 * ((x[1:] - x[:-1] ** 2) ** 2).sum()


@pytest.mark.parametrize(
    ("settings", "want"),
    [  # where PyTorch 2.13 is after two calls
        (
            {"lr": 0.05, "max_iter": 5, "history_size": 2},
            [0.367836525, -1.082277626, 1.302608625, 1.93646052],
        ),
        (
            {"line_search_fn": "strong_wolfe", "max_iter": 6},
            [-0.087340323, 0.07669887, 0.12422561, -0.099455613],
        ),
    ],
)
def test_lbfgs_goes_where_pytorch_goes(settings: dict[str, Any], want: list[float]):
    x = tb.asarray(np.array([0.5, -1.2, 1.3, 2.0])).requires_grad_()
    optimizer = optim.LBFGS([x], **settings)
    for _ in range(2):
        optimizer.step(closure_of(optimizer, x))
    # So many digits were printed, and what is rounded before grows tenfold along the way.
    printed = 0.5e-9 + 10 * gamma(12 * 64, "float64")
    assert_within(x.detach().numpy(), want, printed)


def closure_of(optimizer: optim.Optimizer, x: tb.Tensor) -> Callable[[], tb.Tensor]:
    def closure() -> tb.Tensor:
        optimizer.zero_grad()
        loss = banana(x)
        loss.backward()
        return loss

    return closure


def test_lbfgs_finds_the_minimum():
    x = tb.asarray(np.array([-1.0, 2.0, 0.5])).requires_grad_()
    optimizer = optim.LBFGS([x], max_iter=200, line_search_fn="strong_wolfe")
    first = optimizer.step(closure_of(optimizer, x))
    assert first.item() == 137.5
    assert banana(x).item() < optimizer.param_groups[0]["tolerance_change"]  # where the last step was shorter


def test_clipping_values():
    x = tb.asarray([1.0, 1.0]).requires_grad_()
    x.grad = tb.asarray([5.0, -0.25])
    optim.clip_grad_value_([x, tb.ones((1,)).requires_grad_()], 0.5)
    assert x.grad.tolist() == [0.5, -0.25]
    with pytest.raises(tb.ArgumentError, match="clip_value must be >= 0"):
        optim.clip_grad_value_(x, -1.0)
