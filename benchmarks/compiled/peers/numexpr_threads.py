"""numexpr: chains only. It has no error function, so its ``gelu`` is the form with ``tanh``."""

from __future__ import annotations

from collections.abc import Callable

import numexpr
import numpy as np

from benchmarks.compiled import data
from benchmarks.compiled.threads import THREADS


class Peer:
    """numexpr knows no variants."""

    def __init__(self, variant: str) -> None:
        numexpr.set_num_threads(THREADS)

    def chain(self) -> Callable[[], object]:
        names = dict(zip("xc", (data.floats(data.CHAIN, seed=k) for k in range(2)), strict=True))
        names |= {"p": np.float32((2 / np.pi) ** 0.5), "q": np.float32(0.044715), "h": np.float32(0.5)}
        names |= {"a": np.float32(data.A), "b": np.float32(data.B)}
        z = "(x * a + b)"
        text = f"h * {z} * (h + h + tanh(p * ({z} + q * {z} * {z} * {z}))) * tanh(c) - x"
        return lambda: numexpr.evaluate(text, names)
