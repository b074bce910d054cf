"""Parameters computed from others: their values, gradients, state, and taking it back."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import nn
from tensorbus.nn import parametrizations, parametrize

from error_bounds import assert_within, gamma


class Doubled(nn.Module):
    def forward(self, x: tb.Tensor) -> tb.Tensor:
        return x * 2


class Cut(nn.Module):
    def forward(self, x: tb.Tensor) -> tb.Tensor:
        return x[:1]


def test_one_after_the_other():
    layer = nn.Linear(2, 2, bias=False)
    nn.init.ones_(layer.weight)
    parametrize.register_parametrization(layer, "weight", Doubled())
    parametrize.register_parametrization(layer, "weight", Doubled())
    assert isinstance(layer, nn.Linear)
    assert parametrize.is_parametrized(layer, "weight")
    assert not parametrize.is_parametrized(layer, "bias")
    assert layer(tb.ones((1, 2))).tolist() == [[8.0, 8.0]]
    assert list(layer.state_dict()) == ["parametrizations.weight.original"]
    layer(tb.ones((1, 2))).sum().backward()
    (original,) = layer.parameters()
    assert original.grad is not None
    assert original.grad.tolist() == [[4.0, 4.0], [4.0, 4.0]]
    again = copy.deepcopy(layer)
    assert again.weight.tolist() == [[4.0, 4.0], [4.0, 4.0]]


def test_taking_it_back():
    for keep, value in ((True, 2.0), (False, 1.0)):
        layer = nn.Linear(2, 1)
        nn.init.ones_(layer.weight)
        parametrize.register_parametrization(layer, "weight", Doubled())
        parametrize.remove_parametrizations(layer, "weight", leave_parametrized=keep)
        assert type(layer) is nn.Linear
        assert isinstance(layer.weight, nn.Parameter)
        assert layer.weight.tolist() == [[value, value]]
        assert not parametrize.is_parametrized(layer)


def test_weight_norm():
    layer = nn.Linear(3, 2, dtype=tb.float64)
    before = layer.weight.detach().numpy().copy()
    parametrizations.weight_norm(layer)
    np.testing.assert_allclose(layer.weight.detach().numpy(), before, rtol=gamma(12, "float64"))
    state = layer.state_dict()
    assert list(state) == ["bias", "parametrizations.weight.original0", "parametrizations.weight.original1"]
    np.testing.assert_allclose(
        state["parametrizations.weight.original0"].numpy()[:, 0],
        np.linalg.norm(before, axis=1),
        rtol=gamma(8, "float64"),
    )
    layer.load_state_dict({**state, "parametrizations.weight.original0": tb.asarray([[1.0], [3.0]])})
    np.testing.assert_allclose(
        np.linalg.norm(layer.weight.detach().numpy(), axis=1), [1, 3], rtol=gamma(12, "float64")
    )
    with pytest.raises(tb.ArgumentError, match="several tensors"):
        parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)


def test_spectral_norm():
    tb.manual_seed(1)
    layer = parametrizations.spectral_norm(nn.Conv1d(4, 5, 3, dtype=tb.float64), n_power_iterations=20)
    for _ in range(5):
        weight = layer.weight
    # Each iteration brings it nearer by the square of how the two largest singular values differ.
    values = np.linalg.svd(layer.parametrizations.weight.original.detach().numpy().reshape(5, -1))[1]
    start = 1 / np.tan(np.radians(5)) ** 2  # the first tangent squared; five degrees are unlikely
    bound = start * (values[1] / values[0]) ** (2 * 5 * 20) + gamma(12 + 8, "float64")
    assert_within(np.linalg.norm(weight.detach().numpy().reshape(5, -1), 2), 1.0, bound)
    layer.eval()
    before = layer.parametrizations.weight[0]._u.tolist()
    layer(tb.ones((1, 4, 6), dtype=tb.float64)).sum().backward()
    assert layer.parametrizations.weight[0]._u.tolist() == before
    assert layer.parametrizations.weight.original.grad is not None
    names = [name for name, _ in layer.named_buffers()]
    assert names == ["parametrizations.weight.0._u", "parametrizations.weight.0._v"]


def test_refused():
    with pytest.raises(tb.ArgumentError, match="no parameter 'nothing'"):
        parametrize.register_parametrization(nn.Linear(2, 2), "nothing", Doubled())
    layer = nn.Linear(2, 2)
    with pytest.raises(tb.ShapeError, match="keeps the shape"):
        parametrize.register_parametrization(layer, "weight", Cut())
    assert list(layer.state_dict()) == ["weight", "bias"]
    with pytest.raises(tb.ArgumentError, match="is not parametrized"):
        parametrize.remove_parametrizations(layer, "weight")
    with pytest.raises(tb.ArgumentError, match="n_power_iterations"):
        parametrizations.spectral_norm(layer, n_power_iterations=0)


def test_the_older_names_are_told():
    for name in ("weight_norm", "spectral_norm"):
        with pytest.raises(AttributeError, match=rf"is here tensorbus\.nn\.parametrizations\.{name}$"):
            getattr(nn.utils, name)
