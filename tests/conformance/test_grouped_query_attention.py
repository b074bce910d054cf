"""Attention whose heads share keys or values, or broadcast them: values and gradients, eager and compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorbus as tb

from error_bounds import assert_as_exact_as_eager

attend = tb.nn.functional.scaled_dot_product_attention
GROUPED = [
    ((2, 8, 5, 4), (2, 2, 7, 4), (2, 2, 7, 3)),
    ((2, 8, 1, 4), (2, 1, 7, 4), (2, 1, 7, 3)),
    ((8, 5, 4), (2, 7, 4), (4, 7, 3)),
    ((3, 2, 6, 5, 4), (2, 3, 7, 4), (3, 1, 3, 7, 2)),
]
BROADCAST = [
    ((2, 8, 5, 4), (1, 8, 7, 4), (2, 1, 7, 3)),
    ((2, 1, 5, 4), (2, 8, 7, 4), (2, 8, 7, 3)),
    ((2, 1, 3, 4), (1, 5, 4), (2, 2, 5, 2)),
    ((2, 1, 3, 4), (2, 2, 5, 4), (2, 1, 5, 2)),
    ((5, 4), (8, 7, 4), (8, 7, 3)),
    ((8, 5, 4), (7, 4), (7, 3)),
]


def repeated(query: Any, key: Any, value: Any, mask: Any) -> Any:
    """Return the same by the definition, with every head of its own."""
    heads = query.shape[-3:-2]
    if heads not in ((), (1,)):
        key, value = (
            tb.repeat(x, heads[0] // x.shape[-3], axis=-3)
            if x.ndim > 2 and heads[0] % x.shape[-3] == 0
            else x
            for x in (key, value)
        )
    scores = query @ key.mT / np.sqrt(query.shape[-1])
    return tb.softmax(scores if mask is None else scores + mask, axis=-1) @ value


@pytest.mark.parametrize("masked", [False, True], ids=["plain", "masked"])
@pytest.mark.parametrize("shapes", [*GROUPED, *BROADCAST], ids=str)
def test_heads_that_share_keys(device: str, shapes: tuple[tuple[int, ...], ...], masked: bool) -> None:
    rng = np.random.default_rng(0)

    def drawn(*shape: int) -> Any:
        return tb.asarray(rng.normal(size=shape).astype("f4"), device=device)

    grouped = shapes in GROUPED
    arrays = [drawn(*s).requires_grad_() for s in shapes]
    shape = repeated(*arrays, None).shape
    mask = drawn(*shape[:-1], shapes[1][-2]) if masked else None
    weight = drawn(*shape)
    roundings = shapes[0][-1] + shapes[1][-2] + 8

    def with_gradients(function: Any, dtype: str) -> list[Any]:
        operands = [x.detach().to(dtype).requires_grad_() for x in arrays]
        more = [] if mask is None else [mask.to(dtype)]
        out = function(*operands, *more)
        return [out.detach().numpy(), *[g.numpy() for g in tb.grad((out * weight).sum(), operands)]]

    eager, exact = (
        with_gradients(lambda *x: repeated(*x, *[None] * (4 - len(x))), dtype)
        for dtype in ("float32", "float64")
    )

    def ours(*args: Any) -> Any:
        return attend(*args, enable_gqa=grouped)

    for run in (ours, tb.compile(ours), tb.compile(ours, dynamic=True)):
        for actual, other, right in zip(with_gradients(run, "float32"), eager, exact, strict=True):
            assert_as_exact_as_eager(actual, other, right, roundings, "float32")


def test_heads_that_do_not_fit_are_refused_with_dropout_as_well(device: str) -> None:
    q, k = tb.ones((1, 8, 2, 4), device=device), tb.ones((1, 2, 3, 4), device=device)
    for share in (0.0, 0.5):
        with pytest.raises(tb.ShapeError):
            attend(q, k, k, dropout_p=share)
        with pytest.raises(tb.ShapeError, match="divide"):
            attend(q[:, :7], k, k, dropout_p=share, enable_gqa=True)
