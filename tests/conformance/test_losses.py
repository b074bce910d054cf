"""Losses on every device against NumPy, and the targets they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorbus as tb

from agreement import check
from error_bounds import assert_alike

LOGITS = np.random.default_rng(0).normal(size=(5, 4, 3)).astype(np.float32)
TARGET = np.random.default_rng(1).integers(0, 4, size=(5, 3))
TARGET[0, 0] = TARGET[3, 1] = -100
WEIGHT = np.array([0.5, 1.0, 2.0, 0.25], np.float32)


def reference(weight: Any, smoothing: float, reduction: str) -> Any:
    x = LOGITS.astype(np.float64)
    logs = x - np.log(np.exp(x).sum(1, keepdims=True))
    w = np.ones(4) if weight is None else weight.astype(np.float64)
    losses, factors = np.zeros(TARGET.shape), np.zeros(TARGET.shape)
    for k, j in np.ndindex(*TARGET.shape):
        if TARGET[k, j] >= 0:
            share = np.full(4, smoothing / 4)
            share[TARGET[k, j]] += 1 - smoothing
            losses[k, j] = -(share * w * logs[k, :, j]).sum()
            factors[k, j] = w[TARGET[k, j]]
    return {"none": losses, "sum": losses.sum(), "mean": losses.sum() / factors.sum()}[reduction]


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
def test_cross_entropy(device: str, weight: Any, smoothing: float, reduction: Any) -> None:
    x, target = tb.asarray(LOGITS, device=device), tb.asarray(TARGET, device=device)
    w = None if weight is None else tb.asarray(weight, device=device)
    actual = tb.cross_entropy(x, target, w, reduction=reduction, label_smoothing=smoothing)
    check(actual.numpy(), reference(weight, smoothing, reduction), 32, 1.0)


@pytest.mark.parametrize("name", ["uint8", "int8", "int32", "int64"])
def test_targets_of_any_integer(device: str, name: str) -> None:
    x = tb.asarray([[0.0, 0.0], [1.0, 1.0]], device=device)
    target = tb.asarray([0, 1], dtype=name, device=device)
    assert abs(tb.cross_entropy(x, target).item() - np.log(2)) < 1e-6
    assert tb.nll_loss(x, target).item() == -0.5


def test_classes_as_floats_are_told_to_be_integers(device: str) -> None:
    x, target = tb.ones((4, 3), device=device), tb.asarray([0.0, 1, 2, 1], device=device)
    with pytest.raises(
        tb.ShapeError, match=r"a target of float32 .* \(4, 3\), got \(4,\); .* target.long\(\)"
    ):
        tb.nn.functional.cross_entropy(x, target)


def test_probabilities_as_targets(device: str) -> None:
    x = tb.asarray([[1.0, 2.0], [0.0, -1.0]], device=device)
    shares = tb.asarray([[0.25, 0.75], [1.0, 0.0]], device=device)
    logs = np.log(np.exp(x.numpy()) / np.exp(x.numpy()).sum(1, keepdims=True))
    check(tb.cross_entropy(x, shares).numpy(), -(shares.numpy() * logs).sum(1).mean(), 16, 1.0)


@pytest.mark.parametrize("wrong", [4, -1, 1000])
def test_a_class_that_is_not_there(device: str, wrong: int) -> None:
    x, target = tb.asarray(LOGITS[:, :, 0], device=device), tb.asarray([0, 1, 2, 3, wrong], device=device)
    for loss in (tb.cross_entropy, tb.nll_loss):
        with pytest.raises(IndexError, match="out of range"):
            loss(x, target).item()


def test_everything_ignored(device: str) -> None:
    x, target = tb.asarray(LOGITS[:, :, 0], device=device), tb.full((5,), -100, device=device)
    assert tb.cross_entropy(x, target, reduction="sum").item() == 0.0
    assert np.isnan(tb.cross_entropy(x, target).item())


def test_mse(device: str) -> None:
    x, y = tb.asarray([1.0, 2.0], device=device), tb.asarray([0.0, 4.0], device=device)
    assert (tb.mse_loss(x, y).item(), tb.mse_loss(x, y, reduction="sum").item()) == (2.5, 5.0)
    with pytest.raises(tb.ArgumentError, match="reduction must be"):
        tb.mse_loss(x, y, reduction="most")


def test_an_ignored_row_may_hold_infinities(device: str) -> None:
    x = tb.asarray([[-np.inf, 0.0, 1.0], [1.0, 2.0, 3.0]], device=device).requires_grad_()
    loss = tb.cross_entropy(x, tb.asarray([-100, 1], device=device))
    assert_alike(loss.item(), float(np.log(np.exp([-1.0, 0.0, 1.0]).sum())), roundings=8)
    loss.backward()
    assert x.grad is not None
    assert x.grad.tolist()[0] == [0.0, 0.0, 0.0]
