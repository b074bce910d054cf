"""Layers against plain NumPy formulas, their gradients against finite differences, and their errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import nn
from tensorbus.nn import functional

from error_bounds import assert_within, gamma, of_product, of_sum

RNG = np.random.default_rng(3)

MODULES: list[tuple[Callable[[], nn.Module], tuple[int, ...]]] = [
    (lambda: nn.Linear(3, 2), (4, 3)),
    (lambda: nn.Linear(3, 2, bias=False), (3,)),
    (lambda: nn.Conv1d(2, 4, 3, stride=2, padding=1, groups=2), (2, 2, 6)),
    (lambda: nn.Conv2d(2, 3, (2, 3), stride=(1, 2), padding=(1, 0), dilation=(2, 1)), (2, 2, 4, 5)),
    (lambda: nn.Conv2d(1, 2, 2, padding="same"), (1, 1, 3, 3)),
    (lambda: nn.Conv3d(1, 2, 2), (1, 1, 2, 3, 3)),
    (lambda: nn.BatchNorm1d(2), (5, 2)),
    (lambda: nn.BatchNorm1d(2, affine=False), (3, 2, 2)),
    (lambda: nn.BatchNorm2d(2), (2, 2, 2, 3)),
    (lambda: nn.BatchNorm2d(2).eval(), (2, 2, 2, 3)),
    (lambda: nn.LayerNorm(4), (3, 4)),
    (lambda: nn.LayerNorm((2, 3), bias=False), (2, 2, 3)),
    (nn.ReLU, (7,)),
    (nn.GELU, (7,)),
    (lambda: nn.GELU("tanh"), (7,)),
    (nn.Sigmoid, (7,)),
    (nn.Tanh, (7,)),
    (nn.SiLU, (7,)),
    (lambda: nn.Softmax(dim=1), (2, 4)),
    (lambda: nn.MaxPool2d(2, stride=1, padding=1), (1, 2, 3, 3)),
    (lambda: nn.AvgPool2d(2, padding=1), (1, 2, 4, 3)),
    (nn.Flatten, (2, 3, 2)),
    (nn.Identity, (3,)),
    (lambda: nn.Sequential(nn.Conv2d(1, 2, 2), nn.BatchNorm2d(2), nn.SiLU(), nn.Flatten()), (2, 1, 3, 3)),
]


def weighted(module: nn.Module, x: tb.Tensor, weights: np.ndarray[Any, Any]) -> tb.Tensor:
    return (module(x) * tb.asarray(weights)).sum()


@pytest.mark.parametrize(("make", "shape"), MODULES, ids=lambda v: repr(v()) if callable(v) else None)
def test_gradients_equal_finite_differences(make: Callable[[], nn.Module], shape: tuple[int, ...]):
    module = make().to(tb.float64)
    for norm in module.modules():
        if isinstance(norm, (nn.BatchNorm1d, nn.BatchNorm2d, nn.LayerNorm)):
            for parameter in norm.parameters():
                nn.init.uniform_(parameter, 0.5, 1.5)
    x = tb.asarray(
        RNG.permutation(math.prod(shape)).reshape(shape) / math.prod(shape) * 3 - 1.55
    ).requires_grad_()
    weights = RNG.standard_normal(module(x).shape)
    weighted(module, x, weights).backward()
    step = 1e-6
    # Each end is a sum with its rounding error and the layer's own roundings; step**2 is nothing beside.
    terms = (module(x) * weights).detach().numpy()
    bound = of_sum(terms, None, "float64", extra=100) / step
    for name, cell in [("input", x), *module.named_parameters()]:
        assert cell.grad is not None
        analytic = cell.grad.numpy()
        value = cell.detach().numpy()
        numeric = np.empty_like(analytic)
        with tb.no_grad():
            for place in np.ndindex(value.shape):
                ends = []
                for change in (step, -step):
                    moved = value.copy()
                    moved[place] += change
                    cell.rebind(tb.asarray(moved))
                    ends.append(weighted(module, x, weights).item())
                numeric[place] = (ends[0] - ends[1]) / (2 * step)
            cell.rebind(tb.asarray(value))
        assert_within(analytic, numeric, bound, name)


def test_linear_and_convolution_values():
    x, w, b = RNG.standard_normal((2, 3, 5, 6)), RNG.standard_normal((4, 3, 3, 2)), RNG.standard_normal(4)
    layer = nn.Conv2d(3, 4, (3, 2), stride=(2, 1), padding=(1, 0), dtype=tb.float64)
    layer.load_state_dict({"weight": tb.asarray(w), "bias": tb.asarray(b)})
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 0)))
    want, size = np.zeros((2, 2, 4, 3, 5))
    for i in range(3):
        for j in range(5):
            patch = padded[:, :, 2 * i : 2 * i + 3, j : j + 2]
            want[:, :, i, j] = np.einsum("ncij,ocij->no", patch, w) + b
            size[:, :, i, j] = np.einsum("ncij,ocij->no", abs(patch), abs(w)) + abs(b)
    bound = gamma(w[0].size + 1, "float64") * size
    assert_within(layer(tb.asarray(x)).detach().numpy(), want, bound)
    assert_within(layer(tb.asarray(x[0])).detach().numpy(), want[0], bound[0])
    linear = nn.Linear(6, 2, dtype=tb.float64)
    weight, bias = linear.weight.detach().numpy(), linear.bias.detach().numpy()
    bound = of_product(x, weight.T, "float64") + gamma(1, "float64") * abs(bias)
    assert_within(linear(tb.asarray(x)).detach().numpy(), x @ weight.T + bias, bound)


def test_padding_same_keeps_the_size():
    assert nn.Conv2d(1, 1, 4, padding="same")(tb.ones((1, 1, 7, 5))).shape == (1, 1, 7, 5)
    assert nn.Conv1d(1, 1, 3, padding="same", dilation=2)(tb.ones((1, 1, 7))).shape == (1, 1, 7)
    assert nn.Conv1d(1, 1, 3, padding="valid")(tb.ones((1, 1, 7))).shape == (1, 1, 5)


@pytest.mark.parametrize("momentum", [0.1, None])
def test_batch_norm_follows_its_batches(momentum: float | None):
    layer = nn.BatchNorm2d(3, momentum=momentum, dtype=tb.float64)
    mean, variance = np.zeros(3), np.ones(3)
    rounded, largest = gamma(2 * 16 + 8, "float64"), 1.0  # a mean, a mean of squares, and what follows
    for count in range(1, 4):
        x = RNG.standard_normal((4, 3, 2, 2)) * 2 + 1
        out = layer(tb.asarray(x)).detach().numpy()
        shift, spread = x.mean((0, 2, 3)), x.var((0, 2, 3))
        want = (x - shift[:, None, None]) / np.sqrt(spread[:, None, None] + 1e-5)
        size = (abs(x) + abs(x).mean((0, 2, 3), keepdims=True)) / np.sqrt(spread[:, None, None])
        assert_within(out, want, rounded * size)
        largest = max(largest, float(abs(x).max()))
        share = 1 / count if momentum is None else momentum
        mean = (1 - share) * mean + share * shift
        variance = (1 - share) * variance + share * spread * 16 / 15
    assert_within(layer.running_mean.numpy(), mean, rounded * largest)
    assert_within(layer.running_var.numpy(), variance, rounded * largest**2)
    assert layer.num_batches_tracked.item() == 3
    x = RNG.standard_normal((1, 3, 1, 1))
    want = (x - mean[:, None, None]) / np.sqrt(variance[:, None, None] + 1e-5)
    size = (abs(x) + largest) * largest**2 / variance[:, None, None] ** 1.5
    assert_within(layer.eval()(tb.asarray(x)).detach().numpy(), want, rounded * size)
    assert layer.num_batches_tracked.item() == 3
    assert not layer.running_mean.requires_grad
    layer.reset_running_stats()
    assert layer.running_var.tolist() == [1.0, 1.0, 1.0]


def test_batch_norm_without_running_statistics_always_uses_the_batch():
    layer = nn.BatchNorm1d(2, track_running_stats=False)
    assert list(layer.state_dict()) == ["weight", "bias"]
    x = tb.randn(5, 2)
    assert layer(x).tolist() == layer.eval()(x).tolist()


def test_dropout_scales_what_it_keeps_and_repeats_with_its_seed():
    layer, x = nn.Dropout(0.25), tb.ones((100, 100))
    tb.manual_seed(1)
    first = layer(x).numpy()
    tb.manual_seed(1)
    assert (layer(x).numpy() == first).all()
    assert (layer(x).numpy() != first).any()
    assert set(np.unique(first)) == {np.float32(0), np.float32(4 / 3)}
    assert abs((first == 0).mean() - 0.25) < 0.02
    assert layer.eval()(x) is x
    y = tb.ones((50,)).requires_grad_()
    out = functional.dropout(y, 0.5)
    out.sum().backward()
    assert y.grad is not None
    assert y.grad.tolist() == out.tolist()
    assert functional.dropout(x, 1.0).numpy().max() == 0


def test_inplace_activations_change_their_input():
    x = tb.asarray([-1.0, 1.0])
    before = x.detach().clone()
    assert nn.ReLU(inplace=True)(x) is x
    assert x.tolist() == [0.0, 1.0]
    assert before.tolist() == [-1.0, 1.0]


def log_softmax(x: np.ndarray[Any, Any]) -> Any:
    return x - x.max(1, keepdims=True) - np.log(np.exp(x - x.max(1, keepdims=True)).sum(1, keepdims=True))


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weighted_classes", [False, True])
def test_cross_entropy_is_the_weighted_mean_over_targets_that_count(smoothing: float, weighted_classes: bool):
    x, target = RNG.standard_normal((6, 4)), np.array([0, 3, 1, 2, 1, 0])
    factors = np.array([1.0, 2.0, 0.5, 1.5]) if weighted_classes else np.ones(4)
    logs = log_softmax(x)
    mask = target != 1
    chosen = -logs[np.arange(6), target] * factors[target]
    smooth = -(logs * factors).sum(1)
    losses = ((1 - smoothing) * chosen + smoothing / 4 * smooth) * mask
    want = losses.sum() / (factors[target] * mask).sum()
    # An exponential each, their sum and its logarithm, then the terms: of the size of these at most.
    bound = gamma(x.size + 8, "float64") * (abs(x).max() + abs(logs).max()) * factors.max()
    weight = tb.asarray(factors) if weighted_classes else None
    loss = nn.CrossEntropyLoss(weight, ignore_index=1, label_smoothing=smoothing)
    assert loss(tb.asarray(x), tb.asarray(target)).item() == pytest.approx(want, rel=0, abs=bound)
    total = nn.CrossEntropyLoss(weight, ignore_index=1, label_smoothing=smoothing, reduction="sum")
    assert total(tb.asarray(x), tb.asarray(target)).item() == pytest.approx(
        losses.sum(), rel=0, abs=6 * bound
    )
    shares = nn.CrossEntropyLoss(weight, label_smoothing=smoothing)
    onehot = np.eye(4)[target]
    want = -(logs * factors * (onehot * (1 - smoothing) + smoothing / 4)).sum(1).mean()
    assert shares(tb.asarray(x), tb.asarray(onehot)).item() == pytest.approx(want, rel=0, abs=bound)


def test_mse():
    x, y = RNG.standard_normal((3, 2)), RNG.standard_normal((3, 2))
    want = ((x - y) ** 2).mean()  # of positive terms, so that the error is relative
    assert nn.MSELoss()(tb.asarray(x), tb.asarray(y)).item() == pytest.approx(
        want, rel=gamma(x.size + 4, "float64"), abs=0
    )
    assert nn.MSELoss("none")(tb.asarray(x), tb.asarray(y)).shape == (3, 2)


ERRORS: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: nn.Linear(0, 2), tb.ArgumentError, "in_features must be an integer >= 1, got 0"),
    (lambda: nn.Linear(2, 2.0), tb.ArgumentError, "out_features"),
    (lambda: nn.Linear(3, 2)(tb.ones((4, 2))), tb.ShapeError, r"\(4, 2\).*\(2, 3\)"),
    (lambda: nn.Linear(3, 2)(tb.ones((3,), dtype=tb.float64).reshape(())), tb.ShapeError, r"shape \(\)"),
    (lambda: nn.Conv2d(3, 4, 2, groups=2), tb.ArgumentError, "groups must divide"),
    (lambda: nn.Conv2d(2, 4, (2, 2, 2)), tb.ShapeError, "Conv2d: kernel_size"),
    (
        lambda: nn.Conv2d(2, 4, 2, padding_mode="mirror"),
        tb.ArgumentError,
        "zeros, reflect, replicate, circular",
    ),
    (lambda: nn.Conv2d(2, 4, 2, padding="some"), tb.ArgumentError, "'same' or 'valid', got 'some'"),
    (lambda: nn.Conv2d(2, 4, 2, stride=2, padding="same"), tb.ArgumentError, "needs stride 1"),
    (lambda: nn.Conv2d(2, 4, 2)(tb.ones((1, 3, 4, 4))), tb.ShapeError, "3 channels"),
    (lambda: nn.Conv2d(2, 4, 2)(tb.ones((4, 4))), tb.ShapeError, "conv2d: an input of 4 dimensions"),
    (lambda: nn.BatchNorm2d(3)(tb.ones((2, 3))), tb.ShapeError, "BatchNorm2d: an input of 4 dimensions"),
    (lambda: nn.BatchNorm1d(3)(tb.ones((2, 4))), tb.ShapeError, "has 4 elements, got shape"),
    (lambda: nn.BatchNorm1d(3)(tb.ones((1, 3))), tb.ShapeError, "more than one value per channel"),
    (lambda: nn.LayerNorm(3)(tb.ones((3, 4))), tb.ShapeError, "layer_norm"),
    (lambda: nn.LayerNorm(()), tb.ArgumentError, "normalized_shape"),
    (lambda: nn.Dropout(1.5), tb.ArgumentError, r"lies in \[0, 1\], got 1.5"),
    (lambda: functional.dropout(tb.ones((1,)), -0.1), tb.ArgumentError, "got -0.1"),
    (lambda: nn.GELU("fast"), tb.ArgumentError, "'none' or 'tanh', got 'fast'"),
    (lambda: nn.MaxPool2d(9)(tb.ones((1, 4, 4))), tb.ShapeError, "does not fit"),
    (lambda: nn.CrossEntropyLoss(reduction="max"), tb.ArgumentError, "got 'max'"),
    (lambda: nn.CrossEntropyLoss(label_smoothing=2), tb.ArgumentError, "label_smoothing"),
    (lambda: nn.CrossEntropyLoss()(tb.ones((2, 3)), tb.asarray([1])), tb.ShapeError, "target"),
]


@pytest.mark.parametrize(("attempt", "kind", "text"), ERRORS, ids=[f"{k}" for k in range(len(ERRORS))])
def test_errors_say_what_is_wrong(attempt: Callable[[], Any], kind: type[Exception], text: str):
    with pytest.raises(kind, match=text):
        attempt()
