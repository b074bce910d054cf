"""Layers of ``nn`` as they come, in both modes, with gradients after the call."""

from __future__ import annotations

import tensorbus as tb
from tensorbus import nn

from program import Family

program = Family(__name__)


def rows(n, m):
    return tb.reshape(tb.arange(float(n * m)), (n, m)) / (n * m)


@program
def linear_layer():
    layer = nn.Linear(3, 2)

    def calls():
        for x in (rows(2, 3), rows(4, 3), rows(2, 3) + 1, tb.ones(3)):
            out = yield (x,)
            out.sum().backward()

    return layer, calls(), layer


@program
def convolutional_net():
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 2)
    )

    def calls():
        x = tb.reshape(rows(4, 4), (1, 1, 4, 4))
        for batch in (x, tb.concat([x, -x]), x * 2):
            out = yield (batch,)
            out.sum().backward()

    return model, calls(), model


@program
def batch_norm_gathers_statistics():
    norm = nn.BatchNorm1d(3)

    def calls():
        yield (rows(4, 3),)
        yield (rows(4, 3) * 2,)
        norm.eval()
        yield (rows(4, 3),)
        norm.train()
        yield (rows(2, 3),)

    return norm, calls(), norm


@program
def group_and_rms_norm():
    group, rms = nn.GroupNorm(2, 4), nn.RMSNorm(3)

    def fn(x):
        return rms(group(x))

    x = tb.reshape(rows(4, 6), (2, 4, 3))
    return fn, [(x,), (x[:1],), (x * 3 + 1,)], group, rms


@program
def rnn_keeps_its_state():
    rnn, state = nn.RNN(2, 3, batch_first=True), None

    def fn(x):
        nonlocal state
        out, state = rnn(x, state)
        state = state.detach()
        return out[:, -1]

    x = tb.reshape(rows(2, 6), (2, 3, 2))
    return fn, [(x,), (x * 2,), (x[:, :1],)], rnn


@program
def lstm_reads_a_sequence():
    lstm = nn.LSTM(2, 3, num_layers=2)

    def calls():
        x = tb.reshape(rows(3, 4), (3, 2, 2))
        out, (h, c) = yield (x,)
        out.sum().backward()
        yield (x, (h.detach(), c.detach()))
        yield (x * 2,)
        yield (x[:2],)

    return lstm, calls(), lstm


@program
def gru_cell_step_by_step():
    cell = nn.GRUCell(2, 3)

    def fn(x, h=None):
        states = []
        for step in x:
            h = cell(step, h)
            states.append(h)
        return tb.stack(states), h

    x = tb.reshape(rows(3, 2), (3, 1, 2))
    return fn, [(x,), (x[:2],), (x, tb.ones((1, 3)))], cell


@program
def attention_with_a_mask():
    attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def fn(x, causal):
        n = x.shape[1]
        mask = tb.triu(tb.ones((n, n), dtype="bool"), k=1) if causal else None
        out, weights = attention(x, x, x, attn_mask=mask)
        return out, weights

    x = tb.reshape(rows(3, 4), (1, 3, 4))
    return fn, [(x, False), (x, True), (x[:, :2], True), (x, False)], attention


@program
def transformer_encoder_layers():
    layer = nn.TransformerEncoderLayer(4, 2, dim_feedforward=8, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 2)

    def calls():
        x = tb.reshape(rows(2, 8), (2, 2, 4))
        out = yield (x,)
        out.sum().backward()
        yield (x * 2,)
        model.eval()
        yield (x,)
        yield (x[:1],)

    return model, calls(), model


@program
def decoder_layer_remembers():
    layer = nn.TransformerDecoderLayer(
        4, 2, dim_feedforward=4, dropout=0.0, batch_first=True, norm_first=True
    )

    def fn(x, memory):
        return layer(x, memory)

    x, memory = tb.reshape(rows(2, 4), (1, 2, 4)), tb.reshape(rows(3, 4), (1, 3, 4))
    return fn, [(x, memory), (x[:, :1], memory), (x * 2, memory)], layer


@program
def autoencoder_of_images():
    model = nn.Sequential(
        nn.Conv2d(1, 2, 2, stride=2), nn.GELU(), nn.ConvTranspose2d(2, 1, 2, stride=2), nn.Sigmoid()
    )

    def calls():
        x = tb.reshape(rows(4, 4), (1, 1, 4, 4))
        for batch in (x, x * 2, tb.concat([x, x])):
            out = yield (batch,)
            nn.functional.mse_loss(out, batch).backward()

    return model, calls(), model


@program
def sequence_to_sequence():
    model = nn.Transformer(4, 2, 1, 1, dim_feedforward=4, dropout=0.0, batch_first=True)

    def fn(source, target):
        n = target.shape[1]
        causal = tb.triu(tb.full((n, n), -tb.inf), k=1)
        return model(source, target, tgt_mask=causal)

    a, b = tb.reshape(rows(2, 4), (1, 2, 4)), tb.reshape(rows(3, 4), (1, 3, 4))
    return fn, [(a, b), (b, a), (a * 2, b)], model


@program
def read_in_both_directions():
    gru, pool = nn.GRU(2, 2, bidirectional=True, batch_first=True), nn.AdaptiveAvgPool1d(1)

    def fn(x):
        out, h = gru(x)
        return pool(out.mT)[..., 0], h

    x = tb.reshape(rows(3, 4), (2, 3, 2))
    return fn, [(x,), (x * 2,), (x[:, :2],)], gru
