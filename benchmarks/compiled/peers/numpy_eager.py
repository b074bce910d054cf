"""NumPy by hand; SciPy has the error function that it lacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.compiled import data

Call = Callable[[], object]


class Peer:
    """NumPy knows no variants."""

    def __init__(self, variant: str) -> None:
        self.rng = np.random.default_rng(0)

    def chain(self) -> Call:
        from scipy.special import erf

        x, c = (data.floats(data.CHAIN, seed=k) for k in range(2))
        root, half = np.float32(0.5**0.5), np.float32(0.5)

        def run() -> Any:
            z = x * np.float32(data.A) + np.float32(data.B)
            return half * z * (1 + erf(z * root)) * np.tanh(c) - x

        return run

    def softmax(self) -> Call:
        x = data.floats(8192, 4096)

        def run() -> Any:
            powers = np.exp(x - x.max(1, keepdims=True))
            return powers / powers.sum(1, keepdims=True)

        return run

    def layer_norm(self) -> Call:
        x, w, b = data.floats(8192, 1024), np.ones(1024, np.float32), np.zeros(1024, np.float32)

        def run() -> Any:
            centred = x - x.mean(1, keepdims=True)
            return centred / np.sqrt((centred * centred).mean(1, keepdims=True) + 1e-5) * w + b

        return run

    def cumsum(self) -> Call:
        x = data.floats(8192, 4096)
        return lambda: x.cumsum(1)

    def matmul(self, dtype: str) -> Call | None:
        if dtype != "float32":
            return None
        x, y = data.square(dtype)
        return lambda: x @ y

    def add(self) -> Call:
        x, y = (data.floats(8, seed=k) for k in range(2))
        return lambda: x + y

    def small(self, gradient: bool) -> Call:
        (v, b), (w, c) = self._layer(), self._layer()
        x, zero = data.floats(1, 64), np.float32(0)
        if not gradient:
            return lambda: np.maximum(x @ v + b, zero) @ w + c

        def gradients() -> Any:
            h = np.maximum(x @ v + b, zero)
            g = 2 * (h @ w + c)
            of_h = (g @ w.T) * (h > 0)
            return x.T @ of_h, of_h[0], h.T @ g, g[0]

        return gradients

    def _layer(self) -> tuple[Any, Any]:
        return 0.02 * self.rng.standard_normal((64, 64), dtype=np.float32), np.zeros(64, np.float32)
