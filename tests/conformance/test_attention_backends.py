"""``scaled_dot_product_attention`` by each of its backends, held to the formula in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus.dispatch.kernel_tables import is_served
from tensorbus.nn import functional as F  # noqa: N812 - what everybody calls it
from tensorbus.nn.attention import SDPBackend, sdpa_kernel
from tensorbus.nn.attention.bias import causal_lower_right, causal_upper_left

from error_bounds import assert_alike, assert_within, gamma
from peak_memory import peak_bytes

TILES = (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION)


@dataclass(frozen=True)
class Case:
    """Shapes of query, key and value, and of a float mask if any; which mask counts, as NumPy sees it."""

    query: tuple[int, ...]
    key: tuple[int, ...]
    width: int
    mask: tuple[int, ...] | None = None
    counts: Callable[[int, int], np.ndarray] | None = None
    named: dict[str, Any] = field(default_factory=dict)


def lower(m: int, n: int) -> np.ndarray:
    return np.tri(m, n, n - m, dtype=bool)


CASES = {
    "plain": Case((2, 3, 7, 4), (2, 3, 9, 4), 5),
    "two axes, causal": Case((70, 4), (90, 4), 3, counts=lambda m, n: np.tri(m, n, dtype=bool),
                             named={"is_causal": True}),
    "upper left": Case((2, 2, 130, 4), (2, 2, 70, 4), 4, counts=lambda m, n: np.tri(m, n, dtype=bool),
                       named={"attn_mask": causal_upper_left(130, 70)}),
    "lower right, grouped heads": Case((2, 4, 5, 6), (2, 2, 135, 6), 6, counts=lower,
                                       named={"attn_mask": causal_lower_right(5, 135), "enable_gqa": True}),
    "lower right, queries without keys": Case((1, 66, 4), (1, 3, 4), 4, counts=lower,
                                              named={"attn_mask": causal_lower_right(66, 3)}),
    "float mask of heads, grouped": Case((2, 4, 5, 6), (2, 2, 11, 6), 3, (4, 1, 11),
                                         named={"enable_gqa": True}),
    "float mask of queries": Case((2, 4, 5, 6), (2, 4, 11, 6), 3, (5, 1)),
    "float mask, broadcast heads": Case((2, 3, 4, 5, 6), (2, 1, 1, 11, 6), 3, (2, 1, 4, 5, 11)),
    "bool mask": Case((2, 3, 6, 4), (2, 3, 6, 4), 4,
                      counts=lambda m, n: np.arange(n) != np.arange(m)[:, None] * 2),
}  # fmt: skip


def drawn(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype("f4")


def weights(q: np.ndarray, k: np.ndarray, added: np.ndarray | None, counts: np.ndarray | None) -> np.ndarray:
    """Return the shares of the keys, by the definition."""
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    scores = scores if added is None else scores + added
    scores = scores if counts is None else np.where(counts, scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isinf(top), 0, top))
    total = powers.sum(-1, keepdims=True)
    return powers / np.where(total == 0, 1, total)


def reduced(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the sum of ``x`` over the axes along which ``shape`` was broadcast."""
    x = x.sum(tuple(range(x.ndim - len(shape))))
    return x.sum(tuple(k for k, n in enumerate(shape) if n == 1 != x.shape[k]), keepdims=True)


def rounded(*lengths: int) -> float:
    """Return the relative error of sums over axes so long in float32, with a softmax between them."""
    return gamma(sum(lengths) + 16, "float32")


def exact(case: Case) -> list[tuple[np.ndarray, float]]:
    """Return the result and the gradients of query, key, value and mask, in float64.

    With each the largest sum of magnitudes in it, which its rounding errors are relative to.
    """
    arrays = [
        drawn(n, s).astype("f8") for n, s in enumerate((case.query, case.key, (*case.key[:-1], case.width)))
    ]
    q, k, v = arrays
    if "enable_gqa" in case.named:
        k, v = (np.repeat(x, q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    counts = None if case.counts is None else case.counts(q.shape[-2], k.shape[-2])
    p = weights(q, k, None if case.mask is None else drawn(3, case.mask).astype("f8"), counts)
    g = drawn(4, (*q.shape[:-1], case.width)).astype("f8")

    def with_gradients(
        q: np.ndarray, k: np.ndarray, v: np.ndarray, g: np.ndarray, sign: int
    ) -> list[np.ndarray]:
        out = p @ v
        slopes = p * (g @ np.swapaxes(v, -1, -2) - sign * (g * out).sum(-1, keepdims=True))
        factor = 1 / np.sqrt(q.shape[-1])
        products = [slopes @ k * factor, np.swapaxes(slopes, -1, -2) @ q * factor, np.swapaxes(p, -1, -2) @ g]
        results = [out, reduced(products[0], case.query)]
        for gradient, x in zip(products[1:], arrays[1:], strict=True):
            if "enable_gqa" in case.named:
                *lead, _, m, n = gradient.shape
                gradient = gradient.reshape(*lead, x.shape[-3], -1, m, n).sum(-3)
            results.append(reduced(gradient, x.shape))
        return results if case.mask is None else [*results, reduced(slopes, case.mask)]

    magnitudes = with_gradients(*map(np.abs, (q, k, v, g)), sign=-1)
    sizes = [float(x.max(initial=0.0)) for x in magnitudes]
    return list(zip(with_gradients(q, k, v, g, sign=1), sizes, strict=True))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("backend", ["default", "MATH", "EFFICIENT_ATTENTION"])
def test_each_backend_is_the_formula(device: str, name: str, backend: str) -> None:
    case = CASES[name]
    shapes = [case.query, case.key, (*case.key[:-1], case.width)]
    leaves = [tb.asarray(drawn(n, s), device=device).requires_grad_() for n, s in enumerate(shapes)]
    named = dict(case.named)
    if case.mask is not None:
        leaves.append(tb.asarray(drawn(3, case.mask), device=device).requires_grad_())
    elif not named and case.counts is not None:
        named["attn_mask"] = tb.asarray(case.counts(case.query[-2], case.key[-2]), device=device)

    def attend(*x: Any) -> Any:
        masks = {} if len(x) == 3 else {"attn_mask": x[3]}
        if backend == "default":
            return F.scaled_dot_product_attention(*x[:3], **masks, **named)
        with sdpa_kernel(SDPBackend[backend]):
            return F.scaled_dot_product_attention(*x[:3], **masks, **named)

    def both(*x: Any) -> Any:
        out = attend(*x)
        return out, *tb.grad((out * tb.asarray(drawn(4, out.shape), device=device)).sum(), x)

    right = exact(case)
    bound = rounded(case.query[-2], case.query[-1], case.key[-2], case.width)
    for how, run in (("eager", both), ("compiled", tb.compile(both))):
        names = ("out", "query", "key", "value", "mask")[: len(right)]
        for what, x, (y, size) in zip(names, run(*leaves), right, strict=True):
            assert x.shape == y.shape
            assert_within(np.asarray(x.tolist()).reshape(y.shape), y, bound * size, f"{how} {what}")


@pytest.mark.full
def test_tiles_of_float64(device: str) -> None:
    """Large enough for a kernel to be generated; heads that share keys, and a width of no whole vectors."""
    shapes = (1, 4, 260, 21), (1, 2, 260, 21), (1, 2, 260, 13)
    leaves = [
        tb.asarray(drawn(n, s).astype("f8"), device=device).requires_grad_() for n, s in enumerate(shapes)
    ]
    results = []
    for backend in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION):
        with sdpa_kernel(backend):
            out = F.scaled_dot_product_attention(*leaves, is_causal=True, enable_gqa=True)
            results.append([out, *tb.grad(out.sum(), leaves)])
    for exact_one, by_tiles in zip(*results, strict=True):
        assert_alike(by_tiles, exact_one, 2 * 260 + 21 + 13)


def test_a_compiled_call_follows_the_backends_that_are_allowed(device: str) -> None:
    """What was compiled under one choice is not taken under another; a causal mask is known by its sizes."""
    x, keys = (tb.asarray(drawn(n, (1, 2, n, 4)), device=device) for n in (5, 8))
    run = tb.compile(lambda q, k, mask: F.scaled_dot_product_attention(q, k, k, mask))
    for mask, counts in (
        (causal_upper_left(5, 8), np.tri(5, 8, dtype=bool)),
        (causal_lower_right(5, 8), lower(5, 8)),
    ):
        right = weights(drawn(5, (1, 2, 5, 4)), drawn(8, (1, 2, 8, 4)), None, counts) @ drawn(8, (1, 2, 8, 4))
        for allowed in (SDPBackend.MATH, [*TILES], SDPBackend.MATH):
            with sdpa_kernel(allowed):
                assert_within(run(x, keys, mask).tolist(), right, rounded(4, 8) * np.abs(right).max())
        with (
            sdpa_kernel(SDPBackend.CUDNN_ATTENTION),
            pytest.raises(tb.UnsupportedOpError, match="CUDNN_ATTENTION: "),
        ):
            run(x, keys, mask)


def test_explain_tells_of_every_backend(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    x = tb.ones((1, 1, 8, 4), device=device)
    with sdpa_kernel([SDPBackend.MATH, *TILES], set_priority=True):
        tb.explain(F.scaled_dot_product_attention, x, x, x, tb.ones((8, 8), device=device))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith(": by MATH")
    answer = {line.split()[1]: " ".join(line.split()[4:]) for line in lines[1:6]}
    assert list(answer)[:3] == ["MATH", "FLASH_ATTENTION", "EFFICIENT_ATTENTION"]
    assert answer["MATH"] == "taken"
    assert answer["FLASH_ATTENTION"].startswith("not taken: it takes no attn_mask that is a tensor")
    assert answer["EFFICIENT_ATTENTION"].startswith("not taken: comes later")
    assert answer["OVERRIDEABLE"].startswith("not taken: ")
    for wrong in ([], ["math"], SDPBackend.ERROR):
        with pytest.raises(tb.ArgumentError, match="sdpa_kernel"):
            sdpa_kernel(wrong)


def test_dropout_is_the_same_compiled_and_on_the_way_back(device: str) -> None:
    """Values that are the identity show which shares were dropped; gradients are of these."""
    q, k = (tb.asarray(drawn(n, (2, 3, 6, 6)), device=device).requires_grad_() for n in (0, 1))
    v = tb.broadcast_to(tb.eye(6, device=device), (2, 3, 6, 6)).requires_grad_()
    g = tb.asarray(drawn(2, (2, 3, 6, 6)), device=device)

    def both(q: Any, k: Any, v: Any) -> Any:
        out = F.scaled_dot_product_attention(q, k, v, dropout_p=0.4)
        return out, *tb.grad((out * g).sum(), (q, k, v))

    compiled = tb.compile(both)
    results = []
    for run in (both, compiled, compiled):
        tb.manual_seed(7)
        results.append([np.asarray(x.tolist()) for x in run(q, k, v)])
    for other in results[1:]:
        for x, y in zip(other, results[0], strict=True):
            assert_alike(x, y, 4 * 6, "float32")
    out, *gradients = results[0]
    exact_q, exact_k, exact_g = (drawn(n, (2, 3, 6, 6)).astype("f8") for n in (0, 1, 2))
    p = weights(exact_q, exact_k, None, None)
    factor = (out != 0) / 0.6
    assert 0 < (out == 0).mean() < 1
    assert_within(out, p * factor, rounded(6) * (p * factor).max())
    behind = exact_g * factor
    slopes = p * (behind - (p * behind).sum(-1, keepdims=True)) / np.sqrt(6)
    right = (
        slopes @ exact_k,
        np.swapaxes(slopes, -1, -2) @ exact_q,
        np.swapaxes(p * factor, -1, -2) @ exact_g,
    )
    for x, y in zip(gradients, right, strict=True):
        assert_within(x, y, rounded(6, 6, 6) * np.abs(y).max())


def peak_of(device: str, queries: int, keys: int, mask: str) -> int:
    """Return the bytes at the peak of a call, forward and back, beyond those before it."""
    x = [tb.asarray(drawn(n, (1, 2, m, 8)), device=device).requires_grad_()
         for n, m in enumerate((queries, keys, keys))]  # fmt: skip
    named: dict[str, Any] = {"is_causal": True}
    if mask == "lower right":
        named = {"attn_mask": causal_lower_right(queries, keys)}
    elif mask == "padding":
        named = {"attn_mask": tb.asarray(np.arange(keys) < keys // 2, device=device)}

    def run() -> Any:
        out = F.scaled_dot_product_attention(*x, **named)
        return [g.tolist() for g in tb.grad(out.sum(), x)]

    return peak_bytes(device, run)


@pytest.mark.full
@pytest.mark.parametrize("mask", ["causal", "lower right", "padding"])
def test_no_mask_and_no_scores_are_in_memory_as_a_whole(device: str, mask: str) -> None:
    """Three times as many queries and keys take about three times as much, and not nine times.

    A device that has kernels of attention for other calls may have all scores of this one up to 2**24.
    """
    times = 4 if is_served(device, "scaled_dot_product_attention") else 1
    short, long = (peak_of(device, 256 * n, 512 * n, mask) for n in (times, 3 * times))
    assert 0 < long < 5 * short


def test_a_causal_bias_is_its_mask_for_whoever_asks() -> None:
    bias = causal_lower_right(3, 5)
    mask = lower(3, 5)
    for value in (bias, ~~bias, bias & True, bias.materialize("cpu"), tb.asarray(bias), bias.to("cpu")):
        assert np.array_equal(np.asarray(value.tolist()), mask)
    assert bias[0].tolist() == mask[0].tolist()
    assert (bias.shape, bias.ndim, bias.dtype, len(bias)) == ((3, 5), 2, tb.bool, 3)
    assert bias == causal_lower_right(3, 5) != causal_upper_left(3, 5)
    assert causal_lower_right(4, 4) == causal_upper_left(4, 4)
    x = tb.ones((1, 3, 4), device="cpu")
    with pytest.raises(tb.ShapeError, match="for 3 queries and 5 keys, and there are 3 and 3"):
        F.scaled_dot_product_attention(x, x, x, bias)
    with pytest.raises(tb.ArgumentError, match="the length of an axis, got -1"):
        causal_upper_left(-1, 2)
    with pytest.raises(tb.ArgumentError, match=r"the size is \(seq_len_q, seq_len_kv\)"):
        causal_upper_left(3)
