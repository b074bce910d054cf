"""Models that change between calls: layers, hooks, weights, what is trained."""

from __future__ import annotations

import itertools

import tensorbus as tb
from tensorbus import nn

from program import Family

program = Family(__name__)


class MLP(nn.Module):
    def __init__(self, sizes, activation="relu"):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))
        self.activation = activation
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        for k, layer in enumerate(self.layers):
            x = layer(x)
            if k < len(self.layers) - 1:
                x = getattr(tb, self.activation)(x)
        return x


def rows(n, m):
    return tb.reshape(tb.arange(float(n * m)), (n, m)) / (n * m)


@program
def perceptron_counts_its_calls():
    model = MLP([3, 4, 2])

    def calls():
        yield (rows(2, 3),)
        yield (rows(2, 3),)
        model.activation = "tanh"
        yield (rows(2, 3),)
        yield (rows(1, 3),)

    return model, calls(), model


@program
def sequential_with_a_replaced_layer():
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))

    def calls():
        yield (rows(2, 2),)
        model[1] = nn.ReLU()
        yield (rows(2, 2),)
        model.append(nn.Sigmoid())
        yield (rows(2, 2),)

    return model, calls(), model


@program
def hooks_on_modules():
    layer, seen = nn.Linear(2, 2), []

    def calls():
        yield (rows(1, 2),)
        handle = layer.register_forward_hook(lambda m, args, out: seen.append(args[0].shape) or out * 2)
        yield (rows(1, 2),)
        layer.register_forward_pre_hook(lambda m, args: (args[0] + 1,))
        yield (rows(1, 2),)
        handle.remove()
        yield (rows(1, 2),)

    return layer, calls(), layer, seen


@program
def frozen_layers():
    model = MLP([2, 3, 1])

    def calls():
        model.layers[0].requires_grad_(False)
        out = yield (rows(2, 2),)
        out.sum().backward()
        model.layers[0].requires_grad_(True)
        out = yield (rows(2, 2),)
        out.sum().backward()
        model.zero_grad()
        yield (rows(1, 2),)

    return model, calls(), model


@program
def weights_loaded_between_calls():
    first, second = MLP([2, 2]), MLP([2, 2])

    def fn(x):
        return first(x) - second(x)

    def calls():
        yield (rows(2, 2),)
        second.load_state_dict(first.state_dict())
        yield (rows(2, 2),)
        with tb.no_grad():
            first.layers[0].weight[0, 0] = 3.0
        yield (rows(2, 2),)

    return fn, calls(), first


@program
def weight_norm_and_another():
    layer = nn.parametrizations.weight_norm(nn.Linear(2, 3))

    def calls():
        out = yield (rows(2, 2),)
        out.sum().backward()
        with tb.no_grad():
            for p in layer.parameters():
                p *= 2
        yield (rows(2, 2),)
        nn.parametrize.remove_parametrizations(layer, "weight")
        yield (rows(2, 2),)

    return layer, calls(), layer


@program
def gradients_seen_by_a_module():
    layer, seen = nn.Linear(2, 2), []

    def hook(module, grad_in, grad_out):
        seen.append([None if g is None else g.shape for g in (*grad_in, *grad_out)])

    def fn(x):
        out = tb.tanh(layer(x))
        out.sum().backward()
        return out.detach()

    def calls():
        yield (rows(2, 2),)
        handle = layer.register_full_backward_hook(hook)
        yield (rows(2, 2).requires_grad_(),)
        yield (rows(1, 2).requires_grad_(),)
        handle.remove()
        yield (rows(2, 2),)

    return fn, calls(), layer, seen


@program
def attributes_come_and_go():
    class Adapter(nn.Module):
        def __init__(self):
            super().__init__()
            self.base = nn.Linear(2, 2)

        def forward(self, x):
            y = self.base(x)
            extra = getattr(self, "extra", None)
            return y if extra is None else y + extra(x) * self.alpha

    model = Adapter()

    def calls():
        yield (rows(1, 2),)
        model.extra, model.alpha = nn.Linear(2, 2, bias=False), 0.5
        yield (rows(1, 2),)
        model.alpha = 2.0
        yield (rows(1, 2),)
        del model.extra
        yield (rows(1, 2),)

    return model, calls(), model
