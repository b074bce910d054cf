"""Lists and dicts of parameters, and what else modules are asked for."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import nn

from error_bounds import assert_alike, assert_within, gamma

NORM_GUARD = 1e-7  # which PyTorch adds to a norm before it divides


def test_a_list_of_parameters():
    parameters = nn.ParameterList([tb.ones((2,)), nn.Parameter(tb.zeros((3,)))])
    parameters.append(tb.ones((1,)))
    parameters += [tb.ones((4,))]
    assert [p.shape for p in parameters] == [(2,), (3,), (1,), (4,)]
    assert all(isinstance(p, nn.Parameter) for p in parameters)
    assert list(parameters.state_dict()) == ["0", "1", "2", "3"]
    assert parameters[-1].shape == (4,)
    assert [p.shape for p in parameters[1:3]] == [(3,), (1,)]
    parameters[0] = tb.zeros((5,))
    assert parameters[0].shape == (5,)
    with pytest.raises(IndexError, match="index 4"):
        parameters[4]
    with pytest.raises(TypeError, match="holds parameters and tensors"):
        parameters.append(1.0)
    assert "(1): Parameter of float32[3]" in repr(parameters)


def test_a_list_of_lists_of_parameters():
    """As in PyTorch: a list for each layer, of its scales, and None where it has none."""
    parameters = nn.ParameterList([nn.ParameterList([tb.ones((2,)), tb.ones((3,))]), None, tb.zeros((4,))])
    parameters.append(nn.ParameterDict({"a": tb.ones((1,))}))
    assert [p.shape for p in parameters[0]] == [(2,), (3,)]
    assert (len(parameters), parameters[1], parameters[2].shape, parameters[-1]["a"].shape) == (
        4,
        None,
        (4,),
        (1,),
    )
    assert list(parameters.state_dict()) == ["2", "0.0", "0.1", "3.a"]
    parameters[0], parameters[2] = tb.ones((5,)), None
    assert [None if v is None else len(list(v)) for v in parameters] == [5, None, None, 1]
    assert len(list(parameters.parameters())) == 2


def test_a_dict_of_parameters():
    parameters = nn.ParameterDict({"a": tb.ones((2,))})
    parameters["b"] = tb.zeros((3,))
    parameters.update([("c", tb.ones((1,)))])
    assert list(parameters) == list(parameters.keys()) == ["a", "b", "c"]
    assert "b" in parameters
    assert parameters.pop("b").shape == (3,)
    assert parameters.get("b") is None
    assert [(k, v.shape) for k, v in parameters.items() if v is not None] == [("a", (2,)), ("c", (1,))]
    del parameters["a"]
    assert len(parameters) == 1


def test_dtypes_and_buffers():
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).double()
    assert {p.dtype for p in net.parameters()} == {tb.float64}
    assert net.half().get_buffer("1.running_mean").dtype is tb.float16
    assert net.bfloat16().float().get_parameter("0.weight").dtype is tb.float32
    with pytest.raises(AttributeError, match="no buffer '1"):
        net.get_buffer("1.nothing")


def test_copies_of_layers_are_apart():
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8), 2)
    first, second = encoder.layers[0], encoder.layers[1]
    assert first.linear1.weight is not second.linear1.weight
    assert first.linear1.weight.tolist() == second.linear1.weight.tolist()
    hooked = nn.Linear(1, 1)
    hooked.register_forward_hook(lambda m, args, out: out * 0)
    assert copy.deepcopy(hooked)(tb.ones((1,))).item() == 0


def test_recurrent_layers_as_steps_of_their_cells():
    rng = np.random.default_rng(0)
    x = tb.asarray(rng.standard_normal((5, 2, 3)))
    for layer, cell in ((nn.LSTM, nn.LSTMCell), (nn.GRU, nn.GRUCell), (nn.RNN, nn.RNNCell)):
        whole, step = layer(3, 4, dtype=tb.float64), cell(3, 4, dtype=tb.float64)
        state = {k.removesuffix("_l0"): v for k, v in whole.state_dict().items()}
        step.load_state_dict(state)
        hidden = None
        outs, last = whole(x)
        for k in range(5):
            hidden = step(x[k], hidden)
            out = hidden[0] if isinstance(hidden, tuple) else hidden
            assert_alike(outs[k], out, roundings=5 * 16)  # five steps, each of sums of seven
        end = last[0] if isinstance(last, tuple) else last
        assert_alike(end[0], out, roundings=5 * 16)


def test_dropout_between_recurrent_layers():
    net, x = nn.GRU(3, 4, num_layers=2, dropout=0.9), tb.ones((5, 2, 3))
    first, second = net(x)[0], net(x)[0]
    assert first.tolist() != second.tolist()
    net.eval()
    assert net(x)[0].tolist() == net(x)[0].tolist()


def test_an_embedding_leaves_its_padding_alone():
    table = nn.Embedding(4, 2, padding_idx=-1)
    assert table.weight[3].tolist() == [0.0, 0.0]
    table(tb.asarray([3, 1, 1])).sum().backward()
    assert table.weight.grad is not None
    assert table.weight.grad.tolist() == [[0, 0], [2, 2], [0, 0], [0, 0]]
    frozen = nn.Embedding.from_pretrained(tb.ones((3, 2)))
    assert not frozen.weight.requires_grad
    short = nn.Embedding(3, 2, max_norm=1.0, _weight=tb.asarray([[3.0, 4.0], [0.1, 0.0], [6.0, 8.0]]))
    cut = short(tb.asarray([0, 1])).detach().numpy()
    assert_within(cut, [[0.6, 0.8], [0.1, 0]], NORM_GUARD + gamma(8, "float32"))
    assert short.weight[2].tolist() == [6.0, 8.0]
    rare = nn.Embedding(3, 2, scale_grad_by_freq=True)
    rare(tb.asarray([0, 0, 1])).sum().backward()
    assert rare.weight.grad is not None
    assert rare.weight.grad.tolist() == [[1, 1], [1, 1], [0, 0]]


ERRORS = [
    (lambda: nn.LSTM(3, 4, proj_size=4), tb.ArgumentError, "proj_size"),
    (lambda: nn.GRU(3, 0), tb.ArgumentError, "hidden_size must be an integer >= 1"),
    (lambda: nn.RNN(3, 4, nonlinearity="gelu"), tb.ArgumentError, "'tanh' or 'relu'"),
    (lambda: nn.GRU(3, 4)(tb.ones((2, 2, 4))), tb.ShapeError, "the last 3 long"),
    (lambda: nn.GRU(3, 4)(tb.ones((2, 2, 3)), tb.ones((1, 3, 4))), tb.ShapeError, r"\(1, 2, 4\)"),
    (lambda: nn.LSTMCell(3, 4)(tb.ones((2, 3)), (tb.ones((2, 3)), tb.ones((2, 4)))), tb.ShapeError, "hx"),
    (lambda: nn.MultiheadAttention(5, 2), tb.ArgumentError, "num_heads must divide"),
    (lambda: nn.MultiheadAttention(4, 2)(*[tb.ones((3, 4, 4, 4))] * 3), tb.ShapeError, "length, batch"),
    (
        lambda: nn.MultiheadAttention(4, 2)(*[tb.ones((3, 2, 4))] * 3, attn_mask=tb.ones((3, 4))),
        tb.ShapeError, "attn_mask needs shape",
    ),
    (lambda: nn.TransformerEncoderLayer(4, 2, activation="tanh"), tb.ArgumentError, "activation must be"),
    (lambda: nn.Transformer(4, 2)(tb.ones((2, 3, 4)), tb.ones((2, 2, 4))), tb.ShapeError, "one batch"),
    (lambda: nn.Embedding(4, 2, padding_idx=4), tb.ArgumentError, "padding_idx"),
    (lambda: nn.EmbeddingBag(4, 2, mode="min"), tb.ArgumentError, "'sum', 'mean' or 'max'"),
    (lambda: nn.GroupNorm(3, 4), tb.ArgumentError, "num_groups must divide"),
    (lambda: nn.ConstantPad2d((1, 2, 3), 0.0), tb.ArgumentError, "an integer or 4 of them"),
    (lambda: nn.Unflatten(1, (4, 2))(tb.ones((1, 6))), tb.ShapeError, "does not split"),
    (
        lambda: nn.ConvTranspose1d(1, 1, 2, stride=2)(tb.ones((1, 1, 3)), output_size=(9,)), tb.ShapeError,
        "output_size",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("attempt", "kind", "text"), ERRORS, ids=[str(k) for k in range(len(ERRORS))])
def test_errors_say_what_is_wrong(attempt, kind: type[Exception], text: str):
    with pytest.raises(kind, match=text):
        attempt()
