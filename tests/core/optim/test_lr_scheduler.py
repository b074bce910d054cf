"""Schedules against the rates that PyTorch 2.13 gives, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import optim
from tensorbus.optim import lr_scheduler as S  # noqa: N812 - short in the tables below

from error_bounds import gamma

PRINTED = 0.5e-7
"""PyTorch's rates are written down here with seven digits behind the point."""


def sgd(lr: float = 1.0, **more: Any) -> optim.SGD:
    return optim.SGD([tb.ones((1,)).requires_grad_()], lr=lr, **more)


def adagrad() -> optim.Adagrad:
    return optim.Adagrad([tb.ones((1,)).requires_grad_()])


Make = Callable[[optim.Optimizer], S.LRScheduler]
RATES: dict[str, tuple[Make, list[float]]] = {
    "one cycle": (
        lambda o: S.OneCycleLR(o, 2.0, total_steps=10),
        [0.08, 1.04, 2.0, 1.9009693, 1.6234913, 1.222524, 0.777484, 0.3765167, 0.0990387, 8e-06],
    ),
    "one cycle in three": (
        lambda o: S.OneCycleLR(
            o, 2.0, epochs=5, steps_per_epoch=2, anneal_strategy="linear", three_phase=True
        ),
        [0.08, 1.04, 2.0, 1.04, 0.08, 0.0640016, 0.0480032, 0.0320048, 0.0160064, 8e-06],
    ),
    "restarts": (
        lambda o: S.CosineAnnealingWarmRestarts(o, 2, 2, 0.1),
        [1.0, 0.55, 1.0, 0.8681981, 0.55, 0.2318019, 1.0, 0.9657458, 0.8681981],
    ),
    "in sequence": (
        lambda o: S.SequentialLR(o, [S.LinearLR(o, 0.1, total_iters=3), S.ExponentialLR(o, 0.5)], [3]),
        [0.1, 0.4, 0.7, 1.0, 0.5, 0.25, 0.125],
    ),
    "chained": (
        lambda o: S.ChainedScheduler([S.ConstantLR(o, 0.1, 3), S.ExponentialLR(o, 0.5)]),
        [0.1, 0.05, 0.025, 0.125, 0.0625, 0.03125],
    ),
    "polynomial": (lambda o: S.PolynomialLR(o, 4, 2.0), [1.0, 0.5625, 0.25, 0.0625, 0.0, 0.0]),
    "milestones": (lambda o: S.MultiStepLR(o, [1, 3, 3]), [1.0, 0.1, 0.1, 0.001, 0.001]),
    "linear": (lambda o: S.LinearLR(o, 0.25, 0.75, 4), [0.25, 0.375, 0.5, 0.625, 0.75, 0.75]),
    "constant": (lambda o: S.ConstantLR(o, 0.5, 2), [0.5, 0.5, 1.0, 1.0]),
    "exponential": (lambda o: S.ExponentialLR(o, 0.5), [1.0, 0.5, 0.25]),
    "times": (lambda o: S.MultiplicativeLR(o, lambda epoch: 1 / (1 + epoch)), [1.0, 0.5, 1 / 6, 1 / 24]),
    "cycles": (
        lambda o: S.CyclicLR(o, 0.1, 1.1, 2, 3),
        [0.1, 0.6, 1.1, 0.7666667, 0.4333333, 0.1, 0.6, 1.1],
    ),
    "cycles half as high": (
        lambda o: S.CyclicLR(o, 0.1, 1.1, 2, mode="triangular2"),
        [0.1, 0.6, 1.1, 0.6, 0.1, 0.35, 0.6, 0.35, 0.1, 0.225],
    ),
    "cycles that fade": (
        lambda o: S.CyclicLR(o, 0.0, 1.0, 2, mode="exp_range", gamma=0.9),
        [0.0, 0.45, 0.81, 0.3645, 0.0, 0.295245],
    ),
    "cycles of one's own": (
        lambda o: S.CyclicLR(o, 0.0, 1.0, 2, scale_fn=lambda step: 1 / (1 + step), scale_mode="iterations"),
        [0.0, 0.25, 1 / 3, 0.125],
    ),
    "any": (lambda o: S.LambdaLR(o, [lambda epoch: 1 / (1 + epoch)]), [1.0, 0.5, 1 / 3]),
}


@pytest.mark.parametrize("name", RATES)
def test_rates(name: str):
    make, want = RATES[name]
    optimizer = sgd(momentum=0.9)
    schedule = make(optimizer)
    actual = [optimizer.param_groups[0]["lr"]]
    for _ in want[1:]:
        optimizer.step()
        schedule.step()
        actual.append(optimizer.param_groups[0]["lr"])
    assert actual == pytest.approx(want, rel=0, abs=PRINTED)
    assert schedule.get_last_lr() == [actual[-1]]


@pytest.mark.parametrize("name", ["one cycle", "in sequence", "chained", "polynomial", "linear"])
def test_going_on_from_a_state_dict(name: str):
    make, want = RATES[name]
    schedule = make(sgd(momentum=0.9))
    for _ in range(2):
        schedule.step()
    optimizer = sgd(momentum=0.9)
    again = make(optimizer)
    again.load_state_dict(schedule.state_dict())
    assert optimizer.param_groups[0]["lr"] == pytest.approx(want[2], rel=0, abs=PRINTED)
    again.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(want[3], rel=0, abs=PRINTED)


def test_cycles_turn_momentum_too() -> None:
    optimizer = sgd(momentum=0.9)
    schedule = S.CyclicLR(optimizer, 0.1, 1.1, 2)
    results = [optimizer.param_groups[0]["momentum"]]
    for _ in range(3):
        schedule.step()
        results.append(optimizer.param_groups[0]["momentum"])
    assert results == pytest.approx([0.9, 0.85, 0.8, 0.85], rel=gamma(8, "float64"), abs=0)
    for operand, text in (
        ({"mode": "square"}, "mode is one of"), ({"scale_mode": "epoch"}, "scale_mode is"),
        ({"step_size_down": 0}, "steps up and down"),
    ):  # fmt: skip
        with pytest.raises(tb.ArgumentError, match=f"CyclicLR: {text}"):
            S.CyclicLR(optimizer, 0.1, 1.1, **operand)
    with pytest.raises(tb.ArgumentError, match="momentum or betas"):
        S.CyclicLR(adagrad(), 0.1, 1.1)
    with pytest.raises(tb.ArgumentError, match="MultiplicativeLR: 1 functions are needed, got 2"):
        S.MultiplicativeLR(optimizer, [lambda epoch: 1.0] * 2)


def test_the_cycle_turns_momentum_too():
    optimizer = optim.AdamW([tb.ones((1,)).requires_grad_()])
    schedule = S.OneCycleLR(optimizer, 2.0, total_steps=10)
    assert optimizer.param_groups[0]["betas"] == (0.95, 0.999)
    schedule.step()
    schedule.step()
    assert optimizer.param_groups[0]["betas"] == pytest.approx((0.85, 0.999), rel=gamma(8, "float64"), abs=0)
    for _ in range(8):
        schedule.step()
    with pytest.raises(tb.ArgumentError, match="step 11 was asked for"):
        schedule.step()


def test_a_fraction_of_an_epoch():
    schedule = S.CosineAnnealingWarmRestarts(sgd(), 4)
    schedule.step(2.0)
    assert schedule.get_last_lr() == pytest.approx([0.5], rel=gamma(8, "float64"), abs=0)
    schedule.step(5.0)
    assert schedule.get_last_lr() == pytest.approx([0.8535534], rel=0, abs=PRINTED)
    assert schedule.last_epoch == 5


def test_a_plateau():
    optimizer = sgd()
    schedule = S.ReduceLROnPlateau(optimizer, patience=1, cooldown=1, factor=0.5, min_lr=0.1, threshold=0.1)
    results = []
    for value in (3, 2, 1.95, 1.9, 1.85, 1.84, 1.83, 1.82, 1.81, 1.8):
        schedule.step(value)
        results.append(optimizer.param_groups[0]["lr"])
    assert results == [1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125]
    again = S.ReduceLROnPlateau(sgd())
    again.load_state_dict(schedule.state_dict())
    assert (again.best, again.patience, again.last_epoch) == (2.0, 1, 10)
    rising = S.ReduceLROnPlateau(sgd(), mode="max", threshold_mode="abs", threshold=0.5, patience=0)
    for value, better in ((1.0, True), (1.4, False), (1.6, True)):
        assert rising.is_better(value) is better
        rising.step(value)
    assert rising.get_last_lr() == pytest.approx([0.1], rel=gamma(8, "float64"), abs=0)
    rising.step(tb.asarray([5.0]))
    assert rising.best == 5.0


BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "no length": (lambda: S.OneCycleLR(sgd(), 1.0), "total_steps"),
    "no momentum": (lambda: S.OneCycleLR(adagrad(), 1.0, 5), "momentum or betas"),
    "a share": (lambda: S.OneCycleLR(sgd(momentum=0.9), 1.0, 5, pct_start=2.0), "pct_start"),
    "restarts": (lambda: S.CosineAnnealingWarmRestarts(sgd(), 0), "T_0 and T_mult"),
    "milestones": (lambda: S.SequentialLR(sgd(), [], [1]), "one milestone less"),
    "another optimizer": (
        lambda: S.SequentialLR(sgd(), [S.ExponentialLR(sgd(), 0.5)], []), "belong to the optimizer",
    ),
    "nothing to chain": (lambda: S.ChainedScheduler([]), "at least one"),
    "functions": (lambda: S.LambdaLR(sgd(), []), "1 functions"),
    "a factor": (lambda: S.LinearLR(sgd(), 0.0), "start_factor"),
    "a plateau": (lambda: S.ReduceLROnPlateau(sgd(), factor=1.0), "factor must be < 1"),
    "a mode": (lambda: S.ReduceLROnPlateau(sgd(), mode="low"), "'min' or 'max'"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_refused(name: str):
    attempt, text = BAD[name]
    with pytest.raises(tb.ArgumentError, match=text):
        attempt()
