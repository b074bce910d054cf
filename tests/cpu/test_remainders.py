"""Remainders of large arrays are exact, whatever the operands: as those of few numbers, which NumPy finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb

SIZE = 1 << 16
RNG = np.random.default_rng(6)
EDGES = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-45, 5e-324, 3.0, -3.0, 1e38, -1e-38, 2.0**23)


def _any_bits(dtype: Any) -> Any:
    words = np.uint32 if dtype is np.float32 else np.uint64
    return RNG.integers(0, np.iinfo(words).max, SIZE, dtype=words, endpoint=True).view(dtype)


def _beside_multiples(dtype: Any) -> tuple[Any, Any]:
    y = RNG.standard_normal(SIZE).astype(dtype)
    x = (y * RNG.integers(-(2**24), 2**24, SIZE)).astype(dtype)
    return np.nextafter(x, RNG.choice(np.array([-np.inf, np.inf, 0], dtype), SIZE)), y


PAIRS: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "drawn": lambda d: (RNG.standard_normal(SIZE).astype(d), RNG.standard_normal(SIZE).astype(d)),
    "whole": lambda d: (RNG.integers(-20, 20, SIZE).astype(d), RNG.integers(-20, 20, SIZE).astype(d)),
    "any bits": lambda d: (_any_bits(d), _any_bits(d)),
    "beside multiples": _beside_multiples,
    "edges": lambda d: (RNG.choice(np.array(EDGES, d), SIZE), RNG.choice(np.array(EDGES, d), SIZE)),
}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["fmod", "remainder", "floor_divide"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_large_remainders_are_those_of_small_ones(name: str, dtype: Any, pair: Any) -> None:
    x, y = pair(dtype)
    op = getattr(tb, name)
    large = op(tb.asarray(x), tb.asarray(y)).numpy()
    small = [
        op(tb.asarray(x[k : k + 4096]), tb.asarray(y[k : k + 4096])).numpy() for k in range(0, SIZE, 4096)
    ]
    wanted = np.concatenate(small)
    np.testing.assert_array_equal(large, wanted)
    known = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(large)[known], np.signbit(wanted)[known])
