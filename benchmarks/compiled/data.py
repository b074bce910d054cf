"""The arrays that every peer is given."""

from __future__ import annotations

from typing import Any

import numpy as np

CHAIN = 1 << 24
A, B = 1.25, 0.5


def floats(*shape: int, seed: int = 0) -> Any:
    """Return normal numbers in float32."""
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def classes(size: int, count: int) -> Any:
    """Return labels in int64."""
    return np.random.default_rng(1).integers(0, count, size)


def tokens(batch: int, length: int, vocabulary: int) -> Any:
    """Return texts, as numbers of words."""
    return np.random.default_rng(2).integers(0, vocabulary, (batch, length))


def square(dtype: str) -> tuple[Any, Any]:
    """Return the operands of the product of two matrices, 2048 x 2048; bfloat16 is made of float32."""
    if dtype == "int8":
        rng = np.random.default_rng(3)
        return tuple(rng.integers(-128, 128, (2048, 2048), np.int8) for _ in range(2))  # type: ignore[return-value]
    return floats(2048, 2048), floats(2048, 2048, seed=1)
