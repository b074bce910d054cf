"""Calls at the edges that PyTorch allows or refuses: single numbers, empty batches, integers, names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import nn

from error_bounds import assert_alike

F = nn.functional


def test_single_numbers(device: str) -> None:
    x = tb.asarray(-2.0, device=device)
    for weight in (0.25, [0.25]):
        result = F.prelu(x, tb.asarray(weight, device=device))
        assert (result.shape, result.item()) == ((), -0.5)
    for dim in (0, -1):
        assert F.softmax(x, dim).tolist() == F.softmin(x, dim).tolist() == 1.0
        assert F.log_softmax(x, dim).tolist() == 0.0
    with pytest.raises(tb.AxisError, match="0-dimensional"):
        F.softmax(x, 1)


def test_margins_of_one_example(device: str) -> None:
    scores = tb.asarray([0.1, 0.2, 0.3], device=device)
    none, one = (tb.asarray(t, device=device) for t in (1, [1]))
    for target, shape in ((none, ()), (one, (1,))):
        result = F.multi_margin_loss(scores, target, reduction="none")
        assert result.shape == shape
        assert_alike(F.multi_margin_loss(scores, target).item(), 2 / 3, roundings=4)
    assert F.multi_margin_loss(scores[0], none * 0).item() == 0.0
    with pytest.raises(tb.ShapeError, match=r"scores of shape \(3,\) need a target of \(\), got \(2,\)"):
        F.multi_margin_loss(scores, tb.asarray([0, 1], device=device))


@pytest.mark.parametrize(
    ("run", "wanted"),
    [
        (F.relu6, [0, 0, 6]),
        (F.hardtanh, [-1, 0, 1]),
        (lambda x: F.hardtanh(x, -2.5, 5), [-2, 0, 5]),
        (lambda x: F.threshold(x, 1, 20), [20, 20, 7]),
        (lambda x: F.threshold(x, 0.5, 20.7), [20, 20, 7]),
    ],
)
def test_integers_stay_integers(device: str, run: Callable[[Any], Any], wanted: list[int]) -> None:
    x = tb.asarray([-3, 0, 7], dtype=tb.int32, device=device)
    actual = run(x)
    assert (actual.tolist(), actual.dtype) == (wanted, tb.int32)


def test_batches_of_no_examples(device: str) -> None:
    norm = nn.BatchNorm1d(3, device=device)
    out = norm(tb.zeros((0, 3), device=device))
    assert out.shape == (0, 3)
    assert (norm.running_var.tolist(), norm.num_batches_tracked.item()) == ([1.0] * 3, 1)
    out.sum().backward()
    assert norm.weight.grad.tolist() == [0.0] * 3
    assert F.batch_norm(tb.zeros((0, 3, 2), device=device), None, None, training=True).shape == (0, 3, 2)


@pytest.mark.parametrize(
    "module", [nn.Linear(2, 2), nn.ReLU(), nn.Sequential(nn.LayerNorm(2)), nn.Dropout(0.0)]
)
def test_modules_are_given_their_input_by_name(module: nn.Module) -> None:
    assert module(input=tb.ones((1, 2))).shape == (1, 2)


def test_functions_are_given_their_input_by_name() -> None:
    x = tb.ones((1, 2))
    assert F.gelu(input=x).tolist() == F.gelu(x).tolist()
    assert F.glu(input=x).shape == (1, 1)
    assert F.softplus(input=x).shape == F.hardshrink(input=x).shape == (1, 2)


def test_widths_below_zero(device: str) -> None:
    with pytest.raises(tb.ArgumentError, match=r"softshrink: lambd must be >= 0, got -1\.0"):
        F.softshrink(tb.ones(2, device=device), -1.0)


def test_complex_results_need_a_gradient_to_start_from(device: str) -> None:
    z = tb.asarray(1 + 1j, device=device).requires_grad_()
    with pytest.raises(tb.AutogradError, match="real outputs only, this one is complex64"):
        (z * 2).backward()
    (z * 2).backward(tb.asarray(1 + 0j, device=device))
    assert z.grad.item() == 2


def test_parts_by_their_axis_say_what_is_wrong(device: str) -> None:
    x = tb.ones((2, 3), device=device)
    for call, error, message in (
        (lambda: x.hsplit(2), tb.ShapeError, r"hsplit: 2 equal parts are not possible along axis 1 of shape"),
        (lambda: x.vsplit(0), tb.ArgumentError, "vsplit: "),
        (lambda: tb.dsplit(x, 1), tb.ShapeError, r"dsplit: at least 3 dimension\(s\) are needed, got shape"),
        (lambda: tb.hsplit(tb.ones((), device=device), 1), tb.ShapeError, "hsplit: at least 1 dimension"),
    ):
        with pytest.raises(error, match=message):
            call()
    left, _ = x.vsplit(2)
    left.zero_()  # the parts are views
    assert x.tolist() == [[0.0] * 3, [1.0] * 3]


@pytest.mark.parametrize("compiled", [False, True])
def test_a_source_too_short_for_its_mask(compiled: bool, device: str) -> None:
    function = tb.compile(tb.masked_scatter) if compiled else tb.masked_scatter
    x, mask = tb.zeros(4, device=device), tb.asarray([True, False, True, True], device=device)
    function(x, mask, tb.ones(3, device=device)).tolist()
    with pytest.raises(tb.IndexingError, match=r"source has 2 elements, the mask picks|index 2 is out of"):
        function(x, mask, tb.ones(2, device=device)).tolist()


def test_areas_of_small_integers_do_not_wrap(device: str) -> None:
    y, x = np.array([200, 3, 250], np.uint8), np.array([9, 5, 1], np.uint8)
    heights, places = tb.asarray(y, device=device), tb.asarray(x, device=device)
    assert tb.trapezoid(heights).item() == np.trapezoid(y.astype(float))
    assert tb.trapezoid(heights, places).item() == np.trapezoid(y.astype(float), x.astype(float))
    assert tb.cumulative_trapezoid(heights).tolist() == [101.5, 228.0]
    late = tb.asarray([1_600_000_000, 1_600_000_003], device=device)  # of which float32 has no difference
    assert tb.trapezoid(tb.ones(2, device=device), late).item() == 3
