"""Recurrent layers over sequences of different lengths: each is computed as if it were alone."""

from __future__ import annotations

import math

import pytest
import tensorbus as tb
from tensorbus import nn
from tensorbus.nn.utils import rnn

from error_bounds import assert_alike

LENGTHS = [4, 2, 5]
ROUNDINGS = 2 * max(LENGTHS) * 16
"""Of two layers of so many steps, each of sums of a dozen."""


def _inputs() -> tb.Tensor:
    """Return a batch whose filling must not be read."""
    tb.manual_seed(3)
    x = tb.randn(3, 6, 3)
    for row, length in enumerate(LENGTHS):
        x[row, length:] = math.nan
    return x


@pytest.mark.parametrize("layer", [nn.RNN, nn.LSTM, nn.GRU])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("compiled", [False, True])
def test_each_sequence_is_as_if_alone(layer: type[nn.Module], batch_first: bool, compiled: bool) -> None:
    model = layer(3, 4, 2, batch_first=batch_first, bidirectional=True)
    x = _inputs()

    def run(x: tb.Tensor) -> tuple[tb.Tensor, tb.Tensor]:
        packed = rnn.pack_padded_sequence(x, LENGTHS, batch_first=batch_first, enforce_sorted=False)
        out, state = model(packed)
        padded, ends = rnn.pad_packed_sequence(out, batch_first=batch_first, padding_value=7.0)
        assert ends.tolist() == LENGTHS if not compiled else True
        return padded, state[0] if isinstance(state, tuple) else state

    run = tb.compile(run) if compiled else run
    for _ in range(3):
        out, state = run(x if batch_first else x.swapaxes(0, 1))
    out = out if batch_first else out.swapaxes(0, 1)
    assert out.shape == (3, 5, 8)
    for row, length in enumerate(LENGTHS):
        alone, last = model(x[row, :length])
        assert_alike(out[row, :length], alone, ROUNDINGS)
        assert_alike(state[:, row], last[0] if isinstance(last, tuple) else last, ROUNDINGS)
        assert (out[row, length:] == 7).all()


def test_gradients_are_those_of_each_alone() -> None:
    model = nn.LSTM(3, 4, bidirectional=True)
    x = _inputs().swapaxes(0, 1)
    out, _ = model(rnn.pack_padded_sequence(x, tb.asarray(LENGTHS)))
    rnn.pad_packed_sequence(out)[0].sum().backward()
    results = [p.grad for p in model.parameters()]
    model.zero_grad()
    for row, length in enumerate(LENGTHS):
        model(x[:length, row])[0].sum().backward()
    for grad, p in zip(results, model.parameters(), strict=True):
        assert_alike(grad, p.grad, ROUNDINGS)


def test_sequences_are_packed_and_told_apart_again() -> None:
    rows = [tb.asarray([1.0, 2.0]), tb.asarray([3.0, 4.0, 5.0])]
    packed = rnn.pack_sequence(rows, enforce_sorted=False)
    assert isinstance(packed, rnn.PackedSequence)
    padded, ends = rnn.pad_packed_sequence(packed, batch_first=True, padding_value=-1.0, total_length=4)
    assert padded.tolist() == [[1.0, 2.0, -1.0, -1.0], [3.0, 4.0, 5.0, -1.0]]
    again = rnn.unpad_sequence(padded, ends, batch_first=True)
    assert [x.tolist() for x in again] == [[1.0, 2.0], [3.0, 4.0, 5.0]]
    with pytest.raises(tb.ShapeError, match="total_length must be at least 3, got 2"):
        rnn.pad_packed_sequence(packed, total_length=2)


@pytest.mark.parametrize("lengths", [[1, 2], [0, 1, 2], [7, 1, 1]])
def test_lengths_that_do_not_fit(lengths: list[int]) -> None:
    with pytest.raises(tb.ShapeError, match=r"3 lengths from 1 to 6 are needed for an input of shape"):
        rnn.pack_padded_sequence(tb.ones((3, 6, 3)), lengths, batch_first=True)
