"""Chainable schedules, which go on from the present rates: several at once, and after a state dict."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import optim
from tensorbus.optim import lr_scheduler as S  # noqa: N812 - short in the tables below

from error_bounds import gamma

RATE_ROUNDINGS = 64
"""Roundings in a row in the rates of as many epochs as are tried here."""
STEP_ROUNDINGS = 8
"""Roundings in a row in one step with momentum, and in its loss."""
Make = Callable[[Any], Any]
KINDS: dict[str, Make] = {
    "step": lambda o: S.StepLR(o, 3, 0.5),
    "milestones": lambda o: S.MultiStepLR(o, [2, 5, 5], 0.1),
    "exponential": lambda o: S.ExponentialLR(o, 0.9),
    "constant": lambda o: S.ConstantLR(o, 0.5, 4),
    "constant 0": lambda o: S.ConstantLR(o, 0.0, 4),
    "linear": lambda o: S.LinearLR(o, 0.25, 0.75, 5),
    "polynomial": lambda o: S.PolynomialLR(o, 6, 2.0),
    "times": lambda o: S.MultiplicativeLR(o, lambda epoch: 0.5 + 1 / (1 + epoch)),
    "cosine": lambda o: S.CosineAnnealingLR(o, 3, 0.05),
    "cosine of one": lambda o: S.CosineAnnealingLR(o, 1, 0.05),
    "any": lambda o: S.LambdaLR(o, lambda epoch: 0.8**epoch),
    "cycles": lambda o: S.CyclicLR(o, 0.1, 1.1, 2, 3),
    "one cycle": lambda o: S.OneCycleLR(o, 2.0, total_steps=20),
    "restarts": lambda o: S.CosineAnnealingWarmRestarts(o, 2, 2, 0.1),
    "in sequence": lambda o: S.SequentialLR(
        o, [S.LinearLR(o, 0.5, total_iters=2), S.CosineAnnealingWarmRestarts(o, 4)], [2]
    ),
    "chained": lambda o: S.ChainedScheduler([S.ExponentialLR(o, 0.9), S.CosineAnnealingLR(o, 4)]),
    "a chain of a sequence": lambda o: S.ChainedScheduler(
        [S.SequentialLR(o, [S.ConstantLR(o, 0.5, 2), S.StepLR(o, 2)], [3]), S.ExponentialLR(o, 0.9)]
    ),
}


def near(want: Any) -> Any:
    """Return what equals rates: Python floats after so many roundings, also where a cosine vanishes."""
    rounded = gamma(RATE_ROUNDINGS, "float64")
    return pytest.approx(want, rel=rounded, abs=rounded)


def sgd(lr: float = 1.0) -> optim.SGD:
    return optim.SGD([tb.ones((1,)).requires_grad_()], lr=lr, momentum=0.9)


def rate(optimizer: optim.Optimizer) -> float:
    return float(optimizer.param_groups[0]["lr"])


def rates(optimizer: optim.Optimizer, schedules: Sequence[Any], count: int = 8) -> list[float]:
    results = []
    for _ in range(count):
        for schedule in schedules:
            schedule.step()
        results.append(rate(optimizer))
    return results


@pytest.mark.parametrize("name", sorted({*KINDS} - {"in sequence", "chained", "a chain of a sequence"}))
def test_steps_alone_go_where_the_closed_form_goes(name: str) -> None:
    optimizer, other = sgd(), sgd()
    schedule, jumping = KINDS[name](optimizer), KINDS[name](other)
    for epoch in range(1, 13):
        schedule.step()
        jumping.go_to(epoch)
        assert rate(optimizer) == near(rate(other))


# What PyTorch 2.13 gives.
TOGETHER: dict[str, tuple[tuple[str, ...], list[float]]] = {
    "step and exponential": (
        ("step", "exponential"), [0.9, 0.81, 0.3645, 0.32805, 0.295245, 0.13286025],
    ),
    "exponential and milestones": (
        ("exponential", "milestones"), [0.9, 0.081, 0.0729, 0.06561, 0.00059049, 0.000531441],
    ),
    "constant and exponential": (
        ("constant", "exponential"), [0.45, 0.405, 0.3645, 0.6561, 0.59049, 0.531441],
    ),
    "linear and step": (("linear", "step"), [0.35, 0.45, 0.275, 0.325, 0.375, 0.1875]),
    "restarts first": (
        ("restarts", "exponential"),
        [0.495, 0.9, 0.495 + 0.405 * math.sqrt(0.5), 0.495, 0.495 - 0.405 * math.sqrt(0.5), 0.9],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TOGETHER)
def test_schedules_one_after_the_other(name: str) -> None:
    names, want = TOGETHER[name]
    optimizer = sgd()
    schedules = [KINDS[n](optimizer) for n in names]
    assert rates(optimizer, schedules, 6) == near(want)
    optimizer = sgd()
    chained = S.ChainedScheduler([KINDS[n](optimizer) for n in names])
    assert rates(optimizer, [chained], 6) == near(want)


def test_a_milestone_beside_a_decay() -> None:
    optimizer = sgd()
    schedules = [S.ExponentialLR(optimizer, 0.9), S.MultiStepLR(optimizer, [3, 6], 0.1)]
    want = [0.9**k * 0.1 ** (k // 3) for k in range(1, 9)]
    assert rates(optimizer, schedules) == near(want)


def test_a_plateau_beside_a_decay() -> None:
    optimizer = sgd()
    decay = S.ExponentialLR(optimizer, 0.9)
    plateau = S.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
    results = []
    for loss in (1.0, 2.0, 0.5, 0.6):
        decay.step()
        plateau.step(loss)
        results.append(rate(optimizer))
    assert results == near([0.9, 0.405, 0.3645, 0.164025])


def test_a_rate_that_the_user_sets_stays() -> None:
    for name in ("step", "milestones", "exponential", "linear"):
        optimizer = sgd()
        schedule = KINDS[name](optimizer)
        rates(optimizer, [schedule], 2)
        before = rate(optimizer)
        optimizer.param_groups[0]["lr"] = 0.5 * before
        other = sgd()
        alone = rates(other, [KINDS[name](other)], 6)[2:]
        assert rates(optimizer, [schedule], 4) == near([0.5 * r for r in alone])
    optimizer = sgd()
    schedule = S.StepLR(optimizer, 100)
    optimizer.param_groups[0]["lr"] = 0.5
    schedule.step()
    assert rate(optimizer) == 0.5
    schedule.go_to(100)
    assert rate(optimizer) == near(0.1)


def test_restarts_within_a_sequence_and_a_chain() -> None:
    optimizer = sgd()
    wave = [(1 + math.cos(math.pi * (k % 4) / 4)) / 2 for k in range(9)]
    assert rates(optimizer, [KINDS["in sequence"](optimizer)]) == near([0.75, *wave[:7]])
    optimizer = sgd()
    both = S.ChainedScheduler([S.ExponentialLR(optimizer, 0.9), S.CosineAnnealingWarmRestarts(optimizer, 4)])
    assert rates(optimizer, [both]) == near(wave[1:])


def test_a_sequence_within_a_chain() -> None:
    optimizer = sgd()
    actual = rates(optimizer, [KINDS["a chain of a sequence"](optimizer)], 6)
    want = [0.45, 0.81, 0.9, 0.81, 0.0729, 0.06561]
    assert actual == near(want)


@pytest.mark.parametrize("name", ["in sequence", "chained", "a chain of a sequence"])
def test_jumping_with_several(name: str) -> None:
    optimizer, other = sgd(), sgd()
    schedule, jumping = KINDS[name](optimizer), KINDS[name](other)
    walked = rates(optimizer, [schedule], 8)
    for epoch in (7, 1, 4):
        jumping.go_to(epoch)
        assert rate(other) == near(walked[epoch - 1])
    assert rates(other, [jumping], 3) == near(walked[4:7])


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("at", [1, 3, 5])
def test_resuming_is_going_on(name: str, at: int) -> None:
    optimizer = sgd()
    schedules = [KINDS[name](optimizer), S.ExponentialLR(optimizer, 0.95)]
    rates(optimizer, schedules, at)
    optimizer.param_groups[0]["lr"] *= 0.7
    saved = [schedule.state_dict() for schedule in schedules]
    fresh = sgd()
    again = [KINDS[name](fresh), S.ExponentialLR(fresh, 0.95)]
    for schedule, state in zip(again, saved, strict=True):
        schedule.load_state_dict(state)
    assert fresh.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]
    assert fresh.param_groups[0]["momentum"] == optimizer.param_groups[0]["momentum"]
    assert rates(fresh, again) == rates(optimizer, schedules)
    assert fresh.param_groups[0]["momentum"] == optimizer.param_groups[0]["momentum"]


def test_resuming_within_an_epoch() -> None:
    optimizer, fresh = sgd(), sgd()
    schedule, again = KINDS["restarts"](optimizer), KINDS["restarts"](fresh)
    schedule.step(2.5)
    again.load_state_dict(schedule.state_dict())
    assert rates(fresh, [again]) == rates(optimizer, [schedule])


def test_resuming_a_plateau() -> None:
    optimizer, fresh = sgd(), sgd()
    schedule = S.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
    for loss in (1.0, 2.0):
        schedule.step(loss)
    again = S.ReduceLROnPlateau(fresh, patience=0, factor=0.5)
    again.load_state_dict(schedule.state_dict())
    assert rate(fresh) == 0.5
    two = optim.SGD([{"params": [tb.ones(1).requires_grad_()]}, {"params": [tb.ones(1).requires_grad_()]}])
    with pytest.raises(tb.StateError, match="1 groups, and the optimizer 2"):
        S.ReduceLROnPlateau(two).load_state_dict(schedule.state_dict())
    chain = S.ChainedScheduler([S.StepLR(fresh, 2)])
    with pytest.raises(tb.StateError, match="of 2 schedules, and there are 1"):
        chain.load_state_dict(KINDS["chained"](sgd()).state_dict())


def test_rates_of_zero_are_no_error() -> None:
    for name in KINDS:
        if name in ("one cycle", "cycles"):
            continue
        optimizer = sgd(0.0)
        result = rates(optimizer, [KINDS[name](optimizer)], 12)
        assert all(math.isfinite(r) for r in result)
    optimizer = sgd()
    assert rates(optimizer, [S.ExponentialLR(optimizer, 0.0)], 3) == [0.0] * 3
    optimizer = sgd()
    assert rates(optimizer, [S.ConstantLR(optimizer, 0.0, 2)], 3) == [0.0, 1.0, 1.0]
    optimizer = sgd()
    assert rates(optimizer, [S.LinearLR(optimizer, 1.0, 0.0, 2)], 4) == [0.5, 0.0, 0.0, 0.0]


def test_schedules_of_ones_own_keep_their_closed_form() -> None:
    class Halved(S.LRScheduler):
        def rate(self, base: float, epoch: int) -> float:
            return base / (1 + epoch)

    class Mine(S.ExponentialLR):
        def rate(self, base: float, epoch: int) -> float:
            return base - epoch / 10

    class Ahead(S.LRScheduler):
        def next_rates(self, present: list[float], epoch: int) -> list[float]:
            return [r + epoch for r in present]

    for cls, want in ((Halved, [1 / 2, 1 / 3, 1 / 4]), (Ahead, [2.0, 4.0, 7.0])):
        optimizer = sgd()
        assert rates(optimizer, [cls(optimizer)], 3) == near(want)
    optimizer = sgd()
    assert rates(optimizer, [Mine(optimizer, 0.5)], 3) == near([0.9, 0.8, 0.7])


@pytest.mark.parametrize("name", KINDS)
def test_the_same_within_a_compiled_step(name: str) -> None:
    def build() -> tuple[Callable[[], Any], optim.Optimizer]:
        x = tb.asarray([1.0, 2.0]).requires_grad_()
        optimizer = optim.SGD([x], lr=0.1, momentum=0.9)
        schedules = [KINDS[name](optimizer), S.ExponentialLR(optimizer, 0.95)]

        def step() -> Any:
            optimizer.zero_grad()
            loss = (x * x).sum()
            loss.backward()
            optimizer.step()
            for schedule in schedules:
                schedule.step()
            return loss.detach()

        return step, optimizer

    (plain, one), (other, two) = build(), build()
    step = tb.compile(other)
    for _ in range(9):
        assert step().item() == pytest.approx(plain().item(), rel=gamma(9 * STEP_ROUNDINGS, "float32"))
        assert rate(one) == rate(two)
    assert len(step.replays) == 1


def test_a_part_that_rests_is_seen_to_rest_within_a_compiled_step() -> None:
    optimizer = sgd()
    warm = S.LinearLR(optimizer, 0.5, total_iters=2)
    both = S.SequentialLR(optimizer, [warm, S.CosineAnnealingWarmRestarts(optimizer, 4)], [3])

    @tb.compile
    def step() -> int:
        both.step()
        return warm.last_epoch

    assert [step() for _ in range(6)] == [1, 2, 2, 2, 2, 2]
