"""Language models by hand: sampling, decoding, caches, experts."""

from __future__ import annotations

import math

import tensorbus as tb

from program import Family

program = Family(__name__)


def rows(*shape):
    n = math.prod(shape)
    return tb.reshape(tb.arange(float(n)), shape) / n - 0.5


@program
def top_k_sampling():
    def fn(logits, k, temperature=1.0):
        values, places = tb.topk(logits / temperature, k)
        shares = tb.cumulative_sum(tb.softmax(values, axis=-1), axis=-1)
        draw = tb.rand(logits.shape[0], 1)
        picked = (shares < draw).sum(axis=-1, keepdims=True)
        return tb.take_along_axis(places, tb.clip(picked, 0, k - 1), axis=-1)

    x = tb.asarray([[0.0, 2.0, 1.0, -1.0], [4.0, 0.0, 3.0, 1.0]])
    return fn, [(x, 2), (x, 2), (x, 3, 0.5), (x[:1], 2)]


@program
def nucleus_mask():
    def fn(logits, p):
        order = tb.argsort(logits, descending=True)
        shares = tb.softmax(tb.take_along_axis(logits, order, axis=-1), axis=-1)
        drop = tb.cumulative_sum(shares, axis=-1) - shares > p
        back = tb.argsort(order)
        return tb.masked_fill(logits, tb.take_along_axis(drop, back, axis=-1), -tb.inf)

    x = tb.asarray([[0.0, 2.0, 1.0, -1.0], [4.0, 0.0, 3.0, 1.0]])
    return fn, [(x, 0.5), (x, 0.9), (x[:1], 0.5)]


@program
def beam_step():
    def fn(scores, log, beams):
        total = scores[:, None] + log
        best, places = tb.topk(tb.reshape(total, (-1,)), beams)
        return best, places // log.shape[1], places % log.shape[1]

    def calls():
        log = tb.log_softmax(tb.asarray([[1.0, 3.0, 0.0], [2.0, 0.5, 1.0]]), axis=-1)
        scores = tb.asarray([0.0, -0.5])
        for _ in range(3):
            scores, _, _ = yield (scores, log, 2)
        yield (scores, log, 3)

    return fn, calls()


@program(data_dependent=True)
def greedy_decoding_until_the_end():
    table = tb.asarray([[0.0, 3.0, 1.0], [0.0, 1.0, 5.0], [9.0, 0.0, 1.0]])

    def fn(token, limit):
        tokens = [token]
        while len(tokens) < limit:
            token = int(tb.argmax(table[token]))
            tokens.append(token)
            if token == 0:
                break
        return tokens

    return fn, [(1, 8), (2, 8), (0, 3)], table


@program
def greedy_decoding_of_a_fixed_length():
    table = tb.asarray([[0.0, 3.0, 1.0], [0.0, 1.0, 5.0], [9.0, 0.0, 1.0]])

    def fn(tokens, steps):
        for _ in range(steps):
            best = tb.argmax(tb.take(table, tokens[:, -1], axis=0), axis=-1, keepdims=True)
            tokens = tb.concat([tokens, best], axis=1)
        return tokens

    return fn, [(tb.asarray([[1], [2]]), 3), (tb.asarray([[0], [2]]), 3), (tb.asarray([[0, 1]]), 2)]


@program
def keys_and_values_are_cached():
    cache = {"k": None, "v": None}

    def fn(x):
        for name, new in (("k", x * 2), ("v", x + 1)):
            old = cache[name]
            cache[name] = new if old is None else tb.concat([old, new])
        return tb.softmax(x @ cache["k"].T, axis=-1) @ cache["v"]

    return fn, [(rows(2, 3),), (rows(1, 3),), (rows(1, 3) * 2,)], cache


@program
def caches_of_the_caller_grow_at_a_position():
    w = rows(3, 3)

    def fn(x, cache, position):
        x = x + tb.cos(tb.arange(position, position + x.shape[0]))[:, None]
        for name, new in (("k", x @ w), ("v", x + 1)):
            cache[name] = tb.concat([cache[name], new]) if name in cache else new
        return tb.softmax(x @ cache["k"].T, axis=-1) @ cache["v"]

    def calls():
        cache = {}
        yield (rows(3, 3), cache, 0)
        for k in range(3, 13):
            yield (rows(1, 3) * k, cache, k)

    return fn, calls()


@program
def cache_of_a_fixed_size():
    buffer, used = tb.zeros((8, 2)), 0

    def fn(x):
        nonlocal used
        buffer[used : used + x.shape[0]] = x
        used += x.shape[0]
        return buffer[:used].mean(axis=0)

    return fn, [(rows(2, 2),), (rows(1, 2),), (rows(1, 2) + 1,)], buffer


@program
def mixture_of_experts():
    experts, gate = rows(3, 2, 2), rows(2, 3)

    def fn(x, k):
        weights, chosen = tb.topk(tb.softmax(x @ gate, axis=-1), k)
        weights = weights / weights.sum(axis=-1, keepdims=True)
        every = tb.einsum("nd,edf->nef", x, experts)
        out = tb.zeros_like(x)
        for j in range(k):
            out = (
                out + weights[:, j, None] * tb.take_along_axis(every, chosen[:, j, None, None], axis=1)[:, 0]
            )
        return out

    return fn, [(tb.eye(2), 1), (tb.eye(2) * 4 - 1, 2), (tb.asarray([[1.0, 3.0]]), 1)]


@program(data_dependent=True)  # outside of a program weights are looked at before they are used
def sampled_with_weights():
    emb, out = tb.nn.Embedding(6, 4), tb.nn.Linear(4, 6)

    def fn(tokens):
        for _ in range(3):
            scores = out(tb.tanh(emb(tokens).mean(axis=1))) * 4
            least = tb.topk(scores, 3)[0][:, -1:]
            scores = tb.where(scores < least, -tb.inf, scores)
            drawn = tb.multinomial(tb.softmax(scores, axis=-1), 1)
            tokens = tb.concat([tokens, drawn], axis=1)
        return tokens

    return fn, [(tb.asarray([[1, 2], [3, 4]]),), (tb.asarray([[0, 5], [2, 2]]),)]
