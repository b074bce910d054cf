"""Activations at the places where definitions differ: zeros, limits, infinities, NaN; values and slopes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import Tensor
from tensorbus.nn import functional as F  # noqa: N812 - what everybody calls it

from error_bounds import assert_within, gamma

INF, NAN = math.inf, math.nan
PLACES = (-INF, -4.0, -1.0, -0.5, 0.0, 0.5, 1.0, 6.0, INF, NAN)

# Worked out by hand from the definitions; the same as PyTorch 2.13 gives.
VALUES: dict[str, tuple[Callable[[Tensor], Tensor], tuple[float, ...]]] = {
    "relu": (F.relu, (0, 0, 0, 0, 0, 0.5, 1, 6, INF, NAN)),
    "relu6": (F.relu6, (0, 0, 0, 0, 0, 0.5, 1, 6, 6, NAN)),
    "leaky_relu": (lambda x: F.leaky_relu(x, 0.5), (-INF, -2, -0.5, -0.25, 0, 0.5, 1, 6, INF, NAN)),
    "hardtanh": (F.hardtanh, (-1, -1, -1, -0.5, 0, 0.5, 1, 1, 1, NAN)),
    "hardsigmoid": (F.hardsigmoid, (0, 0, 1 / 3, 2.5 / 6, 0.5, 3.5 / 6, 4 / 6, 1, 1, NAN)),
    "hardswish": (F.hardswish, (NAN, 0, -1 / 3, -1.25 / 6, 0, 1.75 / 6, 4 / 6, 6, INF, NAN)),
    "hardshrink": (F.hardshrink, (-INF, -4, -1, 0, 0, 0, 1, 6, INF, NAN)),
    "softshrink": (F.softshrink, (-INF, -3.5, -0.5, 0, 0, 0, 0.5, 5.5, INF, NAN)),
    "threshold": (lambda x: F.threshold(x, 0.5, 9.0), (9, 9, 9, 9, 9, 9, 1, 6, INF, NAN)),
    "elu": (lambda x: F.elu(x, 2.0),
            (-2, 2 * math.expm1(-4), 2 * math.expm1(-1), 2 * math.expm1(-0.5), 0, 0.5, 1, 6, INF, NAN)),
    "celu": (lambda x: F.celu(x, 2.0),
             (-2, 2 * math.expm1(-2), 2 * math.expm1(-0.5), 2 * math.expm1(-0.25), 0, 0.5, 1, 6, INF, NAN)),
    "softsign": (F.softsign, (NAN, -0.8, -0.5, -1 / 3, 0, 1 / 3, 0.5, 6 / 7, NAN, NAN)),
    "logsigmoid": (F.logsigmoid, (
        -INF, *(-math.log1p(math.exp(-v)) for v in (-4.0, -1.0, -0.5, 0.0, 0.5, 1.0, 6.0)), 0, NAN)),
    "softplus": (lambda x: F.softplus(x, 2.0, 10.0), (
        0, *(math.log1p(math.exp(2 * v)) / 2 for v in (-4.0, -1.0, -0.5, 0.0, 0.5, 1.0)), 6, INF, NAN)),
    "tanhshrink": (F.tanhshrink, (
        -INF, *(v - math.tanh(v) for v in (-4.0, -1.0, -0.5, 0.0, 0.5, 1.0, 6.0)), INF, NAN)),
    "mish": (F.mish, (
        NAN, *(v * math.tanh(math.log1p(math.exp(v))) for v in (-4.0, -1.0, -0.5, 0.0, 0.5, 1.0, 6.0)),
        INF, NAN)),
}  # fmt: skip
SLOPES: dict[str, tuple[float, ...]] = {
    "relu": (0, 0, 0, 0, 0, 1, 1, 1, 1, 1),
    "relu6": (0, 0, 0, 0, 0, 1, 1, 0, 0, 1),
    "leaky_relu": (0.5, 0.5, 0.5, 0.5, 0.5, 1, 1, 1, 1, 0.5),
    "hardtanh": (0, 0, 0, 1, 1, 1, 0, 0, 0, 1),
    "hardsigmoid": (0, 0, 1 / 6, 1 / 6, 1 / 6, 1 / 6, 1 / 6, 0, 0, 0),
    "hardswish": (0, 0, 1 / 6, 1 / 3, 0.5, 2 / 3, 5 / 6, 1, 1, 1),
    "hardshrink": (1, 1, 1, 0, 0, 0, 1, 1, 1, 1),
    "softshrink": (1, 1, 1, 0, 0, 0, 1, 1, 1, 1),
    "threshold": (0, 0, 0, 0, 0, 0, 1, 1, 1, 1),
    "elu": (0, 2 * math.exp(-4), 2 * math.exp(-1), 2 * math.exp(-0.5), 2, 1, 1, 1, 1, 1),
    "celu": (0, math.exp(-2), math.exp(-0.5), math.exp(-0.25), 1, 1, 1, 1, 1, 1),
}


def assert_near(actual: tb.Tensor, expected: Any) -> None:
    """Check float32 results of a few ops, whose operands are about 1 where they cancel."""
    exact = np.asarray(expected)
    size = 1 + np.abs(np.where(np.isfinite(exact), exact, 0))
    assert_within(actual.detach().numpy(), exact, gamma(4, "float32") * size)


@pytest.mark.parametrize("name", VALUES)
def test_values(device: str, name: str) -> None:
    function, expected = VALUES[name]
    actual = function(tb.asarray(PLACES, device=device))
    assert_near(actual, expected)


@pytest.mark.parametrize("name", SLOPES)
def test_slopes(device: str, name: str) -> None:
    x = tb.asarray(PLACES, device=device).requires_grad_()
    (grads,) = tb.grad(VALUES[name][0](x).sum(), x)
    assert_near(grads, SLOPES[name])


def test_selu_is_a_scaled_elu(device: str) -> None:
    result = F.selu(tb.asarray([-INF, -1.0, 0.0, 2.0], device=device))
    scale, alpha = 1.0507009873554805, 1.6732632423543772
    assert_near(result, [-scale * alpha, scale * alpha * math.expm1(-1), 0, 2 * scale])


def test_glu_gates_one_half_by_the_other(device: str) -> None:
    x = tb.asarray([[1.0, 2.0, 0.0, 100.0]], device=device)
    assert_near(F.glu(x), [[0.5, 2.0]])
    assert F.glu(tb.zeros((4, 3), device=device), dim=0).shape == (2, 3)
    for wrong in (0, 2):
        with pytest.raises(tb.ShapeError, match="even length"):
            F.glu(x, dim=wrong)


def test_prelu_has_one_slope_or_one_for_each_channel(device: str) -> None:
    x = tb.asarray([[[-1.0, 1.0], [-2.0, 2.0]]], device=device)
    one, each = tb.asarray([0.5], device=device), tb.asarray([0.5, 0.25], device=device)
    assert F.prelu(x, one).tolist() == [[[-0.5, 1.0], [-1.0, 2.0]]]
    assert F.prelu(x, each).tolist() == [[[-0.5, 1.0], [-0.5, 2.0]]]
    with pytest.raises(tb.ShapeError, match="each of 2 channels"):
        F.prelu(x, tb.zeros(3, device=device))


MODULES: dict[str, tuple[Callable[[], Any], Callable[[Tensor], Tensor], str]] = {
    "ReLU6": (tb.nn.ReLU6, F.relu6, "ReLU6()"),
    "LeakyReLU": (lambda: tb.nn.LeakyReLU(0.2), lambda x: F.leaky_relu(x, 0.2),
                  "LeakyReLU(negative_slope=0.2)"),
    "Hardtanh": (lambda: tb.nn.Hardtanh(-2.0, 2.0), lambda x: F.hardtanh(x, -2.0, 2.0),
                 "Hardtanh(min_val=-2.0, max_val=2.0)"),
    "Hardsigmoid": (tb.nn.Hardsigmoid, F.hardsigmoid, "Hardsigmoid()"),
    "Hardswish": (tb.nn.Hardswish, F.hardswish, "Hardswish()"),
    "Hardshrink": (lambda: tb.nn.Hardshrink(1.0), lambda x: F.hardshrink(x, 1.0), "Hardshrink(1.0)"),
    "Softshrink": (lambda: tb.nn.Softshrink(1.0), lambda x: F.softshrink(x, 1.0), "Softshrink(1.0)"),
    "Threshold": (lambda: tb.nn.Threshold(0.5, 3.0), lambda x: F.threshold(x, 0.5, 3.0),
                  "Threshold(threshold=0.5, value=3.0)"),
    "ELU": (lambda: tb.nn.ELU(2.0), lambda x: F.elu(x, 2.0), "ELU(alpha=2.0)"),
    "CELU": (lambda: tb.nn.CELU(2.0), lambda x: F.celu(x, 2.0), "CELU(alpha=2.0)"),
    "SELU": (tb.nn.SELU, F.selu, "SELU()"), "Mish": (tb.nn.Mish, F.mish, "Mish()"),
    "Softplus": (lambda: tb.nn.Softplus(2.0, 10.0), lambda x: F.softplus(x, 2.0, 10.0),
                 "Softplus(beta=2.0, threshold=10.0)"),
    "LogSigmoid": (tb.nn.LogSigmoid, F.logsigmoid, "LogSigmoid()"),
    "Softsign": (tb.nn.Softsign, F.softsign, "Softsign()"),
    "Tanhshrink": (tb.nn.Tanhshrink, F.tanhshrink, "Tanhshrink()"),
    "GLU": (lambda: tb.nn.GLU(0), lambda x: F.glu(x, 0), "GLU(dim=0)"),
    "RReLU": (lambda: tb.nn.RReLU(0.1, 0.3).eval(), lambda x: F.leaky_relu(x, 0.2),
              "RReLU(lower=0.1, upper=0.3)"),
    "Softmin": (lambda: tb.nn.Softmin(0), lambda x: F.softmax(-x, 0), "Softmin(dim=0)"),
    "LogSoftmax": (lambda: tb.nn.LogSoftmax(0), lambda x: F.log_softmax(x, 0), "LogSoftmax(dim=0)"),
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_modules_are_the_functions(device: str, name: str) -> None:
    make, function, shown = MODULES[name]
    x = tb.asarray([-3.0, -0.7, 0.6, 4.0], device=device)
    assert make()(x).tolist() == function(x).tolist()
    assert repr(make()) == shown


@pytest.mark.parametrize("kind", ["ReLU6", "ELU", "CELU", "SELU", "Mish", "LeakyReLU", "Hardswish"])
def test_in_place(device: str, kind: str) -> None:
    x = tb.asarray([-3.0, 0.7], device=device)
    out = getattr(tb.nn, kind)(inplace=True)(x)
    assert out.tolist() == x.tolist() != [-3.0, 0.7]


@pytest.mark.parametrize(
    "name", "relu relu6 elu celu selu silu mish hardsigmoid hardswish hardtanh leaky_relu rrelu".split()
)
def test_functions_in_place(device: str, name: str) -> None:
    x = tb.asarray([-3.0, 7.5], device=device)
    expected = getattr(F, name)(input=x).tolist()
    assert x.tolist() == [-3.0, 7.5]
    out = getattr(F, name)(x, inplace=True)
    assert out.tolist() == x.tolist() == expected


def test_a_slope_that_is_drawn(device: str) -> None:
    x = tb.full((1000,), -2.0, device=device)
    module = tb.nn.RReLU(0.1, 0.3)
    tb.manual_seed(0)
    slopes = module(x).numpy() / -2
    assert 0.1 <= slopes.min() < 0.11
    assert 0.29 < slopes.max() < 0.3001
    assert abs(slopes.mean() - 0.2) < 0.01
    tb.manual_seed(0)
    assert (module(x.to("cpu")).numpy() / -2).tolist() == slopes.tolist()
    above = tb.asarray([2.0], device=device)
    assert module(above).tolist() == [2.0]
    with pytest.raises(tb.ArgumentError, match="lower must not be above upper"):
        F.rrelu(x, 0.5, 0.1)


def test_channels_of_images(device: str) -> None:
    x = tb.asarray(np.arange(24, dtype=np.float32).reshape(1, 3, 2, 4), device=device)
    assert_near(tb.nn.Softmax2d()(x).sum(1), np.ones((1, 2, 4)))
    assert_near(tb.nn.Softmax2d()(x[0]).sum(0), np.ones((2, 4)))
    with pytest.raises(tb.ShapeError, match="3 or 4 dimensions"):
        tb.nn.Softmax2d()(x[0, 0])


def test_a_learned_slope(device: str) -> None:
    module = tb.nn.PReLU(2, 0.5, device=device)
    x = tb.asarray([[-1.0, -2.0], [3.0, -4.0]], device=device)
    out = module(x)
    assert out.tolist() == [[-0.5, -1.0], [3.0, -2.0]]
    out.sum().backward()
    assert module.weight.grad is not None
    assert module.weight.grad.tolist() == [-1.0, -6.0]
    with pytest.raises(tb.ArgumentError, match="at least one weight"):
        tb.nn.PReLU(0)
