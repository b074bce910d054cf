"""``nn.utils``: parameters as one vector, clipping, padded sequences."""

from __future__ import annotations

import pytest
import tensorbus as tb
from tensorbus import nn
from tensorbus.nn.utils import parameters_to_vector, vector_to_parameters
from tensorbus.nn.utils.rnn import pad_sequence


def test_names_of_others() -> None:
    assert nn.utils.clip_grad_norm_ is tb.optim.clip_grad_norm_
    assert nn.utils.clip_grad_value_ is tb.optim.clip_grad_value_
    assert nn.utils.parametrize is nn.parametrize
    assert {"clip_grad_norm_", "rnn", "vector_to_parameters"} <= set(dir(nn.utils))
    with pytest.raises(AttributeError, match="clip_grad"):
        nn.utils.clip_grad  # noqa: B018 - to be refused


def test_parameters_as_a_vector() -> None:
    model = nn.Linear(2, 3)
    vector = parameters_to_vector(model.parameters())
    assert vector.tolist() == [*model.weight.flatten().tolist(), *model.bias.tolist()]
    vector.sum().backward()
    assert model.bias.grad.tolist() == [1.0] * 3
    vector_to_parameters(tb.arange(9), model.parameters())
    assert (model.weight.tolist(), model.bias.tolist()) == ([[0, 1], [2, 3], [4, 5]], [6, 7, 8])
    assert model.bias.dtype is tb.float32
    assert model.bias.requires_grad
    with pytest.raises(tb.ShapeError, match="have 9 elements"):
        vector_to_parameters(tb.ones(8), model.parameters())
    with pytest.raises(tb.ShapeError, match="there is no parameter"):
        parameters_to_vector([])


def test_sequences_side_by_side() -> None:
    first, second = tb.ones((3, 2)).requires_grad_(), tb.full((1, 2), 5.0)
    result = pad_sequence([first, second])
    assert result.shape == (3, 2, 2)
    assert result[:, 1].tolist() == [[5.0, 5.0], [0.0, 0.0], [0.0, 0.0]]
    result.sum().backward()
    assert first.grad.tolist() == [[1.0, 1.0]] * 3
    rows = [tb.asarray([1, 2, 3]), tb.asarray([4]), tb.asarray([], dtype=tb.int64)]
    assert pad_sequence(rows, True, -1.0, "left").tolist() == [[1, 2, 3], [-1, -1, 4], [-1, -1, -1]]
    for wrong in ([], [tb.ones((1, 2)), tb.ones((1, 3))], [tb.ones(())]):
        with pytest.raises(tb.ShapeError, match="sequences"):
            pad_sequence(wrong)
    with pytest.raises(tb.ArgumentError, match="padding_side"):
        pad_sequence(rows, padding_side="up")
