"""Extra state, submodules that are put in the place of others, modules emptied in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import nn


class Counting(nn.Module):
    """Counts its calls, which a state dict keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.calls = 0

    def forward(self, x: Any) -> Any:
        self.calls += 1
        return self.linear(x)

    def get_extra_state(self) -> Any:
        return {"calls": self.calls}

    def set_extra_state(self, state: Any) -> None:
        self.calls = state["calls"]


def test_extra_state_is_saved_and_loaded() -> None:
    net = nn.Sequential(Counting(), nn.ReLU())
    net(tb.ones((1, 2)))
    net(tb.ones((1, 2)))
    saved = net.state_dict(prefix="net.")
    assert list(saved) == ["net.0.linear.weight", "net.0.linear.bias", "net.0._extra_state"]
    assert saved["net.0._extra_state"] == {"calls": 2}
    other = nn.Sequential(Counting(), nn.ReLU())
    assert other.load_state_dict(net.state_dict()) == ([], [])
    assert other[0].calls == 2
    np.testing.assert_array_equal(other[0].linear.weight.numpy(), net[0].linear.weight.numpy())


def test_extra_state_that_is_missing_or_of_nobody_is_named() -> None:
    counting, plain = Counting(), nn.Sequential(nn.Linear(2, 2))
    state = counting.state_dict()
    without = {k: v for k, v in state.items() if k != "_extra_state"}
    with pytest.raises(tb.StateError, match=r"missing key.*'_extra_state'"):
        counting.load_state_dict(without)
    assert counting.load_state_dict(without, strict=False).missing_keys == ["_extra_state"]
    with pytest.raises(tb.StateError, match=r"unexpected key.*'_extra_state'"):
        plain.load_state_dict({**plain.state_dict(), "_extra_state": 1})
    with pytest.raises(NotImplementedError, match="has no get_extra_state"):
        plain.get_extra_state()
    with pytest.raises(NotImplementedError, match="has no set_extra_state"):
        plain.set_extra_state(1)


def test_extra_state_stays_where_the_rest_does_not_fit() -> None:
    counting = Counting()
    state = {**counting.state_dict(), "linear.bias": tb.ones(3), "_extra_state": {"calls": 9}}
    with pytest.raises(tb.StateError, match="nothing was loaded"):
        counting.load_state_dict(state)
    assert counting.calls == 0


def test_set_submodule() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU(), nn.Linear(2, 3)))
    net.set_submodule("1.0", nn.Tanh(), strict=True)
    net.set_submodule("1.2", nn.Sigmoid())
    assert [type(m).__name__ for m in net[1]] == ["Tanh", "Linear", "Sigmoid"]
    assert net(tb.ones((1, 2))).shape == (1, 3)
    with pytest.raises(AttributeError):
        net.set_submodule("2.0", nn.Tanh())
    with pytest.raises(AttributeError):
        net.set_submodule("1.7", nn.Tanh(), strict=True)
    with pytest.raises(AttributeError, match="is no module"):
        net.set_submodule("0.weight", nn.Tanh(), strict=True)
    with pytest.raises(TypeError, match="a module is needed"):
        net.set_submodule("0", tb.ones(2))
    with pytest.raises(KeyError):
        net.set_submodule("", nn.Tanh())


@pytest.mark.parametrize("device", ["cpu", "refdev"])
def test_to_empty_keeps_cells_and_moves_them(device: str) -> None:
    net = nn.BatchNorm1d(3)
    weight, shapes = net.weight, {k: (v.shape, v.dtype) for k, v in net.state_dict().items()}
    assert net.to_empty(device=device) is net
    assert net.weight is weight
    assert weight.requires_grad
    state = net.state_dict()
    assert {k: (v.shape, v.dtype) for k, v in state.items()} == shapes
    assert {v.device.type for v in state.values()} == {device}
