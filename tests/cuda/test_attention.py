"""Attention's derivative by cuDNN, and products whose rows are a few elements too long, on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import nn
from tensorbus_cuda import device as cuda

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(cuda.why_unavailable() is not None, reason=f"cuda: {cuda.why_unavailable()}"),
]
CUDA = "cuda"


def share(actual: Any, expected: np.ndarray) -> float:
    """Return the norm of the error as a part of that of what is expected."""
    got = actual.to(tb.float32).numpy()
    assert np.isfinite(got).all()
    return float(np.linalg.norm(got - expected) / np.linalg.norm(expected))


def drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> tuple[Any, Any]:
    """Return a value on the GPU, and the same numbers in float64 on the processor."""
    x = tb.asarray(rng.standard_normal(shape).astype(np.float32), device=CUDA).to(dtype)
    return x, tb.asarray(x.to(tb.float32).numpy().astype(np.float64), device="cpu")


def gradients(xs: list[Any], g: Any, **attrs: Any) -> list[Any]:
    leaves = [x.detach().requires_grad_() for x in xs]
    out = nn.functional.scaled_dot_product_attention(*leaves, **attrs)
    return list(tb.grad(out, leaves, g))


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("kind", ["bool", "added"])
@pytest.mark.parametrize("mask", [(96, 160), (2, 1, 1, 160), (1, 4, 96, 160), (2, 4, 96, 1), (4, 1, 1)])
def test_masks_and_the_derivative_behind_them(
    mask: tuple[int, ...], kind: str, compiled: bool, rng: np.random.Generator
) -> None:
    shapes = (2, 4, 96, 64), (2, 4, 160, 64), (2, 4, 160, 64), (2, 4, 96, 64)
    results = [drawn(rng, shape, "bfloat16") for shape in shapes]
    seen = rng.random(mask) < 0.7
    seen.reshape(-1)[0] = True
    if kind == "bool":
        masks = tb.asarray(seen, device=CUDA), tb.asarray(seen, device="cpu")
    else:
        masks = drawn(rng, mask, "bfloat16")
    run: Callable[..., list[Any]] = tb.compile(gradients) if compiled else gradients
    for _ in range(3):
        own, plain = ([x[k] for x in results] for k in (0, 1))
        actual = run(own[:3], own[3], attn_mask=masks[0])
        expected = gradients(plain[:3], plain[3], attn_mask=masks[1])
        for x, y in zip(actual, expected, strict=True):
            assert share(x, y.numpy()) < 2e-2
        out = nn.functional.scaled_dot_product_attention(*own[:3], attn_mask=masks[0])
        whole = nn.functional.scaled_dot_product_attention(*plain[:3], attn_mask=masks[1])
        assert share(out, whole.numpy()) < 2e-2


def test_queries_that_see_nothing_give_zeros(rng: np.random.Generator) -> None:
    (q, _), (mask, _) = drawn(rng, (1, 2, 64, 64), "bfloat16"), drawn(rng, (64, 64), "bfloat16")
    seen = np.ones((64, 64), bool)
    seen[5] = False
    masks = tb.asarray(seen, device=CUDA), tb.where(tb.asarray(seen, device=CUDA), mask, float("-inf"))
    for operand in masks:
        leaf = q.detach().requires_grad_()
        out = nn.functional.scaled_dot_product_attention(leaf, q, q, attn_mask=operand)
        assert not out[:, :, 5].to(tb.float32).numpy().any()
        (grad,) = tb.grad(out, [leaf], q)
        assert np.isfinite(grad.to(tb.float32).numpy()).all()


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    ("q", "kv", "attrs"),
    [
        ((2, 4, 128, 64), (2, 4, 128, 64), {"is_causal": True}),
        ((2, 4, 96, 64), (2, 4, 160, 64), {}),
        ((1, 8, 200, 128), (1, 2, 200, 128), {"is_causal": True, "enable_gqa": True}),
        ((2, 3, 70, 40), (2, 3, 33, 40), {"scale": 0.3}),
    ],
    ids=["causal", "all", "shared", "odd"],
)  # fmt: skip
def test_the_derivative_agrees_with_its_definition(
    q: tuple[int, ...], kv: tuple[int, ...], attrs: dict[str, Any], dtype: str, compiled: bool,
    rng: np.random.Generator,
) -> None:  # fmt: skip
    results = [drawn(rng, shape, dtype) for shape in (q, kv, kv, q)]
    run: Callable[..., list[Any]] = tb.compile(gradients) if compiled else gradients
    for _ in range(3):
        actual = run([x for x, _ in results[:3]], results[3][0], **attrs)
        expected = gradients([x for _, x in results[:3]], results[3][1], **attrs)
        for one, other in zip(actual, expected, strict=True):
            assert share(one, other.numpy()) < 1e-2


def test_the_derivative_is_one_kernel_of_the_library() -> None:
    x = tb.ones((1, 2, 64, 64), dtype=tb.bfloat16, device=CUDA)
    assert "'cudnn'" in str(tb.explain("attention_gradients", x, x, x, x, x))


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_products_of_odd_lengths(compiled: bool, rng: np.random.Generator) -> None:
    """A product whose rows are apart is read by others: as it is, turned, and element by element."""
    a, a64 = drawn(rng, (1024, 64), "bfloat16")
    w, w64 = drawn(rng, (5003, 64), "bfloat16")

    def run(a: Any, w: Any) -> tuple[Any, ...]:
        y = a @ w.mT
        g = (y * 0.5).to(y.dtype)
        return y, g @ w, g.mT @ a, (y + 1).sum(axis=0), y.reshape(8, 128, 5003)[3], g

    one: Callable[..., tuple[Any, ...]] = tb.compile(run) if compiled else run
    for _ in range(3):
        for actual, expected in zip(one(a, w), run(a64, w64), strict=True):
            assert actual.shape == expected.shape
            assert share(actual, expected.numpy()) < 1e-2
