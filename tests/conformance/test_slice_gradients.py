"""Gradients of slices: joined once, to what they are one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import Tensor
from tensorbus.autograd.gradient_sums import SliceGradients

RNG = np.random.default_rng(3)
X = RNG.normal(size=(6, 5, 4)).astype("f4")

# What is computed, and how many gradients each sum of slices joins.
CASES: dict[str, tuple[Callable[[Tensor], Any], list[int]]] = {
    "parts of all": (lambda x: [p * k for k, p in enumerate(tb.split(x, [1, 2, 3]), 1)], [3]),
    "parts along the last axis": (lambda x: [p * k for k, p in enumerate(tb.split(x, 2, axis=-1), 1)], [2]),
    "rows": (lambda x: [p * k for k, p in enumerate(tb.unstack(x, axis=1), 1)], [5]),
    "rows out of order": (lambda x: [x[:, k] * (k + 1) for k in (3, 0, 4)], [3]),
    "one row": (lambda x: [x[2] * 3], [1]),
    "gaps": (lambda x: [x[1:2] * 2, x[4:5] * 3], [2]),
    "the end": (lambda x: [x[:, :, 3:] * 2], [1]),
    "the same twice": (lambda x: [x[1:3] * 2, x[1:3] * 0.1], [1, 1]),
    "what overlaps": (lambda x: [x[1:4] * 2, x[3:5] * 0.3, x[:1] * 0.7], [1, 2]),
    "parts along two axes": (lambda x: [x[1:3] * 2, x[:, :2] * 0.3, x[:, 2:] * 0.7], [2, 1]),
    "boxes": (lambda x: [x[1:3, 1:3] * 2, x[::2] * 0.3, x[:, ::-1] * 0.7], []),
    "all of it": (lambda x: [x[:] * 2, x[:, 0:5] * 0.1], []),
    "nothing of it": (lambda x: [x[2:2] * 2, x * 0.1], []),
    "the whole first": (lambda x: [x[:2] * 0.1, x[2:] * 0.2, x * 0.3], [2]),
    "the whole last": (lambda x: [x * 0.3, x[:2] * 0.1, x[2:] * 0.2], [2]),
    "the whole between": (lambda x: [x[:2] * 0.1, x * 0.3, x[2:] * 0.2], [1, 1]),
    "slices of slices": (lambda x: [p * k for half in tb.split(x, 3) for k, p in enumerate(half, 1)],
                         [3, 3, 2]),
    "other shapes": (lambda x: [tb.reshape(x, (10, 12)) * 2, tb.reshape(tb.flip(x, axis=0), (-1,))], []),
    "other orders": (lambda x: [tb.permute_dims(x, (1, 2, 0)) * 2, tb.permute_dims(x, (2, 0, 1)) * 0.3], []),
    "rows of other orders": (lambda x: list(tb.unstack(tb.permute_dims(x, (2, 0, 1)), axis=0)), [4]),
    "of another op": (lambda x: [p * k for k, p in enumerate(tb.split(tb.sin(x), 2, axis=1), 1)], [3]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_slices_one_by_one(
    device: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ``create_graph`` each goes the way of every op, and what comes of it has a history."""
    function, joined = CASES[name]
    counts: list[int] = []
    join = SliceGradients.total

    def counted(self: SliceGradients) -> Tensor:
        counts.append(len(self.parts))
        return join(self)

    monkeypatch.setattr(SliceGradients, "total", counted)
    x = tb.asarray(X, device=device).requires_grad_()
    outs = function(x)
    seeds = [tb.cos(out.detach()) for out in outs]
    (expected,) = tb.grad(outs, x, seeds, create_graph=True)
    assert counts == []
    (got,) = tb.grad(outs, x, seeds, retain_graph=True)
    assert sorted(counts) == sorted(joined)
    assert expected is not None
    assert got is not None
    np.testing.assert_array_equal(got.to("cpu").numpy(), expected.detach().to("cpu").numpy())
    assert got._node is None


def test_hooks_see_the_sum_and_histories_are_let_go(device: str) -> None:
    x = tb.asarray(X, device=device).requires_grad_()
    y = x * 2
    seen: list[Tensor] = []
    y.register_hook(seen.append)
    first, last = tb.split(y, [2, 4])
    total = (first * 3).sum() + (last * 5).sum()
    total.backward()
    expected = np.broadcast_to(np.array([3.0] * 2 + [5.0] * 4)[:, None, None], X.shape)
    (g,) = seen
    np.testing.assert_array_equal(g.to("cpu").numpy(), expected)
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.to("cpu").numpy(), 2 * expected)
    with pytest.raises(tb.errors.AutogradError, match="let go"):
        first.sum().backward()


def test_long_loops_over_rows(device: str) -> None:
    x = tb.asarray(RNG.normal(size=(300, 2)).astype("f4"), device=device).requires_grad_()
    state = tb.zeros((2,), device=device)
    for row in x:
        state = state * 0.5 + row
    state.sum().backward()
    assert x.grad is not None
    expected = np.repeat(0.5 ** np.arange(299, -1, -1)[:, None], 2, 1)
    np.testing.assert_array_equal(x.grad.to("cpu").numpy(), expected.astype("f4"))
