"""``AdaptiveLogSoftmaxWithLoss`` against a plain softmax over its clusters, on every device."""

from __future__ import annotations

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import nn

from error_bounds import assert_within, gamma

WIDTH, CLASSES, CUTOFFS = 12, 30, [4, 10, 20]
ROUNDED = gamma(2 * WIDTH + CLASSES, "float32")
"""Of two products and the sum of a softmax, relative to the largest logarithm."""


def logs(scores):
    scores = scores - scores.max(axis=-1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(axis=-1, keepdims=True))


def expected(layer, x):
    """Return the log-probabilities of all classes in float64."""
    state = {k: v.numpy().astype(np.float64) for k, v in layer.state_dict().items()}
    head = logs(x @ state["head.weight"].T + state.get("head.bias", 0.0))
    parts = [head[:, : CUTOFFS[0]]]
    for k in range(len(CUTOFFS)):
        own = x @ state[f"tail.{k}.0.weight"].T @ state[f"tail.{k}.1.weight"].T
        parts.append(logs(own) + head[:, CUTOFFS[0] + k, None])
    return np.concatenate(parts, axis=1)


def layer_and_input(device, **settings):
    tb.manual_seed(1)
    layer = nn.AdaptiveLogSoftmaxWithLoss(WIDTH, CLASSES, CUTOFFS, 2.0, device=device, **settings)
    return layer, np.random.default_rng(2).standard_normal((9, WIDTH)).astype(np.float32)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("head_bias", [False, True])
@pytest.mark.parametrize("target", [[0, 29, 4, 10, 19, 3, 9, 20, 1], [0, 1, 2, 3, 0, 1, 2, 3, 0], [25] * 9])
def test_log_probabilities_of_targets_and_the_loss(target, head_bias, compiled, device) -> None:
    layer, x = layer_and_input(device, head_bias=head_bias)
    run = tb.compile(layer) if compiled else layer
    wanted = expected(layer, x)
    operand, classes = tb.asarray(x, device=device), tb.asarray(target, device=device)
    for _ in range(2):
        out = run(operand, classes)
        chosen = wanted[np.arange(9), target]
        assert_within(out.output.detach().numpy(), chosen, ROUNDED * abs(chosen).max())
        assert_within(out.loss.item(), -chosen.mean(), ROUNDED * abs(chosen).max())


def test_all_probabilities_and_predictions(device) -> None:
    layer, x = layer_and_input(device, head_bias=True)
    with tb.no_grad():
        layer.head.bias.rebind(tb.asarray([0.0] * 4 + [0.5, 0.0, 0.0], device=device))
    wanted, operand = expected(layer, x), tb.asarray(x, device=device)
    actual = layer.log_prob(operand).detach().numpy()
    assert_within(actual, wanted, ROUNDED * abs(wanted).max())
    assert_within(np.exp(actual.astype("f8")).sum(1), np.ones(9), ROUNDED * abs(wanted).max())
    actual = layer.predict(operand)
    scores = x.astype(np.float64) @ layer.head.weight.numpy().T + layer.head.bias.numpy()
    short = scores.argmax(1)
    assert (short < CUTOFFS[0]).any()
    assert (short >= CUTOFFS[0]).any()
    assert actual.tolist() == np.where(short < CUTOFFS[0], short, wanted.argmax(1)).tolist()
    assert not actual.requires_grad


def test_one_example(device) -> None:
    layer, x = layer_and_input(device)
    operand = tb.asarray(x, device=device)
    whole = layer(operand, tb.asarray([7] * 9, device=device)).output
    one = layer(operand[2], tb.asarray(7, device=device))
    assert one.output.shape == ()
    assert_within(one.output.item(), whole[2].item(), 2 * ROUNDED * abs(whole[2].item()))
    assert layer.predict(operand[2]).item() == layer.predict(operand)[2].item()


def test_gradients_are_those_of_the_plain_softmax(device) -> None:
    layer, x = layer_and_input(device)
    target = tb.asarray([0, 29, 4, 10, 19, 3, 9, 20, 1], device=device)
    actual = tb.asarray(x, device=device).requires_grad_()
    layer(actual, target).loss.backward()
    got = [actual.grad.numpy(), *(p.grad.numpy() for p in layer.parameters())]
    actual.grad = None
    layer.zero_grad()
    nn.functional.nll_loss(layer.log_prob(actual), target).backward()
    wanted = [actual.grad.numpy(), *(p.grad.numpy() for p in layer.parameters())]
    for a, b in zip(got, wanted, strict=True):
        assert_within(a, b, 2 * ROUNDED * abs(b).max())


@pytest.mark.parametrize("target", [[-1] * 9, [30] + [0] * 8, [5] * 8 + [100]])
def test_targets_that_are_no_classes(target, device) -> None:
    layer, x = layer_and_input(device)
    with pytest.raises(tb.IndexingError, match="from 0 to 29"):
        layer(tb.asarray(x, device=device), tb.asarray(target, device=device))


def test_shapes_that_do_not_fit(device) -> None:
    layer, x = layer_and_input(device)
    for rows in ([1, 2], 3, [[1]] * 9):
        with pytest.raises(tb.ShapeError, match="targets"):
            layer(tb.asarray(x, device=device), tb.asarray(rows, device=device))


@pytest.mark.parametrize("cutoffs", [[], [0, 3], [3, 3], [5, 2], [30], [1.5], [True]])
def test_cutoffs_that_do_not_cut(cutoffs) -> None:
    with pytest.raises(tb.ArgumentError, match="1 to n_classes - 1 = 29"):
        nn.AdaptiveLogSoftmaxWithLoss(WIDTH, CLASSES, cutoffs)
