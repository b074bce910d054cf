"""Connectionist temporal classification on every device, against a sum over all ways there are."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tensorbus as tb

from error_bounds import assert_within, gamma, of_difference
from samples import Array

LABELS = [[1, 1, 3], [2, 3, 0], [3, 0, 0], [0, 0, 0]]
LENGTHS = [3, 2, 1, 0]
TIMES = [5, 3, 4, 2]
ROUNDED = gamma(3 * max(TIMES) + 4, "float32")
"""Of three ways to a state at each time; a logarithm is as far off as its number is, relatively."""


def assert_near(actual: Any, wanted: Any) -> None:
    assert_within(actual, wanted, ROUNDED * (1 + np.abs(wanted)))


def logs(time: int = 5, batch: int = 4, classes: int = 4) -> Array:
    scores = np.random.default_rng(3).normal(size=(time, batch, classes))
    return scores - np.log(np.exp(scores).sum(-1, keepdims=True))


def by_all_ways(logs: Array, labels: list[int], blank: int = 0) -> float:
    """Return the loss of one sequence: every way through time that reads as the labels counts."""
    total = 0.0
    for way in itertools.product(range(logs.shape[1]), repeat=logs.shape[0]):
        read = [k for k, _ in itertools.groupby(way) if k != blank]
        if read == labels:
            total += float(np.exp(logs[range(len(way)), way].sum()))
    return -float(np.log(total)) if total else np.inf


def expected(x: Array) -> list[float]:
    return [by_all_ways(x[:t, k], LABELS[k][:n]) for k, (t, n) in enumerate(zip(TIMES, LENGTHS, strict=True))]


def loss(device: str, x: Any, **options: Any) -> Any:
    at = x if isinstance(x, tb.Tensor) else tb.asarray(x, dtype="float32", device=device)
    targets = tb.asarray(LABELS, device=device)
    return tb.nn.functional.ctc_loss(at, targets, TIMES, LENGTHS, **options)


def test_values(device: str) -> None:
    x = logs()
    actual = loss(device, x, reduction="none")
    assert_near(actual.numpy(), expected(x))
    assert_near(loss(device, x, reduction="sum").item(), sum(expected(x)))
    mean = np.mean([v / max(n, 1) for v, n in zip(expected(x), LENGTHS, strict=True)])
    assert_near(loss(device, x).item(), mean)
    at, targets = tb.asarray(x, dtype="float32", device=device), tb.asarray(LABELS, device=device)
    assert_near(tb.nn.CTCLoss()(at, targets, TIMES, LENGTHS).item(), mean)


def test_forms_of_the_arguments(device: str) -> None:
    x = logs()
    at = tb.asarray(x, dtype="float32", device=device)
    row = tb.asarray(
        [k for labels, n in zip(LABELS, LENGTHS, strict=True) for k in labels[:n]], device=device
    )
    f = tb.nn.functional.ctc_loss
    lengths = tb.asarray(TIMES, device=device), tb.asarray(LENGTHS, device=device)
    for actual in (f(at, row, TIMES, LENGTHS, reduction="none"),
                  f(at, row, *lengths, reduction="none"),
                  f(at, tb.asarray(LABELS, device=device), *lengths, reduction="none")):  # fmt: skip
        assert_near(actual.numpy(), expected(x))
    alone = f(at[:, 0], tb.asarray([1, 1, 3], device=device), 5, 3, reduction="none")
    assert alone.shape == ()
    assert_near(alone.item(), expected(x)[0])
    other = f(at[:, 0], tb.asarray([0, 1], device=device), 5, 2, blank=2)
    assert_near(other.item(), by_all_ways(x[:, 0], [0, 1], blank=2) / 2)


def test_what_cannot_be_aligned(device: str) -> None:
    at = tb.asarray(logs(2, 2), dtype="float32", device=device).requires_grad_()
    targets = tb.asarray([[1, 1], [1, 2]], device=device)
    f = tb.nn.functional.ctc_loss
    assert f(at, targets, [2, 2], [2, 2], reduction="none").tolist()[0] == np.inf
    out = f(at, targets, [2, 2], [2, 2], reduction="none", zero_infinity=True)
    assert out.tolist()[0] == 0.0
    out.sum().backward()
    assert at.grad is not None
    assert not np.any(at.grad.numpy()[:, 0])
    assert np.all(np.isfinite(at.grad.numpy()))
    never = tb.asarray([[[0.0, -np.inf]]], device=device)
    assert f(never, tb.asarray([[1]], device=device), [1], [1]).item() == np.inf
    assert f(at, targets, [0, 0], [0, 1], reduction="none").tolist() == [0.0, np.inf]


def test_gradient(device: str) -> None:
    x = logs()
    at = tb.asarray(x, dtype="float32", device=device).requires_grad_()
    loss(device, at, reduction="sum").backward()
    assert at.grad is not None
    actual, step = at.grad.numpy(), 1e-6
    for place in ((0, 0, 1), (2, 1, 3), (4, 0, 0), (3, 2, 2), (4, 1, 1), (1, 3, 0)):
        above, below = x.copy(), x.copy()
        above[place] += step
        below[place] -= step
        slope = (sum(expected(above)) - sum(expected(below))) / (2 * step)
        # Where it is as large as what it is made of: shares of all ways, which are rounded like the loss.
        losses = sum(expected(x))
        bound = of_difference(losses, step, 10.0) + ROUNDED * (1 + losses)
        assert_within(actual[place], slope, bound)


Argument = tb.errors.ArgumentError
WRONG: dict[str, tuple[tuple[Any, ...], type[Exception], str]] = {
    "rank": (((3,), [[1]], [3], [1]), tb.ShapeError, r"log_probs is \(time, \[batch,\] classes\)"),
    "batch": (((3, 2, 4), [[1]], [3, 3], [1, 1]), tb.ShapeError, "targets for 2 inputs"),
    "a time too long": (((3, 1, 4), [[1]], [4], [1]), Argument, r"input_lengths must be .* in \[0, 3\]"),
    "a length too long": (((3, 1, 4), [[1]], [3], [2]), Argument, r"target_lengths must be .* in \[0, 1\]"),
    "how many lengths": (((3, 1, 4), [[1]], [3, 3], [1]), tb.ShapeError, "input_lengths needs 1 integers"),
    "the row": (((3, 2, 4), [1, 2, 3], [3, 3], [1, 1]), tb.ShapeError, "add up to 2, targets have 3"),
    "blank": (((3, 1, 4), [[1]], [3], [1], 4), Argument, r"blank must be in \[0, 4\)"),
    "float targets": (((3, 1, 4), [[1.5]], [3], [1]), tb.DtypeError, "integer targets are needed"),
    "reduction": (((3, 1, 4), [[1]], [3], [1], 0, "most"), Argument, "reduction must be"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(device: str, name: str) -> None:
    (shape, targets, *rest), error, text = WRONG[name]
    with pytest.raises(error, match=text):
        tb.nn.functional.ctc_loss(tb.zeros(shape, device=device), tb.asarray(targets, device=device), *rest)
