"""Functions of order, places and segments, whose derivatives are compared with finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorbus as tb
from tensorbus import Tensor

Array = np.ndarray[Any, Any]
Function = Callable[..., Tensor]


def numbers(*shape: int, seed: int = 0, low: float = -2.0, high: float = 2.0) -> Array:
    """Return numbers far apart from each other and from 0."""
    size = int(np.prod(shape))
    spread = low + (high - low) * (np.arange(size) + 0.37) / max(size, 1)
    return np.random.default_rng(seed).permutation(spread).reshape(shape)


def on_cpu(data: Any) -> Tensor:
    return tb.asarray(data, device="cpu")


X, ROWS, LINE = numbers(3, 4), numbers(2, 3, 4, seed=1), numbers(5, seed=2)
OTHER = numbers(3, 4, seed=4)
FACTORS = numbers(6, 2, seed=7)
FACTORS[[0, 2, 3, 5], 0] = FACTORS[[0, 1, 2, 3, 4], 1] = 0.0
ZEROS = X.copy()
ZEROS[0, 1] = ZEROS[1, 0] = ZEROS[1, 2] = 0.0
PLACES = on_cpu([[0, 2, 2, -1], [1, 1, 0, 2]])
VALUES = numbers(2, 4, seed=3)
IDS = on_cpu([1, 0, 1])
MASK = on_cpu([[True, False, True, False]])


def _put(mode: str) -> Function:
    return lambda x, v: tb.scatter_along_axis(x, PLACES, v, axis=0, mode=mode)


def _scatter(mode: str) -> Function:
    return lambda x, v: tb.scatter(x, v, on_cpu([0, 2, 2]), mode=mode)


def _reduced(how: str, include_self: bool) -> Function:
    places = on_cpu([[0, 2, 2, 1], [1, 1, 0, 2]])
    return lambda x, v: tb.scatter_reduce(x, 0, places, v, how, include_self=include_self)


ORDERING: dict[str, tuple[Function, list[Array]]] = {
    "sort": (lambda x: tb.sort(x, axis=0), [X]),
    "sort descending": (lambda x: tb.sort(x, descending=True), [X]),
    "cumulative_prod": (lambda x: tb.cumulative_prod(x, axis=1), [X]),
    "cumulative_prod of zeros": (lambda x: tb.cumulative_prod(x, axis=1), [ZEROS]),
    "cumulative_prod with the initial": (lambda x: tb.cumulative_prod(x, include_initial=True), [LINE]),
    "cumulative_sum with the initial": (lambda x: tb.cumulative_sum(x, include_initial=True), [LINE]),
    "cumulative_max": (lambda x: tb.cummax(x, 1).values, [X]),
    "cumulative_min": (lambda x: tb.cummin(x, 0).values, [X]),
    "logcumsumexp": (lambda x: tb.logcumsumexp(x, axis=0), [X]),
    "take_along_axis of rows": (lambda x: tb.take_along_axis(x, PLACES, axis=0), [X]),
    "take_along_axis broadcast": (lambda x: tb.take_along_axis(x, on_cpu([[0, -1, 0]]), axis=1), [X]),
    "scatter_along_axis set": (_put("set"), [X, VALUES]),
    **{f"scatter_along_axis {mode}": (_put(mode), [X, VALUES]) for mode in ("add", "multiply", "min", "max")},
    "scatter multiply of zeros": (
        lambda x, v: tb.scatter(x, v, on_cpu([0, 0, 1, 1, 1, 2]), mode="multiply"),
        [numbers(3, 2), FACTORS],
    ),
    **{f"scatter {mode}": (_scatter(mode), [X, OTHER]) for mode in ("multiply", "min", "max")},
    **{
        f"scatter_reduce {how} {own}": (_reduced(how, own), [X, VALUES])
        for how in ("sum", "mean", "prod", "amax", "amin")
        for own in (True, False)
    },
    "scatter_add corner": (lambda x, v: tb.scatter_add(x, 0, on_cpu([[0, 1], [0, 2]]), v), [X, VALUES]),
    "topk": (lambda x: tb.topk(x, 2, axis=0).values, [X]),
    "kthvalue": (lambda x: tb.kthvalue(x, 2).values, [X]),
    "median": (tb.median, [X]), "median of rows": (lambda x: tb.median(x, 1, True), [X]),
    "quantile": (lambda x: tb.quantile(x, 0.4, 1), [X]),
    "quantile midpoint": (lambda x: tb.quantile(x, 0.4, 0, interpolation="midpoint"), [X]),
    "index_select": (lambda x: tb.index_select(x, 1, on_cpu([2, 2, -4])), [X]),
    "index_add": (lambda x, v: tb.index_add(x, 1, on_cpu([2, 2]), v, alpha=3), [X, numbers(3, 2)]),
    "index_copy": (lambda x, v: tb.index_copy(x, 1, on_cpu([2, 0]), v), [X, numbers(3, 2)]),
    "masked_fill": (lambda x: tb.masked_fill(x, MASK, 0.5), [X]),
    "masked_select": (lambda x: tb.masked_select(x, MASK), [X]),
    **{
        f"segment_{how}": (lambda x, how=how: getattr(tb, f"segment_{how}")(x, IDS, 3), [ROWS[0]])
        for how in ("sum", "mean", "prod")
    },
    "segment_max": (lambda x: tb.segment_max(x, IDS), [X]),
    "segment_min": (lambda x: tb.segment_min(x, IDS), [X]),
    "einsum": (lambda x, y: tb.einsum("bij,kj->bki", x, y), [ROWS, numbers(2, 4, seed=5)]),
    "einsum of three": (
        lambda x, y, z: tb.einsum("ij,jk,k->i", x, y, z), [X, numbers(4, 2), numbers(2, seed=6)],
    ),
    "einsum of a diagonal": (lambda x: tb.einsum("...ii->...i", x), [numbers(2, 3, 3)]),
    "diagonal of other axes": (lambda x: tb.diagonal(x, 1, 0, 2), [ROWS]), "trace": (tb.trace, [X]),
    "diag_embed": (lambda x: tb.diag_embed(x, -1), [X]), "kron": (tb.kron, [X[:, :2], VALUES[:, :2]]),
    "cov": (tb.cov, [X]), "diff": (lambda x: tb.diff(x, n=2), [X]),
    "repeat": (lambda x: tb.repeat(x, on_cpu([2, 0, 1]), axis=0), [X]),
    "roll": (lambda x: tb.roll(x, (1, -1), axis=(0, 1)), [X]), "rot90": (tb.rot90, [X]),
    "tile": (lambda x: tb.tile(x, (2, 1, 2)), [X]), "unfold": (lambda x: tb.unfold(x, 0, 2, 1), [X]),
    "split": (lambda x: tb.split(x, 3, 1)[1], [X]), "unstack": (lambda x: tb.unstack(x, axis=1)[2], [X]),
    "setitem of a mask": (lambda x, v: _masked(x, v), [X, LINE[:1].reshape(())]),
}  # fmt: skip


def _masked(x: Tensor, v: Tensor) -> Tensor:
    y = x * 1
    y[x > 0] = v
    return y
