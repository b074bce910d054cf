"""Symbolic sizes: one capture serves every size that meets its guards."""

from __future__ import annotations

import math

import pytest
import tensorbus as tb
from tensorbus import nn

from error_bounds import assert_alike

SIZES = (5, 8, 3, 17, 2)


def attention(q, k, v):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    return nn.functional.softmax(scores, dim=-1) @ v


def windows(x):
    n = x.shape[0]
    return tb.concat([x[: n // 2], x[n // 2 :] * 2, tb.zeros((n, x.shape[1]))], axis=0)


def means(x):
    return x.sum(axis=0) / x.shape[0] + x.mean() + x.size


def reshaped(x):
    return x.reshape((-1,)).reshape((x.shape[0], 2, -1)).permute_dims((1, 0, 2)).reshape((2 * x.shape[0], -1))


def positions(x):
    return x + tb.arange(x.shape[0], dtype=tb.float32)[:, None]


def numbers(x):
    n = x.shape[0]
    half, rest = divmod(2 * n + 1, 2)
    return x * (n * 0.5) + n / 2 * n - 2.0**n, half, rest, n > 1.5, isinstance(n, int), abs(-n), round(n)


def blocks(x):
    n = math.ceil(x.shape[0] / 4) * 4 + math.floor(x.shape[0] * 0.5) + round(x.shape[0] / 3)
    return tb.zeros((n, 2)), tb.zeros((1 << (x.shape[0] - 1).bit_length(), 2)), n ^ 1, n & 3, n >> 1


def halves(x):
    return tb.chunk(tb.concat([x, x + 1, x + 2]), 2), tb.split(x, x.shape[0])


def turned(x):
    return x[::-1], x[:0:-1].sum(), tb.concat([x, x])[:1:-2]


CASES = {
    "elementwise": lambda x: (x * 2 + 1).sin(),
    "softmax": lambda x: nn.functional.softmax(x, dim=0),
    "layer norm": lambda x: nn.functional.layer_norm(x, (4,)),
    "reductions": lambda x: (x.sum(), x.max(axis=0), x.mean(axis=1)),
    "product": lambda x: x.mT @ x,
    "attention": lambda x: attention(x, x * 2, x + 1),
    "slices": windows,
    "means": means,
    "reshape": reshaped,
    "arange": positions,
    "numbers": numbers,
    "blocks": blocks,
    "halves": halves,
    "turned": turned,
    "padding": lambda x: nn.functional.pad(x, (0, 0, x.shape[0], 2 * x.shape[0] - 1)),
    "variance": lambda x: (tb.var(x, axis=0), tb.std(x, axis=0, correction=1), tb.var(x)),
    "larger": lambda x: nn.functional.interpolate(x[None, None], scale_factor=2, mode="bilinear"),
    "last": lambda x: (x[-1], x[x.shape[0] - 1]),
    "lengths": lambda x: (x.shape, x.shape[0] * 2 + 1, len(x.shape)),
    "loss": lambda x: nn.functional.cross_entropy(x, tb.zeros((x.shape[0],), dtype=tb.int64)),
    "ones like": lambda x: tb.ones_like(x) + tb.full((x.shape[0], 4), 3.0),
}


ROUNDINGS = 4 * max(SIZES) + 16
"""Of sums over every element, and of the ops around them."""


@pytest.mark.parametrize("name", CASES)
def test_one_capture_serves_every_size(name: str) -> None:
    fn = CASES[name]
    compiled = tb.compile(fn, dynamic=True)
    for n in SIZES:
        x = tb.uniform((n, 4), generator=tb.Generator(n))
        assert_alike(compiled(x), fn(x), ROUNDINGS, message=str(n))
    assert compiled.recompiles == []
    assert len(compiled.replays) == 1


def test_sizes_that_are_equal_by_chance_stay_symbolic() -> None:
    for fn in (lambda x: x * 3 + x.shape[0], lambda x: tb.ones((x.shape[0], 3)) @ tb.ones((3, x.shape[0]))):
        compiled = tb.compile(fn, dynamic=True)
        for n in (3, 5, 4):
            assert_alike(compiled(tb.ones((n, 2))), fn(tb.ones((n, 2))), ROUNDINGS)
        assert compiled.recompiles == []


def test_a_size_that_differed_once_is_symbolic() -> None:
    compiled = tb.compile(lambda x: x * 2)
    for n in SIZES:
        assert compiled(tb.ones((n, 3))).shape == (n, 3)
    assert len(compiled.recompiles) == 1
    static = tb.compile(lambda x: x * 2, dynamic=False)
    for n in SIZES:
        static(tb.ones((n, 3)))
    assert len(static.recompiles) == len(SIZES) - 1


def test_branches_on_sizes_are_guards() -> None:
    def fn(x, y):
        scale = 10 if x.shape[0] > 6 else 1
        return x * scale + y

    compiled = tb.compile(fn, dynamic=True)
    for n in (5, 4, 3):
        assert compiled(tb.ones(n), tb.ones(n)).tolist() == [2.0] * n
    assert compiled.recompiles == []
    assert compiled(tb.ones(8), tb.ones(8)).tolist() == [11.0] * 8
    assert "s0" in compiled.recompiles[0]
    with pytest.raises(ValueError, match="broadcast"):
        compiled(tb.ones(4), tb.ones(3))
    assert compiled(tb.ones(4), tb.ones(1)).tolist() == [2.0] * 4


def test_loops_over_a_length_are_captured_for_each_length() -> None:
    def fn(x):
        total = 0.0
        for k in range(x.shape[0]):
            total = total + x[k] * k
        return total, f"{x.shape[0]} rows"

    compiled = tb.compile(fn, dynamic=True)
    for n in (3, 4, 3):
        assert_alike(compiled(tb.ones((n, 2))), fn(tb.ones((n, 2))), ROUNDINGS)


def test_marks() -> None:
    compiled = tb.compile(lambda x: x.sum(axis=1))
    x = tb.ones((4, 3))
    tb.mark_dynamic(x, 0, min=2, max=10)
    compiled(x)
    for n in (2, 10, 7):
        assert compiled(tb.ones((n, 3))).tolist() == [3.0] * n
    assert compiled.recompiles == []
    compiled(tb.ones((11, 3)))
    assert "s0 <= 10, where s0 is x0.shape[0]" in compiled.recompiles[0]
    compiled = tb.compile(lambda x: x * 2, dynamic=True)
    y = tb.ones((4, 3))
    tb.mark_static(y, 1)
    compiled(y)
    compiled(tb.ones((6, 3)))
    assert compiled.recompiles == []
    compiled(tb.ones((6, 2)))
    assert "axis 1" in compiled.recompiles[0]
    with pytest.raises(ValueError, match="min 5"):
        tb.mark_dynamic(y, 0, min=5)
    with pytest.raises(IndexError):
        tb.mark_dynamic(y, 2)
    with pytest.raises(IndexError):
        tb.mark_static(y, 3)


def test_gradients_inside_and_outside() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

    def inside(x):
        model.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        return loss.detach()

    compiled, outside = tb.compile(inside, dynamic=True), tb.compile(model, dynamic=True)
    for n in SIZES:
        x = tb.uniform((n, 3), generator=tb.Generator(n))
        wanted = inside(x).item()  # what its gradients add up is about 1 and may cancel
        grads = [p.grad.reshape((-1,)).tolist() for p in model.parameters()]
        assert_alike(compiled(x).item(), wanted, ROUNDINGS)
        for p, g in zip(model.parameters(), grads, strict=True):
            assert_alike(p.grad.reshape((-1,)).tolist(), g, ROUNDINGS, size=1.0)
        model.zero_grad()
        (outside(x) ** 2).mean().backward()
        for p, g in zip(model.parameters(), grads, strict=True):
            assert_alike(p.grad.reshape((-1,)).tolist(), g, ROUNDINGS, size=1.0)
    assert len(outside.replays) == 1
    assert outside.recompiles == []


def test_symbolic_sizes_beside_varying_numbers() -> None:
    """A count of steps, and a number among the arguments: neither makes each length a capture."""

    class Trainer:
        def __init__(self) -> None:
            self.model, self.steps, self.last = nn.Linear(3, 2), 0, 4
            self.optimizer = tb.optim.SGD(self.model.parameters(), lr=0.1)

        def step(self, x, weight):
            self.optimizer.zero_grad()
            loss = (self.model(x) ** 2).mean() * weight / (self.steps + self.last)
            loss.backward()
            self.optimizer.step()
            self.steps += x.shape[0]
            self.last = x.shape[0]
            return loss.detach()

    for dynamic in (None, True):
        one, other = Trainer(), Trainer()
        other.model.load_state_dict(one.model.state_dict())
        compiled = tb.compile(other.step, dynamic=dynamic)
        for n in range(4, 18):
            x = tb.uniform((n, 3), generator=tb.Generator(n))
            assert_alike(compiled(x, n / 7).item(), one.step(x, n / 7).item(), ROUNDINGS)
        assert (other.steps, other.last) == (one.steps, one.last) == (sum(range(4, 18)), 17)
        assert len(compiled.replays) <= 2
        assert len(compiled.recompiles) <= 2


@pytest.mark.parametrize("dynamic", [None, True])
def test_caches_of_the_caller_grow(dynamic) -> None:
    w = tb.eye(3) * 2

    def step(x, cache, k):
        cache["k"] = tb.concat([cache["k"], x @ w + k], axis=0) if cache else x @ w + k
        return cache["k"].mean(axis=0)

    compiled = tb.compile(step, dynamic=dynamic)
    actual, wanted = {}, {}
    for k in range(14):
        x = tb.ones((1, 3)) * k
        assert compiled(x, actual, k).tolist() == step(x, wanted, k).tolist()
    assert actual["k"].tolist() == wanted["k"].tolist()
    assert compiled.reasons == []
    assert len(compiled.recompiles) <= 3


class Cached(nn.Module):
    """A cache in an attribute, one in a list and one that is a buffer, each with a row for each call."""

    def __init__(self) -> None:
        super().__init__()
        self.k, self.layers, self.position = None, [None, None], 0
        self.register_buffer("v", tb.zeros((0, 3)))

    def forward(self, x):
        x = x + tb.cos(tb.arange(self.position, self.position + x.shape[0]))[:, None]
        self.k = x if self.k is None else tb.concat([self.k, x])
        self.v = tb.concat([self.v, x * 2])
        self.position += x.shape[0]
        x = tb.softmax(x @ self.k.T, axis=-1) @ self.v
        for i, old in enumerate(self.layers):
            self.layers[i] = x if old is None else tb.concat([old, x])
            x = self.layers[i][-1:] - self.layers[i].mean(axis=0)
        return x


@pytest.mark.parametrize("dynamic", [None, True])
def test_caches_that_are_state_grow(dynamic) -> None:
    one, other = Cached(), Cached()
    compiled = tb.compile(other, dynamic=dynamic)
    for k in range(14):
        x = tb.ones((1, 3)) * (k % 3 + 1)
        assert_alike(compiled(x), one(x), ROUNDINGS)
    assert other.v.shape == other.layers[1].shape == (14, 3)
    compiled_class = type(compiled)._compiled
    assert compiled_class.reasons == []
    assert len(compiled_class.recompiles) <= 3


@pytest.mark.parametrize("held", [lambda k, v: (k, v), lambda k, v: [k, v], lambda k, v: {0: k, 1: v}])
@pytest.mark.parametrize("dynamic", [None, True])
def test_caches_in_recreated_containers_grow(dynamic, held) -> None:
    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cache, self.layers = None, {"last": None}

        def forward(self, x):
            k, v = x, x * 2
            if self.cache is not None:
                k, v = tb.concat([self.cache[0], k]), tb.concat([self.cache[1], v])
            self.cache, last = held(k, v), self.layers["last"]
            self.layers = {"last": held(x * 3 if last is None else tb.concat([last[0], x]), x)}
            return tb.softmax(x @ k.T, axis=-1) @ v + self.layers["last"][0].mean(axis=0)

    one, other = Layers(), Layers()
    compiled = tb.compile(other, dynamic=dynamic)
    for k in range(14):
        x = tb.ones((1, 3)) * (k % 3 + 1)
        assert_alike(compiled(x), one(x), ROUNDINGS)
    assert type(other.cache) is type(one.cache)
    assert other.cache[1].shape == (14, 3)
    compiled_class = type(compiled)._compiled
    assert compiled_class.reasons == []
    assert len(compiled_class.recompiles) <= 3


def test_the_first_backward_keeps_sizes_symbolic() -> None:
    """The second run, with open lengths, finds no gradients either."""
    w = tb.ones(4).requires_grad_()
    compiled = tb.compile(lambda x: (x * w).sum().backward(), dynamic=True)
    for n in SIZES:
        w.grad = None
        compiled(tb.ones((n, 4)))
        assert w.grad.tolist() == [n] * 4
    assert (len(compiled.replays), compiled.recompiles) == (1, [])


OUTSIDE = {
    "mean": lambda x: (x * x).mean(axis=1),
    "variance": lambda x: x.var(axis=0) + x.std(),
    "loss": lambda x: nn.functional.mse_loss(x, x.sin()),
    "number": lambda x: x * x * (2 / x.shape[0]),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_derivatives_outside_take_numbers_of_lengths(name: str) -> None:
    """Derivatives divide by lengths where programs do not: by numbers that the program is given for them."""
    fn = OUTSIDE[name]
    compiled = tb.compile(fn, dynamic=True)

    def slopes(call, n):
        x = tb.uniform((n, 4), generator=tb.Generator(n)).requires_grad_()
        call(x).sum().backward()
        (slope,) = tb.grad(call(x).sum(), [x], create_graph=True)
        (again,) = tb.grad((slope * slope).sum(), [x])
        return x.grad, slope, again

    for n in SIZES:
        for got, wanted in zip(slopes(compiled, n), slopes(fn, n), strict=True):
            assert_alike(got, wanted, ROUNDINGS, message=str(n))
    assert compiled.recompiles == []


def test_shapes_of_other_ranks_are_not_compared() -> None:
    """A batch may be as long as the layer is wide: a weight's gradient is summed over it all the same."""
    layer = nn.Linear(5, 8)
    compiled = tb.compile(lambda x: layer(x).sum().backward(), dynamic=True)
    outside = tb.compile(layer, dynamic=True)
    for n in SIZES:
        for m in SIZES:
            x = tb.ones((n, m, 5))
            layer.zero_grad()
            compiled(x)
            outside(x).sum().backward()
            assert layer.bias.grad.tolist() == [2 * n * m] * 8
            assert layer.weight.grad.tolist() == [[2 * n * m] * 5] * 8
    assert (compiled.recompiles, outside.recompiles) == ([], [])
