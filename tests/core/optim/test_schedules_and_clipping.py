"""Learning-rate schedules and gradient clipping."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import optim

from error_bounds import gamma


def optimizer(*rates: float) -> optim.Optimizer:
    return optim.SGD([{"params": [tb.ones((1,)).requires_grad_()], "lr": rate} for rate in rates])


def test_step_schedule():
    chosen = optimizer(1.0, 0.5)
    schedule = optim.StepLR(chosen, step_size=2, gamma=0.1)
    seen = []
    for _ in range(5):
        seen.append(schedule.get_last_lr())
        schedule.step()
    assert seen == [pytest.approx([s, s / 2], rel=gamma(5, "float64"), abs=0) for s in (1, 1, 0.1, 0.1, 0.01)]


def test_cosine_schedule_and_its_state():
    chosen = optimizer(0.4)
    schedule = optim.CosineAnnealingLR(chosen, T_max=10, eta_min=0.1)
    for epoch in range(1, 11):
        schedule.step()
        want = 0.1 + 0.3 * (1 + math.cos(math.pi * epoch / 10)) / 2
        assert chosen.param_groups[0]["lr"] == pytest.approx(want, rel=gamma(40, "float64"), abs=0)
    state = schedule.state_dict()
    other = optimizer(0.7)
    optim.CosineAnnealingLR(other, T_max=10, eta_min=0.1).load_state_dict(state)
    assert other.param_groups[0]["lr"] == chosen.param_groups[0]["lr"]
    with pytest.raises(tb.StateError, match="2 groups"):
        schedule.load_state_dict({"last_epoch": 1, "base_lrs": [1.0, 2.0], "last_lr": [1.0, 2.0]})
    with pytest.raises(tb.StateError, match="no 'last_lr'"):
        schedule.load_state_dict({"last_epoch": 1, "base_lrs": [1.0]})


def test_schedules_refuse_no_epochs():
    with pytest.raises(tb.ArgumentError, match="step_size must be >= 1, got 0"):
        optim.StepLR(optimizer(1.0), 0)
    with pytest.raises(tb.ArgumentError, match="T_max"):
        optim.CosineAnnealingLR(optimizer(1.0), 0)


@pytest.mark.parametrize("kind", [1.0, 2.0, 3.0, math.inf])
def test_clipping_scales_all_gradients_by_one_factor(kind: float):
    operands = [np.array([[3.0, -4.0]]), np.array([12.0])]
    parameters = [tb.zeros(g.shape, dtype=tb.float64).requires_grad_() for g in operands]
    for parameter, g in zip(parameters, operands, strict=True):
        parameter.grad = tb.asarray(g)
    lonely = tb.ones((2,)).requires_grad_()
    whole = np.linalg.norm(np.concatenate([g.ravel() for g in operands]), kind)
    result = optim.clip_grad_norm_([*parameters, lonely], 2.0, kind)
    assert result.item() == pytest.approx(whole, rel=gamma(8, "float64"), abs=0)
    for parameter, g in zip(parameters, operands, strict=True):
        assert parameter.grad is not None
        np.testing.assert_allclose(parameter.grad.numpy(), g * 2 / (whole + 1e-6), rtol=gamma(12, "float64"))
    assert lonely.grad is None


def test_small_gradients_stay_and_broken_ones_are_refused():
    x = tb.ones((2,)).requires_grad_()
    assert optim.clip_grad_norm_(x, 1.0).item() == 0.0
    gradient: Any = tb.asarray([0.1, 0.2])
    x.grad = gradient
    optim.clip_grad_norm_(x, 1.0)
    assert x.grad.tolist() == gradient.tolist()
    x.grad = tb.asarray([math.inf, 1.0])
    with pytest.raises(tb.AutogradError, match="inf"):
        optim.clip_grad_norm_(x, 1.0, error_if_nonfinite=True)
    assert x.grad.tolist() == [math.inf, 1.0]
    with pytest.raises(tb.ArgumentError, match="norm_type"):
        optim.clip_grad_norm_(x, 1.0, 0)
