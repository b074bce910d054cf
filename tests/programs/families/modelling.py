"""Parts of models written by hand: attention, encodings, losses, decoding, cells."""

from __future__ import annotations

import math

import tensorbus as tb

from program import Family

program = Family(__name__)


def rows(*shape):
    n = math.prod(shape)
    return tb.reshape(tb.arange(float(n)), shape) / n - 0.5


@program
def attention_by_hand():
    def fn(q, k, v, causal=False):
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if causal:
            allowed = tb.tril(tb.ones(scores.shape[-2:], dtype="bool"))
            scores = tb.where(allowed, scores, -tb.inf)
        return tb.softmax(scores, axis=-1) @ v

    x = rows(2, 3, 4)
    return fn, [(x, x * 2, x + 1), (x, x, x, True), (x[:1], x[:1], x[:1]), (x * 2, x, x, True)]


@program
def heads_split_and_merged():
    def fn(x, w, heads):
        b, n, c = x.shape
        q, k, v = tb.unstack(tb.reshape(x @ w, (b, n, 3, heads, c // heads)), axis=2)
        q, k, v = (tb.permute_dims(t, (0, 2, 1, 3)) for t in (q, k, v))
        out = tb.scaled_dot_product_attention(q, k, v)
        return tb.reshape(tb.permute_dims(out, (0, 2, 1, 3)), (b, n, c))

    return fn, [
        (rows(1, 3, 4), rows(4, 12), 2),
        (rows(2, 2, 4), rows(4, 12), 2),
        (rows(1, 3, 4), rows(4, 12), 1),
    ]


@program
def rotary_positions():
    def angles(n, width, base=100.0):
        rates = base ** (-tb.arange(0.0, width, 2.0) / width)
        return tb.arange(float(n))[:, None] * rates[None, :]

    def fn(x, start=0):
        turn = angles(start + x.shape[-2], x.shape[-1])[start:]
        cos, sin = tb.cos(turn), tb.sin(turn)
        even, odd = x[..., ::2], x[..., 1::2]
        turned = tb.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1)
        return tb.reshape(turned, x.shape)

    return fn, [(rows(3, 4),), (rows(2, 4),), (rows(3, 4), 2), (rows(2, 3, 4),)]


@program
def sinusoids_are_added():
    def fn(x):
        n, width = x.shape[-2:]
        position = tb.arange(float(n))[:, None]
        rate = tb.exp(tb.arange(0.0, float(width), 2.0) * (-math.log(10000.0) / width))
        table = tb.zeros((n, width))
        table[:, 0::2] = tb.sin(position * rate)
        table[:, 1::2] = tb.cos(position * rate)
        return x + table

    return fn, [(rows(3, 4),), (rows(2, 3, 4),), (rows(4, 2),)]


@program
def layer_norm_by_hand():
    gain, bias = tb.ones(3).requires_grad_(), tb.zeros(3).requires_grad_()

    def fn(x, eps=1e-5):
        centered = x - x.mean(axis=-1, keepdims=True)
        out = centered * tb.rsqrt(tb.square(centered).mean(axis=-1, keepdims=True) + eps) * gain + bias
        (out * rows(*out.shape)).sum().backward()
        return out.detach()

    return fn, [(rows(2, 3),), (rows(1, 3) * 10,), (rows(2, 3), 0.1)], gain, bias


@program
def softmax_variants():
    def fn(x, temperature=1.0):
        scaled = x / temperature
        shifted = tb.exp(scaled - tb.max(scaled, axis=-1, keepdims=True))
        log = scaled - tb.logsumexp(scaled, axis=-1, keepdims=True)
        return shifted / shifted.sum(axis=-1, keepdims=True), log, tb.softmax(-x, axis=0), tb.log_softmax(x)

    x = tb.asarray([[1.0, 2.0, 3.0], [500.0, 0.0, -500.0]])
    return fn, [(x,), (x, 2.0), (x[0][None],), (rows(3, 2),)]


@program
def cross_entropy_by_hand():
    def fn(logits, labels, smoothing=0.0, ignore=-100):
        classes = logits.shape[1]
        keep = labels != ignore
        safe = tb.where(keep, labels, 0)
        log = tb.log_softmax(logits, axis=-1)
        picked = tb.take_along_axis(log, safe[:, None], axis=1)[:, 0]
        losses = -(1 - smoothing) * picked - smoothing * log.mean(axis=-1)
        return tb.where(keep, losses, 0.0).sum() / keep.sum(), tb.one_hot(safe, classes)

    x, labels = rows(3, 4), tb.asarray([0, 3, 1])
    return fn, [
        (x, labels),
        (x, labels, 0.1),
        (x * 4, tb.asarray([0, -100, 1])),
        (rows(2, 3), labels[:2] * 0),
    ]


@program
def gru_by_hand():
    w, u = rows(2, 9).requires_grad_(), rows(3, 9).requires_grad_()

    def fn(x, h):
        for step in x:
            from_x, from_h = tb.split(step @ w, 3, axis=-1), tb.split(h @ u, 3, axis=-1)
            r, z = (tb.sigmoid(a + b) for a, b in zip(from_x[:2], from_h[:2], strict=True))
            n = tb.tanh(from_x[2] + r * from_h[2])
            h = (1 - z) * n + z * h
        h.sum().backward()
        return h.detach()

    return fn, [(rows(3, 1, 2), tb.zeros((1, 3))), (rows(2, 1, 2), tb.ones((1, 3)))] * 2, w, u


@program
def linear_recurrence():
    def fn(a, x):
        h, states = tb.zeros_like(x[0]), []
        for k in range(x.shape[0]):
            h = a[k] * h + (1 - a[k]) * x[k]
            states.append(h)
        return tb.stack(states), h

    return fn, [
        (tb.ones(3) * 0.5, rows(3, 2)),
        (tb.asarray([0.0, 1.0, 0.25]), rows(3, 2)),
        (tb.ones(2), rows(2, 2)),
    ]


@program
def convolution_by_windows():
    def fn(x, kernel, stride=1):
        n = (x.shape[0] - kernel.shape[0]) // stride + 1
        places = tb.arange(n)[:, None] * stride + tb.arange(kernel.shape[0])[None, :]
        return tb.take(x, tb.reshape(places, (-1,))).reshape(n, -1) @ kernel

    x, k = tb.arange(6.0), tb.asarray([1.0, -1.0])
    return fn, [(x, k), (x, tb.ones(3), 2), (x * x, k), (x[:4], k)]


@program
def message_passing_on_a_graph():
    def fn(nodes, edges, rounds):
        source, target = edges
        for _ in range(rounds):
            messages = tb.tanh(tb.take(nodes, source, axis=0))
            nodes = nodes + tb.segment_sum(messages, target, nodes.shape[0])
        return nodes

    edges = tb.asarray([0, 1, 2, 2]), tb.asarray([1, 2, 0, 1])
    return fn, [(rows(3, 2), edges, 2), (rows(3, 2) * 2, edges, 2), (rows(4, 1), edges, 1)]


@program
def contrastive_loss():
    def fn(a, b, temperature):
        a, b = (x / tb.linalg.vector_norm(x, axis=-1, keepdims=True) for x in (a, b))
        logits = a @ b.T / temperature
        labels = tb.arange(a.shape[0])
        ways = [tb.nn.functional.cross_entropy(m, labels) for m in (logits, logits.T)]
        return sum(ways) / len(ways), logits

    x = tb.asarray([[1.0, 0.5], [0.25, -1.0]])
    return fn, [(x, x * 2, 0.5), (x, x[:, ::-1], 0.5), (tb.eye(3), tb.ones((3, 3)), 1.0)]
