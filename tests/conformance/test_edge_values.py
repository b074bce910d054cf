"""Values and gradients at the edges of narrow dtypes, of shapes and of infinities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.special
import tensorbus as tb

from error_bounds import assert_within, gamma, stored
from installed import lacks

F = tb.nn.functional
HALF = np.array([[300.0, 1.0]], np.float16)


def assert_near(actual: tb.Tensor, exact: Any) -> None:
    """Check a float16 that is stored after a length, which is, and a factor of it, that may be."""
    assert_within(actual.detach().numpy(), exact, 3 * stored(exact, "float16"))


def test_lengths_of_half_precision_do_not_overflow(device: str) -> None:
    x = tb.asarray(HALF, device=device)
    assert_near(F.normalize(x), [[1, 1 / 300]])
    assert F.cosine_similarity(x, x).tolist() == [1.0]
    assert F.pairwise_distance(x, -x).tolist() == [600.0]
    assert F.normalize(tb.full((1, 4), 1e-4, dtype="float16", device=device)).tolist() == [[0.5] * 4]
    assert F.normalize(x).dtype is F.cosine_similarity(x, x).dtype is tb.float16


def test_gradients_in_half_precision_are_clipped_by_their_norm(device: str) -> None:
    parameters = [tb.nn.Parameter(tb.asarray(HALF, device=device)) for _ in range(2)]
    for p in parameters:
        p.grad = p.detach()
    norm = tb.optim.clip_grad_norm_(parameters, 1.0)
    assert norm.dtype is tb.float16
    assert_near(norm, math.hypot(300, 1) * math.sqrt(2))
    assert_near(parameters[0].grad, HALF.astype("f8") / (math.hypot(300, 1) * math.sqrt(2)))


def test_a_table_in_half_precision_is_shortened(device: str) -> None:
    table = tb.asarray(HALF, device=device)
    rows = F.embedding(tb.asarray([0], device=device), table, max_norm=1.0)
    assert_near(rows, [[1, 1 / 300]])


@pytest.mark.parametrize(
    ("first", "second", "dim"),
    [((2, 3), (1, 1), 1), ((3,), (2, 3), 0), ((2, 3), (3,), 1), ((2, 1), (1, 3), -1)],
)
def test_cosines_are_of_the_common_shape(
    device: str, first: tuple[int, ...], second: tuple[int, ...], dim: int
) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.uniform(1, 2, first), rng.uniform(1, 2, second)
    x, y = np.broadcast_arrays(a, b)
    wanted = (x * y).sum(dim) / np.linalg.norm(x, axis=dim) / np.linalg.norm(y, axis=dim)
    operands = [tb.asarray(v.astype("f4"), device=device) for v in (a, b)]
    assert_within(
        F.cosine_similarity(*operands, dim=dim).numpy(), wanted, gamma(3 * 3 + 4, "float32") * wanted
    )


def test_the_exponent_of_zero_and_of_negative_numbers(device: str) -> None:
    x = tb.asarray([0.0, 1.0, -1.0], device=device).requires_grad_()
    (0.0**x).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0, -math.inf]
    y = tb.asarray([0.3, 2.0], device=device).requires_grad_()
    ((-2.0) ** y).sum().backward()
    assert np.isnan(y.grad.numpy()).all()


def test_quantiles_beside_infinities(device: str) -> None:
    x = tb.asarray([-math.inf, -math.inf, 1.0, math.inf], device=device)
    q = tb.asarray([0.0, 0.1, 0.5, 0.9, 1.0], device=device)
    assert tb.quantile(x, q).tolist() == [-math.inf, -math.inf, -math.inf, math.inf, math.inf]
    assert tb.quantile(tb.asarray([-math.inf, 1.0], device=device), 0.5).item() == -math.inf


def test_equal_elements_share_the_gradient_of_what_lies_between(device: str) -> None:
    for function, wanted in ((lambda x: tb.quantile(x, 0.25), [0.75, 0.25]), (tb.median, [0.5, 0.5])):
        x = tb.asarray([1.0, 1.0], device=device).requires_grad_()
        out = function(x)
        out.backward()
        assert out.item() == 1.0
        assert x.grad.tolist() == wanted


def test_the_beta_distribution_of_small_exponents(device: str) -> None:
    actual = tb.special.betainc(*[tb.asarray([v], device=device) for v in (0.0048, 68.7, 1.07e-4)])
    exact = scipy.special.betainc(*np.float32([0.0048, 68.7, 1.07e-4]).astype("f8"))
    assert_within(actual.numpy(), [exact], gamma(64, "float32"))
    share = tb.special.stdtr(tb.asarray([0.002], device=device), tb.asarray([0.83], device=device))
    exact = scipy.special.stdtr(*np.float32([0.002, 0.83]).astype("f8"))
    assert_within(share.numpy(), [exact], gamma(64, "float32"))
    zero = tb.asarray([0.0], device=device)
    assert tb.special.betainc(zero + 0.5, zero + math.inf, zero).tolist() == [0.0]


@pytest.mark.parametrize("mode", ["linear", "bilinear", "bicubic"])
def test_a_scale_that_leaves_a_length_keeps_its_elements(device: str, mode: str) -> None:
    shape = (1, 2, 3) if mode == "linear" else (1, 2, 3, 2)
    x = tb.asarray(np.random.default_rng(0).random(shape).astype("f4"), device=device)
    assert F.interpolate(x, scale_factor=1.3, mode=mode).tolist() == x.tolist()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("mode", "half"), [("nearest", 0), ("nearest-exact", 5)])
def test_what_is_nearest_is_the_same_in_every_dtype(device: str, mode: str, half: int, dtype: str) -> None:
    """``13 / 1.3`` is 10, whose reciprocal times 13 is less in double precision."""
    if lacks(device, getattr(tb, dtype)):
        return
    x = tb.arange(31, dtype=dtype, device=device)
    result = F.interpolate(tb.reshape(x, (1, 1, 31)), scale_factor=1.3, mode=mode)
    assert result.tolist() == [[[(10 * k + half) // 13 for k in range(40)]]]


@pytest.mark.parametrize(
    ("function", "slope"),
    [
        (tb.logaddexp, 0.25),
        (tb.logaddexp2, 0.25 * math.log(2)),
        (lambda x, y: tb.logcumsumexp(tb.stack([x, y]))[1], 0.25),
    ],
)
def test_second_derivatives_at_equal_operands(device: str, function: Any, slope: float) -> None:
    x = tb.asarray([0.0, 0.0], device=device).requires_grad_()
    (g,) = tb.grad(function(x[0], x[1]), x, create_graph=True)
    assert g.tolist() == [0.5, 0.5]
    (second,) = tb.grad(g[0], x)
    assert_within(second.numpy(), [slope, -slope], gamma(4, "float32") * slope)
    none = tb.asarray([-math.inf, -math.inf], device=device).requires_grad_()
    assert tb.grad(function(none[0], none[1]), none)[0].tolist() == [0.5, 0.5]


@pytest.mark.parametrize("dtype", [tb.float16, tb.float32, tb.float64], ids=str)
def test_powers_of_one_half_are_no_square_roots(device: str, dtype: tb.DType) -> None:
    """C, F.10.4.4, and the array API: infinity for -infinity and 0.0 for -0.0."""
    if lacks(device, dtype):
        return
    x = tb.asarray([-math.inf, -0.0, 4.0, 0.0, math.inf, 9.0, 0.25, 16.0, -math.inf], device=device).to(dtype)
    y = tb.full(x.shape, 0.5, dtype=dtype, device=device)
    wanted = [math.inf, 0.0, 2.0, 0.0, math.inf, 3.0, 0.5, 4.0, math.inf]
    powers = [lambda x: x**0.5, lambda x: x ** y[0], lambda x: x ** y[:1], lambda x: x**y]
    for power in (*powers, *map(tb.compile, powers)):
        actual = power(x).numpy()
        np.testing.assert_array_equal(actual, wanted)
        assert not np.signbit(actual).any()
    assert (x[0] ** 0.5).item() == math.inf
