"""Distributions and samples on every device: the moments, and the same draws everywhere where that holds."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, pi
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import distributions
from tensorbus.nn import functional, init

from error_bounds import assert_within, gamma

SIZE = 20_000
G = 0.5772156649015329
Made = Callable[[dict[str, Any]], tb.Tensor]
MOMENTS: dict[str, tuple[Made, float, float]] = {
    "exponential": (lambda a: tb.exponential((SIZE,), 2.0, **a), 0.5, 0.25),
    "laplace": (lambda a: distributions.laplace((SIZE,), 1.0, 2.0, **a), 1.0, 8.0),
    "gumbel": (lambda a: distributions.gumbel((SIZE,), 1.0, 2.0, **a), 1 + 2 * G, 4 * pi**2 / 6),
    "gamma": (lambda a: distributions.gamma((SIZE,), 5.0, 2.0, **a), 2.5, 1.25),
    "gamma below 1": (lambda a: distributions.gamma((SIZE,), 0.3, **a), 0.3, 0.3),
    "beta": (lambda a: distributions.beta((SIZE,), 2.0, 6.0, **a), 0.25, 12 / (64 * 9)),
    "geometric": (lambda a: distributions.geometric(0.25, (SIZE,), **a), 4.0, 12.0),
    "binomial": (lambda a: tb.binomial(70, 0.3, (SIZE,), **a), 21.0, 14.7),
    "poisson": (lambda a: tb.poisson(3.5, (SIZE,), **a), 3.5, 3.5),
    "poisson of many": (lambda a: tb.poisson(40.0, (SIZE,), **a), 40.0, 40.0),
    "truncated normal": (lambda a: tb.truncated_normal((SIZE,), 1.0, 0.5, 0.0, 2.0, **a), 1.0, 0.1934),
}


@pytest.mark.parametrize("name", MOMENTS)
def test_moments(device: str, name: str) -> None:
    make, mean, variance = MOMENTS[name]
    drawn = make({"device": device, "generator": tb.Generator(11)})
    assert str(drawn.device) == f"{device}:0"
    actual = drawn.numpy().astype(np.float64)
    assert np.isfinite(actual).all()
    assert abs(actual.mean() - mean) < 5 * np.sqrt(variance / SIZE)
    assert abs(actual.var() / variance - 1) < 0.12


def test_medians_and_limits(device: str) -> None:
    at: dict[str, Any] = {"device": device, "generator": tb.Generator(4)}
    cauchy = distributions.cauchy((SIZE,), 3.0, 2.0, **at).numpy()
    assert abs(np.median(cauchy) - 3) < 0.15
    assert abs(np.mean(np.abs(cauchy - 3) < 2) - 0.5) < 0.02
    cut = tb.truncated_normal((SIZE,), 0.0, 1.0, 0.5, 0.75, **at).numpy()
    assert 0.5 <= cut.min() < 0.51
    assert 0.74 < cut.max() <= 0.75
    shares = distributions.dirichlet(tb.asarray([1.0, 3.0], device=device), (SIZE,)).numpy()
    assert_within(shares.sum(-1), np.ones(SIZE), gamma(3, "float32"))
    assert abs(shares[:, 0].mean() - 0.25) < 0.01
    rates = tb.asarray([0.0, 2.0, 200.0], device=device)
    counts = tb.poisson(rates, (2000, 3)).numpy()
    assert counts[:, 0].max() == 0
    assert abs(counts[:, 2].mean() - 200) < 2
    assert abs((counts[:, 1] == 0).mean() - exp(-2)) < 0.04


def test_integer_draws_are_the_same_everywhere(device: str) -> None:
    def draws(where: str) -> list[Any]:
        at: dict[str, Any] = {"device": where, "generator": tb.Generator(9)}
        chances = tb.asarray([0.1, 0.5, 0.9], device=where)
        return [
            tb.randperm(50, **at).tolist(),
            tb.binomial(10, 0.3, (20,), **at).tolist(),
            tb.bernoulli(chances, (7, 3), generator=at["generator"]).tolist(),
            tb.permutation(tb.arange(9, device=where), generator=at["generator"]).tolist(),
            tb.randint_like(tb.zeros((4,), dtype="int64", device=where), -3, 9).shape,
            functional.dropout2d(tb.ones((4, 5, 2, 2), device=where), generator=at["generator"]).tolist(),
        ]

    assert draws(device) == draws("cpu")


def test_permutations(device: str) -> None:
    order = tb.randperm(1000, device=device, generator=tb.Generator(1)).tolist()
    assert sorted(order) == list(range(1000))
    assert order != list(range(1000))
    assert tb.randperm(0, device=device).tolist() == []
    x = tb.asarray([[1, 2, 3], [4, 5, 6]], device=device)
    mixed = tb.permutation(x, axis=1, generator=tb.Generator(3))
    assert sorted(mixed.mT.tolist()) == [[1, 4], [2, 5], [3, 6]]
    firsts = [tb.randperm(3, device=device, generator=tb.Generator(k)).tolist()[0] for k in range(150)]
    assert min(firsts.count(k) for k in range(3)) > 30


def test_multinomial(device: str) -> None:
    weights = tb.asarray([[0.0, 1.0, 2.0, 5.0], [3.0, 0.0, 0.0, 1.0]], device=device)
    actual = tb.multinomial(weights, 8000, True, generator=tb.Generator(2)).numpy()
    assert actual.shape == (2, 8000)
    shares = [np.bincount(row, minlength=4) / 8000 for row in actual]
    chances = np.array([[0, 0.125, 0.25, 0.625], [0.75, 0, 0, 0.25]])
    assert_within(shares, chances, 5 * np.sqrt(chances * (1 - chances) / 8000))
    assert shares[0][0] == shares[1][1] == 0
    generator = tb.Generator(6)
    firsts = []
    for _ in range(200):
        pair = tb.multinomial(weights, 2, generator=generator).tolist()
        assert sorted(pair[1]) == [0, 3]
        assert len(set(pair[0])) == 2
        assert 0 not in pair[0]
        firsts.append(pair[0][0])
    assert 95 < firsts.count(3) < 155


def test_gumbel_softmax(device: str) -> None:
    logits = tb.asarray([[0.0, 2.0]] * 500, device=device).requires_grad_()
    hard = functional.gumbel_softmax(logits, hard=True, generator=tb.Generator(0))
    assert sorted(set(hard.detach().numpy().reshape(-1).round(5).tolist())) == [0.0, 1.0]
    assert abs(hard.detach().numpy()[:, 1].mean() - 1 / (1 + exp(-2))) < 0.06
    hard[:, 0].sum().backward()
    assert logits.grad is not None
    assert np.abs(logits.grad.numpy()).max() > 0


def test_dropout_of_whole_channels(device: str) -> None:
    x = tb.ones((6, 5, 3), device=device)
    out = functional.dropout1d(x, 0.5, generator=tb.Generator(3)).numpy()
    assert ((out == 0).all(-1) | (out == 2).all(-1)).all()
    assert 0 < (out == 0).mean() < 1
    alpha = functional.alpha_dropout(
        tb.normal((SIZE,), device=device), 0.3, True, generator=tb.Generator(3)
    ).numpy()
    assert abs(alpha.mean()) < 0.03
    assert abs(alpha.std() - 1) < 0.03
    whole = functional.feature_alpha_dropout(x, 0.5, True, generator=tb.Generator(3)).numpy()
    assert (whole == whole[:, :, :1]).all()


def test_initial_values(device: str) -> None:
    result = init.orthogonal_(tb.empty((3, 2, 2), device=device), gain=2.0).numpy().reshape(3, 4)
    assert_within(result @ result.T, 4 * np.eye(3), 4 * gamma(4 * 3, "float32"))
    tall = init.orthogonal_(tb.empty((5, 2), device=device)).numpy()
    assert_within(tall.T @ tall, np.eye(2), gamma(5 * 2, "float32"))
    passing = init.dirac_(tb.empty((4, 2, 3), device=device), groups=2).numpy()
    assert passing.nonzero()[0].tolist() == [0, 1, 2, 3]
    assert passing.nonzero()[1].tolist() == [0, 1, 0, 1]
    assert set(passing.nonzero()[2].tolist()) == {1}
    sparse = init.sparse_(tb.empty((10, 3), device=device), 0.25).numpy()
    assert (sparse == 0).sum(0).tolist() == [3, 3, 3]
    cut = init.trunc_normal_(tb.empty((1000,), device=device), std=2.0, a=-1.0, b=0.5).numpy()
    assert -1 <= cut.min() < cut.max() <= 0.5


BAD: dict[str, tuple[Callable[[str], Any], type[Exception], str]] = {
    "more than there are": (
        lambda d: tb.multinomial(tb.ones((3,), device=d), 4), tb.ArgumentError, "1 to 3 places",
    ),
    "more than have weight": (
        lambda d: tb.multinomial(tb.asarray([1.0, 0.0], device=d), 2), tb.ArgumentError, "at least 2 above",
    ),
    "a negative weight": (
        lambda d: tb.multinomial(tb.asarray([1.0, -1.0], device=d), 1), tb.ArgumentError, "not negative",
    ),
    "weights of integers": (
        lambda d: tb.multinomial(tb.ones((3,), dtype="int32", device=d), 1), tb.DtypeError, "floating-point",
    ),
    "a rate of 0": (lambda d: tb.exponential((2,), 0.0, device=d), tb.ArgumentError, "rate must be > 0"),
    "no shape": (lambda d: tb.poisson(1.0, device=d), tb.ArgumentError, "a shape is needed"),
    "an empty interval": (
        lambda d: tb.truncated_normal((2,), low=1.0, high=1.0, device=d), tb.ArgumentError, "less than high",
    ),
    "a certain loss": (lambda d: tb.binomial(3, 1.5, (2,), device=d), tb.ArgumentError, r"\[0, 1\]"),
    "integers by chance": (
        lambda d: tb.exponential((2,), dtype="int32", device=d), tb.DtypeError, "floating-point",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_refused(device: str, name: str) -> None:
    call, error, text = BAD[name]
    with pytest.raises(error, match=text):
        call(device)
