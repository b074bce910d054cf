"""``linear_cross_entropy`` is the cross entropy of a layer's logits, in chunks that are let go."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import nn

from error_bounds import assert_alike, assert_within, gamma

F = nn.functional
RNG = np.random.default_rng(8)
BATCH, WIDTH, CLASSES = 7, 5, 11
ROUNDED = gamma(2 * (BATCH + WIDTH + CLASSES), "float64")
"""Sums over all three, forward and back, relative to the largest element."""
Chunks = nn.LinearCrossEntropyOptions

CASES: list[tuple[dict[str, Any], tuple[int, ...], bool]] = [  # arguments, places of a loss, probabilities
    ({}, (), False),
    ({"reduction": "sum", "bias": True}, (), False),
    ({"reduction": "none", "weighted": True}, (), False),
    ({"ignore_index": 3, "bias": True, "weighted": True, "label_smoothing": 0.2}, (), False),
    ({"ignore_index": 3, "bias": True, "reduction": "none"}, (2, 3), False),
    ({"weighted": True, "label_smoothing": 0.1}, (2,), True),
    ({"label_smoothing": 0.1, "bias": True, "reduction": "sum"}, (), True),
]
ROWS = [Chunks(1), Chunks(3), Chunks(7), Chunks(100), Chunks(None, "aspect_ratio:3"), None]


def arguments(
    settings: dict[str, Any], space: tuple[int, ...], shares: bool
) -> tuple[list[Any], Any, dict[str, Any]]:
    rest = {k: v for k, v in settings.items() if k not in ("bias", "weighted")}
    shapes = [(BATCH, WIDTH), (CLASSES, *space, WIDTH), *([(CLASSES, *space)] if "bias" in settings else [])]
    layer = [tb.asarray(RNG.standard_normal(s)).requires_grad_() for s in shapes]
    if shares:
        target = tb.softmax(tb.asarray(RNG.standard_normal((BATCH, CLASSES, *space))), axis=1)
    else:
        target = tb.asarray(RNG.integers(0, CLASSES, (BATCH, *space)))
        target[0] = rest.get("ignore_index", 0)
    if "weighted" in settings:
        rest["weight"] = tb.asarray(RNG.random(CLASSES))
    return layer, target, rest


def whole(layer: list[Any], target: Any, rest: dict[str, Any]) -> Any:
    x, matrix, *bias = layer
    logits = F.linear(x, matrix.reshape((-1, WIDTH)), bias[0].reshape(-1) if bias else None)
    return F.cross_entropy(logits.reshape((BATCH, *matrix.shape[:-1])), target, **rest)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("settings", "space", "shares"), CASES)
def test_loss_and_gradients_are_those_of_cross_entropy(
    settings: dict[str, Any], space: tuple[int, ...], shares: bool, compiled: bool
) -> None:
    layer, target, rest = arguments(settings, space, shares)
    expected = whole(layer, target, rest)
    ahead = tb.asarray(RNG.standard_normal(expected.shape))
    want = [expected, *tb.grad(expected, layer, ahead)]

    def step(layer: list[Any], options: Any) -> list[Any]:
        x, matrix, *bias = layer
        loss = F.linear_cross_entropy(
            x, matrix, target, linear_bias=[*bias, None][0], options=options, **rest
        )
        return [loss, *tb.grad(loss, layer, ahead)]

    for options in [Chunks(3), None] if compiled else ROWS:
        got = (tb.compile(step) if compiled else step)(layer, options)
        for a, b in zip(got, want, strict=True):
            size = abs(b.detach().numpy()).max(initial=0.0)
            assert_within(a.detach().numpy(), b.detach().numpy(), ROUNDED * size)


def test_one_example_second_derivatives_and_the_module() -> None:
    loss = nn.LinearCrossEntropyLoss(WIDTH, CLASSES, bias=True, dtype="float64", options=Chunks(2))
    x, target = tb.asarray(RNG.standard_normal((BATCH, WIDTH))), tb.asarray(RNG.integers(0, CLASSES, BATCH))
    want = F.cross_entropy(loss.linear(x), target)
    assert loss(x, target).item() == pytest.approx(want.item(), rel=ROUNDED, abs=0)
    one = F.linear_cross_entropy(x[1], loss.linear.weight, target[1], reduction="none", options=Chunks(1))
    assert one.shape == ()
    assert_alike(one, F.cross_entropy(F.linear(x[1], loss.linear.weight), target[1]), WIDTH + CLASSES)
    x.requires_grad_()
    second = []
    for result in (loss(x, target), F.cross_entropy(loss.linear(x), target)):
        (slope,) = tb.grad(result, x, create_graph=True)
        second.append(tb.grad((slope * slope).sum(), x)[0].numpy())
    assert_within(second[0], second[1], ROUNDED * abs(second[1]).max())
    empty = F.linear_cross_entropy(x[:0], loss.linear.weight, target[:0], reduction="sum")
    assert empty.item() == 0.0


def test_all_logits_are_never_in_memory() -> None:
    rows, classes = 64, 2048
    device = tb.device("refdev")
    x, matrix = (tb.asarray(RNG.random((n, 4)), dtype=tb.float32, device=device) for n in (rows, classes))
    target = tb.asarray(RNG.integers(0, classes, rows), device=device)
    peaks = []
    for size in (rows, 4):
        a, b = (v.detach().requires_grad_() for v in (x, matrix))
        device.reset_peak_memory_stats()
        before = device.memory_stats().allocated
        F.linear_cross_entropy(a, b, target, options=Chunks(size)).backward()
        peaks.append(device.memory_stats().peak - before)
    assert peaks[0] >= rows * classes * 4
    assert (
        peaks[1] < rows * classes * 4 / 2
    )  # of which the weight's gradient, computed twice over, is an eighth


def test_16_bit_gradients_are_added_in_float32() -> None:
    x, matrix = (tb.asarray(RNG.standard_normal(s), dtype=tb.bfloat16) for s in ((256, 4), (6, 4)))
    target = tb.asarray(RNG.integers(0, 6, 256))
    errors = []
    exact = matrix.to(tb.float64).requires_grad_()
    (want,) = tb.grad(F.cross_entropy(F.linear(x.to(tb.float64), exact), target), exact)
    for size in (256, 2):
        near = matrix.detach().requires_grad_()
        (got,) = tb.grad(F.linear_cross_entropy(x, near, target, options=Chunks(size)), near)
        errors.append(float(tb.max(tb.abs(got.to(tb.float64) - want))))
    assert errors[1] <= 2 * errors[0] + float(tb.max(tb.abs(want))) * 2**-8


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"input": tb.ones((2, 3, 4))}, tb.ShapeError, r"input of shape \(batch, in\)"),
    ({"linear_weight": tb.ones((5, 3))}, tb.ShapeError, r"\(classes, \*space, 4\) is needed"),
    ({"input": tb.ones(4), "linear_weight": tb.ones((5, 2, 4))}, tb.ShapeError, "has space"),
    ({"linear_bias": tb.ones(4)}, tb.ShapeError, r"linear_bias of shape \(5,\)"),
    ({"target": tb.asarray([1])}, tb.ShapeError, r"target of shape \(2,\), got \(1,\)"),
    ({"target": tb.ones((2, 4))}, tb.ShapeError, r"target of shape \(2, 5\), got \(2, 4\)"),
    ({"target": tb.ones((2, 5)), "ignore_index": 1}, tb.ArgumentError, "holds probabilities"),
    ({"reduction": "most"}, tb.ArgumentError, "got 'most'"),
    ({"label_smoothing": 2.0}, tb.ArgumentError, r"label_smoothing lies in \[0, 1\]"),
    ({"target": tb.asarray([True, False])}, tb.DtypeError, "class indices or probabilities, got bool"),
    ({"weight": tb.ones(3)}, tb.ShapeError, r"a weight of shape \(5,\)"),
]


@pytest.mark.parametrize(("change", "error", "text"), BAD)
def test_what_does_not_fit_is_refused(change: dict[str, Any], error: type[Exception], text: str) -> None:
    fitting = {"input": tb.ones((2, 4)), "linear_weight": tb.ones((5, 4)), "target": tb.asarray([1, 2])}
    with pytest.raises(error, match=f"linear_cross_entropy.*{text}"):
        F.linear_cross_entropy(**{**fitting, **change})


@pytest.mark.parametrize(
    "settings", [(0,), (True,), (2, "aspect_ratio"), (None, "aspect_ratio:0"), (None, "rows")]
)
def test_options_out_of_range(settings: tuple[Any, ...]) -> None:
    with pytest.raises(tb.ArgumentError, match="LinearCrossEntropyOptions"):
        Chunks(*settings)
