"""Functions written in ops, whose derivatives and second derivatives are compared with differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorbus as tb

Array = np.ndarray[Any, Any]


def _array(*shape: int, seed: int = 0, low: float = -2.0, high: float = 2.0) -> Array:
    """Return numbers far apart from each other, so that no tie lies within a step."""
    size = int(np.prod(shape))
    line = low + (high - low) * (np.arange(size) + 0.37) / max(size, 1)
    return np.random.default_rng(seed).permutation(line).reshape(shape)


X, Y, ROW, CUBE = _array(2, 3), _array(2, 3, seed=1, low=-1.7), _array(3, seed=2), _array(2, 2, 3, seed=3)
SQUARE = _array(3, 3, seed=4) + 3 * np.eye(3)
THERE = tb.asarray([[True, False, True], [True, True, False]], device="cpu")
MASK = tb.asarray([[True, False, True], [False, True, True]], device="cpu")
AT = tb.asarray([2, 0], device="cpu")

FUNCTIONS: dict[str, tuple[Callable[..., Any], list[Array]]] = {
    "select": (lambda x: tb.select(x, 1, -1), [CUBE]), "narrow": (lambda x: tb.narrow(x, 2, 1, 2), [CUBE]),
    "select_scatter": (lambda x, v: tb.select_scatter(x, v * v, 0, 1), [X, ROW]),
    "slice_scatter": (lambda x, v: tb.slice_scatter(x, v * v, 1, 0, None, 2), [X, Y[:, :2]]),
    "diagonal_scatter": (lambda x, v: tb.diagonal_scatter(x, v * v, -1), [SQUARE, ROW[:2]]),
    "diag_embed": (lambda x: tb.diag_embed(x * x, 1, 0, 2), [X]), "diagflat": (tb.diagflat, [X]),
    "nansum": (lambda x: tb.nansum(tb.where(THERE, x * x, tb.nan), 1), [X]),
    "nanmean": (lambda x: tb.nanmean(tb.where(THERE, x * x, tb.nan), 0), [X]),
    "nanmedian": (lambda x: tb.nanmedian(tb.where(THERE, x * x, tb.nan)), [X]),
    "nanquantile": (lambda x: tb.nanquantile(tb.where(THERE, x * x, tb.nan), 0.3, 1), [X]),
    "aminmax": (lambda x: tb.stack(tb.aminmax(x * x, axis=1)), [X]),
    "std_mean": (lambda x: tb.stack(tb.std_mean(x, 1)), [X]),
    "index_fill": (lambda x, v: tb.index_fill(x * x, 1, AT, v * v), [X, np.array(0.7)]),
    "masked_scatter": (lambda x, v: tb.masked_scatter(x * x, MASK, v * v), [X, _array(5, seed=5)]),
    "trapezoid": (lambda y, x: tb.trapezoid(y, x), [X, ROW]),
    "cumulative_trapezoid": (lambda y, x: tb.cumulative_trapezoid(y, x), [X, ROW]),
    "block_diag": (lambda x, y: tb.block_diag(x * x, y), [X, ROW]),
    "cartesian_prod": (lambda x, y: tb.cartesian_prod(x * x, y), [ROW, _array(2, seed=6)]),
    "combinations": (lambda x: tb.combinations(x * x), [ROW]),
    "cdist": (tb.cdist, [X, _array(2, 3, seed=7)]), "cdist of 3": (lambda x, y: tb.cdist(x, y, 3.0), [X, Y]),
    "dist": (tb.dist, [X, ROW]), "logdet": (lambda x: tb.logdet(x @ x.mT), [SQUARE]),
    "addmm": (lambda x, y, z: tb.addmm(x, y, z, beta=0.5, alpha=2), [ROW, SQUARE[:2], SQUARE]),
    "addbmm": (tb.addbmm, [ROW, CUBE, _array(2, 3, 3, seed=8)]),
    "addr": (tb.addr, [X, ROW[:2], ROW]), "inner": (tb.inner, [CUBE, X]),
    "renorm": (lambda x: tb.renorm(x, 3, 0, 1.0), [X]),
    "vander": (lambda x: tb.vander(x, 4), [ROW]), "unique": (lambda x: tb.unique(x * x, axis=1), [X]),
    "float_power": (lambda x, y: tb.float_power(x * x, y), [X, Y]),
}  # fmt: skip
