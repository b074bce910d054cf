"""Initial values: their distributions, and that one seed gives the same ones."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import nn
from tensorbus.nn import init


def bound(x: tb.Tensor) -> float:
    return float(np.abs(x.detach().numpy()).max())


@pytest.mark.parametrize(
    ("layer", "fan_in"),
    [(nn.Linear(100, 400), 100), (nn.Conv2d(8, 64, 3, groups=2), 36), (nn.Conv1d(10, 300, 5), 50)],
)
def test_layers_start_within_one_over_the_root_of_their_fan_in(layer: nn.Module, fan_in: int):
    limit = 1 / math.sqrt(fan_in)
    for parameter in layer.parameters():
        assert 0.9 * limit < bound(parameter) <= limit
        assert abs(float(parameter.mean())) < 0.2 * limit


def test_one_seed_gives_one_model():
    tb.manual_seed(7)
    first = nn.Linear(5, 4).state_dict()
    tb.manual_seed(7)
    second = nn.Linear(5, 4).state_dict()
    assert first["weight"].tolist() == second["weight"].tolist()
    assert first["bias"].tolist() == second["bias"].tolist()
    assert nn.Linear(5, 4).weight.tolist() != first["weight"].tolist()


def test_distributions():
    wide = tb.empty((200, 300), dtype=tb.float64)
    cases = {
        "xavier_uniform_": (lambda: init.xavier_uniform_(wide, gain=2.0), 2.0 * math.sqrt(2 / 500)),
        "xavier_normal_": (lambda: init.xavier_normal_(wide), math.sqrt(2 / 500)),
        "kaiming_uniform_": (lambda: init.kaiming_uniform_(wide), math.sqrt(2 / 300)),
        "kaiming_normal_": (lambda: init.kaiming_normal_(wide, mode="fan_out"), math.sqrt(2 / 200)),
        "normal_": (lambda: init.normal_(wide, 1.0, 3.0), 3.0),
        "uniform_": (lambda: init.uniform_(wide, -3.0, 3.0), math.sqrt(3.0)),
    }
    for name, (fill, deviation) in cases.items():
        assert fill() is wide, name
        assert abs(wide.numpy().std() / deviation - 1) < 0.02, name
    assert init.eye_(tb.empty((2, 3))).tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    assert init.constant_(tb.empty((2,)), 4.0).tolist() == [4.0, 4.0]


def test_init_leaves_a_parameter_a_leaf():
    weight = nn.Parameter(tb.ones((2, 2)))
    init.kaiming_normal_(weight, nonlinearity="relu")
    assert weight.is_leaf
    assert weight.requires_grad


def test_errors():
    with pytest.raises(tb.ShapeError, match="at least 2 dimensions"):
        init.xavier_uniform_(tb.empty((3,)))
    with pytest.raises(tb.ArgumentError, match="fan_sideways"):
        init.kaiming_uniform_(tb.empty((3, 3)), mode="fan_sideways")
    with pytest.raises(tb.ArgumentError, match="no gain is known for 'softplus'"):
        init.calculate_gain("softplus")
