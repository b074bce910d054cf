"""Optimizers against the update rules of their papers in NumPy; groups, state dicts, errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import nn, optim

from error_bounds import assert_within, gamma

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(5)
START = RNG.standard_normal((3, 2))
GRADIENTS = [RNG.standard_normal((3, 2)) * 10.0**scale for scale in (0, -3, 1, 0, -1, 2)]


def sgd(
    lr: float, momentum: float = 0.0, dampening: float = 0.0, decay: float = 0.0, nesterov: bool = False
) -> Iterator[Array]:
    x, buffer = START, None
    for g in GRADIENTS:
        g = g + decay * x
        if momentum:
            buffer = g if buffer is None else momentum * buffer + (1 - dampening) * g
            g = g + momentum * buffer if nesterov else buffer
        x = x - lr * g
        yield x


def adam(
    lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, decay: float = 0.0,
    decoupled: bool = False, amsgrad: bool = False,
) -> Iterator[Array]:  # fmt: skip
    x, m, v, top = START, np.zeros((3, 2)), np.zeros((3, 2)), np.zeros((3, 2))
    for t, g in enumerate(GRADIENTS, 1):
        if decoupled:
            x = x * (1 - lr * decay)
        else:
            g = g + decay * x
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g * g
        top = np.maximum(top, v)
        second = (top if amsgrad else v) / (1 - betas[1] ** t)
        x = x - lr * (m / (1 - betas[0] ** t)) / (np.sqrt(second) + eps)
        yield x


CASES: dict[str, tuple[Callable[[list[tb.Tensor]], optim.Optimizer], Iterator[Array]]] = {
    "sgd": (lambda p: optim.SGD(p, lr=0.1), sgd(0.1)),
    "sgd momentum": (lambda p: optim.SGD(p, lr=0.1, momentum=0.9), sgd(0.1, 0.9)),
    "sgd dampening decay": (
        lambda p: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.2),
        sgd(0.1, 0.9, 0.3, 0.2),
    ),
    "sgd nesterov": (
        lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.2, nesterov=True),
        sgd(0.1, 0.9, 0.0, 0.2, True),
    ),
    "adam": (optim.Adam, adam()),
    "adam settings": (
        lambda p: optim.Adam(p, lr=0.1, betas=(0.7, 0.8), eps=1e-2, weight_decay=0.3),
        adam(0.1, (0.7, 0.8), 1e-2, 0.3),
    ),
    "adam without first moment": (lambda p: optim.Adam(p, betas=(0.0, 0.9)), adam(betas=(0.0, 0.9))),
    "adam amsgrad": (lambda p: optim.Adam(p, lr=0.1, amsgrad=True), adam(0.1, amsgrad=True)),
    "adamw": (optim.AdamW, adam(decay=1e-2, decoupled=True)),
    "adamw settings": (
        lambda p: optim.AdamW(p, lr=0.1, weight_decay=0.3, amsgrad=True),
        adam(0.1, decay=0.3, decoupled=True, amsgrad=True),
    ),
    "adamw capturable": (
        lambda p: optim.AdamW(p, lr=0.1, capturable=True),
        adam(0.1, decay=1e-2, decoupled=True),
    ),
}

UPDATE_ROUNDINGS = 24
"""Roundings in a row in one step of any of these optimizers; the numbers of a capturable one are float32."""


@pytest.mark.parametrize("name", CASES)
def test_steps_equal_the_papers(name: str):
    make, reference = CASES[name]
    x = tb.asarray(START).requires_grad_()
    optimizer = make([x])
    numbers, size = "float32" if "capturable" in name else "float64", np.abs(START).max()
    for k, (g, want) in enumerate(zip(GRADIENTS, reference, strict=True)):
        x.grad = tb.asarray(g)
        optimizer.step()
        size = max(size, np.abs(want).max())
        assert_within(x.detach().numpy(), want, gamma((k + 1) * UPDATE_ROUNDINGS, numbers) * size)
    assert x.is_leaf
    assert x.requires_grad


@pytest.mark.parametrize(
    "make", [lambda p: optim.SGD(p, 0.1, maximize=True), lambda p: optim.Adam(p, maximize=True)]
)
def test_maximize_goes_uphill(make: Callable[[list[tb.Tensor]], optim.Optimizer]):
    x = tb.asarray([1.0]).requires_grad_()
    (x * 3).sum().backward()
    make([x]).step()
    assert float(x) > 1.0


def test_low_precision_parameters_keep_their_dtype():
    for dtype in (tb.bfloat16, tb.float16):
        for capturable in (False, True):
            x = tb.ones((4,), dtype=dtype).requires_grad_()
            optimizer = optim.AdamW([x], lr=0.1, eps=1e-3, capturable=capturable)
            (x * x).sum().backward()
            optimizer.step()
            assert x.dtype is dtype
            assert 0.85 < x.tolist()[0] < 0.92


def test_groups_have_settings_of_their_own():
    a, b, c = (tb.ones((1,)).requires_grad_() for _ in range(3))
    groups: list[dict[str, Any]] = [{"params": [a]}, {"params": b, "lr": 1.0}]
    optimizer = optim.SGD(groups, lr=0.25)
    optimizer.add_param_group({"params": [("c", c)], "lr": 0.5})
    assert optimizer.param_groups[2]["param_names"] == ["c"]
    (a + b + c).sum().backward()
    optimizer.step()
    assert [x.item() for x in (a, b, c)] == [0.75, 0.0, 0.5]
    assert "lr: 0.25" in repr(optimizer)


def test_parameters_without_gradients_stay():
    a, b = tb.ones((1,)).requires_grad_(), tb.ones((1,)).requires_grad_()
    optimizer = optim.AdamW([a, b], lr=0.1)
    a.sum().backward()
    optimizer.step()
    assert b.item() == 1.0
    assert b not in optimizer.state
    optimizer.zero_grad(set_to_none=False)
    assert a.grad is not None
    assert a.grad.item() == 0.0
    optimizer.zero_grad()
    assert a.grad is None


def test_step_runs_a_closure_with_gradients():
    x = tb.asarray([2.0]).requires_grad_()
    optimizer = optim.SGD([x], lr=0.25)

    def closure() -> tb.Tensor:
        optimizer.zero_grad()
        loss: tb.Tensor = (x * x).sum()
        loss.backward()
        return loss

    with tb.no_grad():
        assert optimizer.step(closure).item() == 4.0
    assert x.item() == 1.0


@pytest.mark.parametrize(
    "make",
    [
        lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: optim.AdamW(p, lr=0.1, amsgrad=True),
        lambda p: optim.Adam(p, lr=0.1, capturable=True),
    ],
)
def test_going_on_from_a_state_dict_is_going_on(make: Callable[[Any], optim.Optimizer], tmp_path: Any):
    def steps(x: tb.Tensor, optimizer: optim.Optimizer, gradients: list[Array]) -> None:
        for g in gradients:
            x.grad = tb.asarray(g)
            optimizer.step()

    whole = tb.asarray(START).requires_grad_()
    steps(whole, make([whole]), GRADIENTS)
    half = tb.asarray(START).requires_grad_()
    first = make([half])
    steps(half, first, GRADIENTS[:3])
    state = first.state_dict()
    tb.save(state, tmp_path / "state.safetensors")
    steps(half, first, GRADIENTS[3:])
    assert half.tolist() == whole.tolist()
    for saved in (state, tb.load(tmp_path / "state.safetensors")):
        again = tb.asarray(START).requires_grad_()
        steps(again, make([again]), GRADIENTS[:3])
        second = make([again])
        second.param_groups[0]["lr"] = 77.0
        second.load_state_dict(saved)
        assert second.param_groups[0]["lr"] == 0.1
        steps(again, second, GRADIENTS[3:])
        assert again.tolist() == whole.tolist()


def test_a_state_dict_that_does_not_fit_changes_nothing():
    x, y = tb.ones((2,)).requires_grad_(), tb.ones((3,)).requires_grad_()
    optimizer = optim.Adam([x])
    x.sum().backward()
    optimizer.step()
    before = optimizer.state_dict()
    other = optim.Adam([y])
    y.sum().backward()
    other.step()
    with pytest.raises(tb.StateError, match=r"'exp_avg' of parameter 0 has shape \(3,\)"):
        optimizer.load_state_dict(other.state_dict())
    with pytest.raises(tb.StateError, match=r"groups of \[2\] parameters, and the optimizer of \[1\]"):
        optimizer.load_state_dict(optim.Adam([x, y]).state_dict())
    with pytest.raises(tb.StateError, match="'state' and 'param_groups'"):
        optimizer.load_state_dict({})
    wrong = {**before, "state": {5: before["state"][0]}}
    with pytest.raises(tb.StateError, match="parameter 5"):
        optimizer.load_state_dict(wrong)
    after = optimizer.state_dict()
    assert after["param_groups"] == before["param_groups"]
    assert after["state"][0]["exp_avg"].tolist() == before["state"][0]["exp_avg"].tolist()


X = tb.ones((1,)).requires_grad_()
ERRORS: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: optim.SGD([], lr=0.1), tb.ArgumentError, "no parameters"),
    (lambda: optim.SGD(X, lr=0.1), TypeError, "put it in a list"),
    (lambda: optim.SGD([3.0], lr=0.1), TypeError, "parameter 0 is a float"),
    (lambda: optim.SGD([X, X], lr=0.1), tb.ArgumentError, "already given"),
    (lambda: optim.SGD([X * 2], lr=0.1), tb.ArgumentError, "only leaves"),
    (lambda: optim.SGD([X], lr=-0.1), tb.ArgumentError, "lr must be a number >= 0, got -0.1"),
    (lambda: optim.SGD([X], lr=float("nan")), tb.ArgumentError, "got nan"),
    (lambda: optim.SGD([X], lr="fast"), tb.ArgumentError, "got 'fast'"),
    (lambda: optim.SGD([X], momentum=-1), tb.ArgumentError, "momentum"),
    (lambda: optim.SGD([X], nesterov=True), tb.ArgumentError, "nesterov needs momentum"),
    (lambda: optim.Adam([X], betas=(0.9, 1.0)), tb.ArgumentError, r"\[0, 1\), got \(0.9, 1.0\)"),
    (lambda: optim.AdamW([X], eps=-1e-8), tb.ArgumentError, "AdamW: eps"),
    (lambda: optim.AdamW([{"lr": 0.1}]), TypeError, "'params'"),
    (lambda: optim.AdamW([{"params": [X], "lr": -1.0}]), tb.ArgumentError, "lr must be"),
]


@pytest.mark.parametrize(("attempt", "kind", "text"), ERRORS, ids=[f"{k}" for k in range(len(ERRORS))])
def test_errors_say_what_is_wrong(attempt: Callable[[], Any], kind: type[Exception], text: str):
    with pytest.raises(kind, match=text):
        attempt()


def test_a_network_learns():
    tb.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = optim.AdamW(model.parameters(), lr=0.05)
    x = tb.randn(64, 2)
    y = (x[:, 0] * x[:, 1] > 0).to(tb.int64)
    for _ in range(60):
        optimizer.zero_grad()
        loss = nn.CrossEntropyLoss()(model(x), y)
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.15


@pytest.mark.parametrize("steps", [0, 2])
@pytest.mark.parametrize("kind", [optim.AdamW, optim.Adam, lambda p: optim.SGD(p, momentum=0.9)])
def test_a_step_that_fails_changes_nothing(kind: Callable[[Any], optim.Optimizer], steps: int) -> None:
    parameters = [nn.Parameter(tb.asarray([1.0, 2.0])) for _ in range(3)]
    optimizer = kind(parameters)
    for p in parameters:
        p.grad = tb.asarray([0.5, -0.5])
    for _ in range(steps):
        optimizer.step()
    before = [p.tolist() for p in parameters], optimizer.state_dict()
    own, calls = optimizer.update, []

    def fails_at_the_second(*args: Any) -> tb.Tensor:
        calls.append(args)
        if len(calls) == 2:
            raise tb.OutOfMemoryError("no room")
        return own(*args)

    optimizer.update = fails_at_the_second
    with pytest.raises(tb.OutOfMemoryError):
        optimizer.step()
    state = optimizer.state_dict()["state"]
    assert [p.tolist() for p in parameters] == before[0]
    assert state.keys() == before[1]["state"].keys()
    for number, entries in before[1]["state"].items():
        for name, value in entries.items():
            now = state[number][name]
            assert now.tolist() == value.tolist() if isinstance(value, tb.Tensor) else now == value
    optimizer.update = own
    optimizer.step()
    assert parameters[0].tolist() == parameters[2].tolist() != before[0][0]


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Rprop", "LBFGS"])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_tensor_as_learning_rate_is_read_at_each_step(name: str, compiled: bool) -> None:
    def trained(lr: Any, halve: Callable[[Any, Any], None], compiled: bool) -> list[float]:
        x = tb.asarray([1.0, 2.0, 3.0], device="cpu").requires_grad_()
        optimizer = getattr(tb.optim, name)([x], lr=lr)

        def loss() -> tb.Tensor:
            optimizer.zero_grad()
            out = (x * x).sum()
            out.backward()
            return out

        def step() -> None:
            if name == "LBFGS":
                optimizer.step(loss)
            else:
                loss()
                optimizer.step()

        run = tb.compile(step) if compiled and name != "LBFGS" else step
        for turn in range(3):
            run()
            if turn == 1:
                halve(lr, optimizer.param_groups[0])
        return [float(v) for v in x]

    def by_number(_: Any, group: Any) -> None:
        group["lr"] *= 0.5

    def by_tensor(lr: Any, _: Any) -> None:
        lr.mul_(0.5)

    expected = trained(0.125, by_number, False)
    actual = trained(tb.asarray(0.125, device="cpu"), by_tensor, compiled)
    assert actual == pytest.approx(expected, rel=gamma(3 * UPDATE_ROUNDINGS, "float32"), abs=0)
    with pytest.raises(tb.ArgumentError, match="lr must be a number >= 0"):
        getattr(tb.optim, name)([tb.ones(1).requires_grad_()], lr=tb.asarray(-1.0))
