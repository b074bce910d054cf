"""A small GPT: cached decoding, whole and step by step."""

from __future__ import annotations

import tensorbus as tb

from program import Family

program = Family(__name__)
nn = tb.nn


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.h = heads
        self.qkv, self.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x, past=None):
        b, t, d = x.shape
        q, k, v = (
            y.reshape((b, t, self.h, d // self.h)).permute_dims((0, 2, 1, 3))
            if hasattr(y, "permute_dims")
            else tb.permute_dims(tb.reshape(y, (b, t, self.h, d // self.h)), (0, 2, 1, 3))
            for y in tb.split(self.qkv(self.n1(x)), d, axis=-1)
        )
        if past is not None:
            k, v = tb.concat([past[0], k], axis=2), tb.concat([past[1], v], axis=2)
        a = tb.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        x = x + self.o(tb.reshape(tb.permute_dims(a, (0, 2, 1, 3)), (b, t, d)))
        return x + self.mlp(self.n2(x)), (k, v)


class GPT(nn.Module):
    def __init__(self, vocab=7, d=4, layers=2, heads=2, ctx=8):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, d), nn.Embedding(ctx, d)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.ln = nn.LayerNorm(d)
        self.head = nn.Linear(d, vocab, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, idx, past=None):
        start = 0 if past is None else past[0][0].shape[2]
        pos = tb.arange(start, start + idx.shape[1])
        x = self.wte(idx) + self.wpe(pos)
        new = []
        for k, block in enumerate(self.blocks):
            x, kv = block(x, None if past is None else past[k])
            new.append(kv)
        return self.head(self.ln(x)), new


@program
def greedy_decode_with_growing_cache():
    m = GPT()
    m.eval()

    def step(idx, past):
        with tb.no_grad():
            logits, past = m(idx, past)
        return tb.argmax(logits[:, -1], axis=-1, keepdims=True), past

    def calls():
        tok, past = yield (tb.asarray([[1, 2]]), None)
        for _ in range(4):
            tok, past = yield (tok, past)
        tok, past = yield (tb.asarray([[3, 1]]), None)
        for _ in range(3):
            tok, past = yield (tok, past)

    return step, calls(), m


@program
def whole_greedy_decode():
    m = GPT()
    m.eval()

    def decode(idx, n):
        past, cur = None, idx
        with tb.no_grad():
            for _ in range(n):
                logits, past = m(cur, past)
                cur = tb.argmax(logits[:, -1], axis=-1, keepdims=True)
                idx = tb.concat([idx, cur], axis=1)
        return idx

    return (
        decode,
        [
            (tb.asarray([[1, 2]]), 3),
            (tb.asarray([[3, 2]]), 3),
            (tb.asarray([[3, 2, 1]]), 2),
            (tb.asarray([[1, 1]]), 4),
        ],
        m,
    )
