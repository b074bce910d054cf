"""Symbolic integers, of which Python makes shapes: one capture serves all that meet its guards."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import nn

from error_bounds import assert_alike

X = tb.sin(tb.reshape(tb.arange(4 * 32.0), (4, 32)))
ROUNDINGS, SIZE = 32 + 8, tb.abs(X).sum().item()
"""Of sums of a row, and the ops around them; the magnitude of what the sum of all elements adds up."""


def until(x, n):
    return x[:, : n + 1].sum(axis=-1)


def behind(x, n):
    return tb.concat([x[:, n:] * 2, x[:, :n]], axis=1)


def numbered(x, n):
    return tb.arange(n).sum() + x.mean() / n, n * 2


def filled(x, n):
    x = x * 1.0
    x[:, n : n + 2] = 3.0
    x[0, n] = tb.full((n,), 0.5).sum()
    return x


def rolled(x, n):
    return tb.roll(x, n, axis=1), tb.repeat(x[:, :2], n, axis=0), f"{x.shape[1]}"


def decided(x, n):
    return x[:, :n] if n % 2 or n > 8 else x[:, n:] + 1


def floats(x, n):
    return x[:, : math.ceil(n / 2)] * n**-0.5 * math.sqrt(n)


def doubled(x, n):
    return x[:, n // 2 : n]  # as numbers these are a window whose width is decided by each value


def by_keyword(x, *, n):
    return x[:, :n].sum()


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(
    ("function", "captures"),
    [
        (until, 1),
        (behind, 1),
        (numbered, 1),
        (filled, 1),
        (rolled, 1),
        (decided, 3),
        (floats, 1),
        (doubled, 5),
    ],
)
def test_one_capture_serves_every_integer(function, captures, dynamic) -> None:
    compiled = tb.compile(function, dynamic=dynamic)
    for n in (2, 5, 11, 3, 4, 7, 9, 12, 13, 6, 20, 14):
        want, got = function(X, n), compiled(X, n)
        for a, b in zip(*[x if type(x) is tuple else (x,) for x in (want, got)], strict=True):
            assert_alike(b, a, ROUNDINGS)
    assert len(compiled.replays) == captures


def test_by_keyword_and_as_a_default() -> None:
    compiled = tb.compile(by_keyword)
    for n in range(2, 14):
        assert_alike(compiled(X, n=n), by_keyword(X, n=n), ROUNDINGS, size=SIZE)
    assert len(compiled.replays) == 1


def test_each_length_of_a_loop_is_captured_by_itself() -> None:
    def summed(x, n):
        for k in range(n):
            x = x + k
        return x

    compiled = tb.compile(summed)
    for _ in range(2):
        for n in (2, 3, 4):
            assert compiled(X, n).tolist() == summed(X, n).tolist()
    assert len(compiled.replays) == 3


def test_objects_like_integers_stay_constant() -> None:
    def kind(x, n):
        return x[:, :n].sum(axis=1), n

    compiled = tb.compile(kind)
    for n in (2, 3, 4, np.int64(3), 5, True, 6, -3, 7, 0):
        (want, *message), (got, *text) = kind(X, n), compiled(X, n)
        assert_alike(got, want, ROUNDINGS)
        assert message == text
        assert type(message[0]) is type(text[0])
    with pytest.raises(tb.errors.IndexingError):
        compiled(X, 3.0)


def test_small_integers_say_nothing_of_large_ones() -> None:
    """As positions do that begin at 0, where the slice is empty, and go on to 1, where it is a column."""
    compiled = tb.compile(lambda x, n: x[:, :n].sum(axis=-1))
    for n in range(14):
        assert_alike(compiled(X, n), X[:, :n].sum(axis=-1), ROUNDINGS)
    assert len(compiled.replays) <= 3


def test_errors_are_those_of_python() -> None:
    def split(x, n):
        return tb.split(x, [n, 32 - n], axis=1)[0].sum()

    compiled = tb.compile(split)
    for n in (2, 3, 4):
        assert_alike(compiled(X, n), split(X, n), ROUNDINGS, size=SIZE)
    for _ in range(2):
        with pytest.raises(tb.errors.ArgumentError) as eager:
            split(X, 40)
        with pytest.raises(tb.errors.ArgumentError) as raised:
            compiled(X, 40)
        assert str(raised.value) == str(eager.value)
    assert_alike(compiled(X, 5), split(X, 5), ROUNDINGS, size=SIZE)


def test_gradients() -> None:
    def loss(x, w, n):
        return (x[:, :n] @ w[:n]).square().mean() / n

    compiled = tb.compile(loss)
    for n in range(2, 12):
        one, other = (tb.ones((32, 3)).requires_grad_() for _ in range(2))
        loss(X, one, n).backward()
        compiled(X, other, n).backward()
        assert_alike(other.grad, one.grad, ROUNDINGS)
    assert len(compiled.replays) == 1


class Attention(nn.Module):
    """One with a cache of fixed size, filled from ``start``, or from where it has come to by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.keys, self.values = tb.zeros((2, 32, 8)), tb.zeros((2, 32, 8))
        self.turns = tb.cos(tb.reshape(tb.arange(32 * 8.0), (32, 8)))
        self.place = 0

    def forward(self, x, start=None):
        start = self.place if start is None else start
        count, length = x.shape[0], x.shape[1]
        turn = self.turns[start : start + length]
        self.keys[:count, start : start + length] = self.k(x) * turn
        self.values[:count, start : start + length] = self.v(x)
        scores = self.q(x) * turn @ self.keys[:count, : start + length].mT / math.sqrt(8)
        if length > 1:
            mask = tb.triu(tb.full((length, length), -math.inf), k=1)
            scores = scores + tb.concat([tb.zeros((length, start)), mask], axis=1)
        self.place += length
        return tb.softmax(scores, axis=-1) @ self.values[:count, : start + length]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("y", [True, False])
@pytest.mark.parametrize("device", ["cpu", "opencl", "refdev"])
def test_a_cache_of_fixed_size_is_filled(y, dynamic, device) -> None:
    with tb.device(device):
        one, other = Attention(), Attention()
        other.load_state_dict(one.state_dict())
        compiled = tb.compile(other, dynamic=dynamic)
        start = 0
        for length in (5, 1, 1, 1, 1, 3, 1, 1, 1, 2, *[1] * 10):
            x = tb.sin(tb.reshape(tb.arange(2 * length * 8.0), (2, length, 8)) + start)
            where = (start,) if y else ()
            with tb.no_grad():
                assert_alike(compiled(x, *where), one(x, *where), ROUNDINGS)
            start += length
        assert other.place == one.place == start
        compiled_class = type(compiled)._compiled
        assert compiled_class.reasons == []
        assert len(compiled_class.recompiles) <= 3


def test_a_counter_that_python_makes_shapes_of() -> None:
    owner = SimpleNamespace(length=2)

    @tb.compile
    def grown(x):
        owner.length += 1
        return x[:, : owner.length].sum(axis=0), owner.length

    for k in range(12):
        result, length = grown(X)
        assert type(length) is type(owner.length) is int
        assert length == owner.length == 3 + k
        assert_alike(result, X[:, :length].sum(axis=0), ROUNDINGS)
    assert len(grown.replays) <= 2


def test_dynamic_false_captures_each() -> None:
    compiled = tb.compile(until, dynamic=False)
    for n in (2, 3, 4):
        compiled(X, n)
    assert len(compiled.replays) == 3


@pytest.mark.parametrize(
    "narrow",
    [
        lambda n: tb.ones(3, dtype=tb.int8) * n,
        lambda n: tb.full((3,), n, dtype=tb.int8),
        lambda n: tb.arange(n, n + 3, dtype=tb.int8),
    ],
)
@pytest.mark.parametrize("actual", ["an argument", "a length"])
def test_what_does_not_fit_in_a_narrow_dtype_is_an_error(narrow, actual) -> None:
    def fn(x, n):
        n = x.shape[0] if actual == "a length" else n
        return narrow(n), x[: n // 2].sum()

    compiled = tb.compile(fn, dynamic=True)
    for n in (20, 30, 40, 126):
        (want, _), (got, _) = fn(tb.ones(n), n), compiled(tb.ones(n), n)
        assert want.tolist() == got.tolist()
    assert len(compiled.replays) <= 2
    with pytest.raises(tb.DtypeError, match="does not fit in int8"):
        compiled(tb.ones(140), 140)


@pytest.mark.parametrize(
    ("fn", "captures"),
    [
        (lambda x, n: tb.nn.functional.pad(x[:, :n], (0, 16 - n)).sum(), 4),
        (lambda x, n: tb.nn.functional.pad(x[:, :n], (0, (8 if n <= 8 else 16) - n)).mean(1), 6),
        (lambda x, n: x[:, :n] if n == 4 else x[:, n:] * 2, 3),
    ],
)
def test_a_value_that_python_decides_by_says_nothing_of_others(fn, captures) -> None:
    """Of a text that fills its batch nothing is padded; those before and after are one capture."""
    compiled = tb.compile(fn, compare_eager=False)
    for n in (3, 8, 4, 16, 9, 12, 7, 5, 14, 8, 16):
        assert_alike(compiled(X, n).tolist(), fn(X, n).tolist(), ROUNDINGS, size=SIZE)
    assert compiled._captures <= captures, compiled.recompiles
