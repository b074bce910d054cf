"""Modules of ``nn``: layers, containers, modes, and models of one's own."""

from __future__ import annotations

import tensorbus as tb
from tensorbus import nn

from program import Family, call_of

program = Family(__name__)


class Residual(nn.Module):
    def __init__(self, inner, scale=1.0):
        super().__init__()
        self.inner, self.scale = inner, scale

    def forward(self, x, *args, **kwargs):
        return x + self.scale * self.inner(x, *args, **kwargs)


def rows(n, m):
    return tb.reshape(tb.arange(float(n * m)), (n, m)) / (n * m)


@program
def layer_norm_and_residual():
    model = Residual(nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4)), scale=0.5)

    def calls():
        for scale in (0.5, 0.5, 2.0):
            model.scale = scale
            out = yield (rows(2, 4),)
            tb.square(out).mean().backward()

    return model, calls(), model


@program
def embedding_bag_of_words():
    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(5, 3, padding_idx=0), nn.Linear(3, 2)

        def forward(self, tokens):
            mask = (tokens != 0)[..., None]
            summed = (self.embed(tokens) * mask).sum(axis=1)
            return self.head(summed / tb.clip(mask.sum(axis=1), 1, None))

    bag = Bag()

    def calls():
        for tokens in ([[1, 2, 0], [3, 0, 0]], [[4, 4, 1], [0, 0, 0]], [[1, 2]]):
            out = yield (tb.asarray(tokens),)
            out.sum().backward()

    return bag, calls(), bag


@program
def modules_by_name():
    class Switch(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = nn.ModuleDict({"class": nn.Linear(2, 3), "value": nn.Linear(2, 1)})
            self.default = "class"

        def forward(self, x, head=None):
            return self.heads[head or self.default](x), sorted(self.heads.keys())

    switch = Switch()

    def calls():
        yield (rows(2, 2),)
        yield call_of(rows(2, 2), head="value")
        switch.default = "value"
        yield (rows(2, 2),)

    return switch, calls(), switch


@program
def tied_weights():
    class Language(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(4, 3), nn.Linear(3, 4, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens):
            return self.head(tb.tanh(self.embed(tokens)))

    model = Language()

    def calls():
        for tokens in ([0, 1], [3, 3], [2]):
            out = yield (tb.asarray(tokens),)
            nn.functional.cross_entropy(out, tb.asarray(tokens)).backward()

    return model, calls(), model


@program
def parameters_of_ones_own():
    class Affine(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.scale, self.shift = nn.Parameter(tb.ones(n)), nn.Parameter(tb.zeros(n))
            self.register_buffer("seen", tb.zeros(()))
            self.powers = nn.ParameterList([nn.Parameter(tb.ones(n) * k) for k in range(2)])

        def forward(self, *parts, reverse=False):
            self.seen += 1
            parts = parts[::-1] if reverse else parts
            x = sum(parts) * self.scale + self.shift
            for p in self.powers:
                x = x + p
            return x

    model = Affine(2)
    a, b = tb.ones(2), tb.arange(2.0)
    return model, [(a,), (a, b), call_of(a, b, reverse=True), (b,)], model


@program
def recursive_model():
    class Tree(nn.Module):
        def __init__(self):
            super().__init__()
            self.join, self.leaf = nn.Linear(4, 2), nn.Linear(1, 2)

        def forward(self, tree):
            if isinstance(tree, tb.Tensor):
                return tb.tanh(self.leaf(tree))
            left, right = tree
            return tb.tanh(self.join(tb.concat([self(left), self(right)])))

    model = Tree()

    def calls():
        a, b = tb.ones(1), tb.zeros(1)
        for tree in ((a, b), ((a, b), a), ((b, a), b), (a, (a, (b, b)))):
            out = yield (tree,)
            out.sum().backward()

    return model, calls(), model


@program
def early_exit_by_depth():
    blocks = nn.ModuleList(Residual(nn.Linear(2, 2)) for _ in range(3))

    def fn(x, depth=None, collect=False):
        states = []
        for block in blocks[:depth]:
            x = block(x)
            if collect:
                states.append(x)
        return (x, states) if collect else x

    x = rows(2, 2)
    return fn, [(x,), (x, 1), call_of(x, collect=True), (x, 2, True), (x,)], blocks
