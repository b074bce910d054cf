"""numba: loops over arrays, compiled and threaded."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np

from benchmarks.compiled import data
from benchmarks.compiled.threads import THREADS

Call = Callable[[], object]
F = TypeVar("F", bound=Callable[..., Any])


def _threaded(function: F) -> F:
    result: F = numba.njit(parallel=True, fastmath=True)(function)
    return result


def _plain(function: F) -> F:
    jitted: F = numba.njit(function)
    return jitted


@_threaded
def _chain(x: Any, c: Any, a: Any, b: Any) -> Any:
    out = np.empty_like(x)
    half, root = np.float32(0.5), np.float32(0.5**0.5)
    for k in numba.prange(x.size):
        z = x[k] * a + b
        out[k] = half * z * (np.float32(1) + math.erf(z * root)) * math.tanh(c[k]) - x[k]
    return out


@_threaded
def _softmax(x: Any) -> Any:
    out = np.empty_like(x)
    for row in numba.prange(x.shape[0]):
        most = x[row].max()
        total = np.float32(0)
        for k in range(x.shape[1]):
            out[row, k] = math.exp(x[row, k] - most)
            total += out[row, k]
        for k in range(x.shape[1]):
            out[row, k] /= total
    return out


@_threaded
def _layer_norm(x: Any, w: Any, b: Any) -> Any:
    out = np.empty_like(x)
    for row in numba.prange(x.shape[0]):
        total, squares = np.float32(0), np.float32(0)
        for k in range(x.shape[1]):
            total += x[row, k]
        mean = total / np.float32(x.shape[1])
        for k in range(x.shape[1]):
            squares += (x[row, k] - mean) * (x[row, k] - mean)
        scale = np.float32(1) / math.sqrt(squares / np.float32(x.shape[1]) + np.float32(1e-5))
        for k in range(x.shape[1]):
            out[row, k] = (x[row, k] - mean) * scale * w[k] + b[k]
    return out


@_threaded
def _cumsum(x: Any) -> Any:
    out = np.empty_like(x)
    for row in numba.prange(x.shape[0]):
        total = np.float32(0)
        for k in range(x.shape[1]):
            total += x[row, k]
            out[row, k] = total
    return out


@_plain
def _add(x: Any, y: Any) -> Any:
    return x + y


class Peer:
    """numba knows no variants."""

    def __init__(self, variant: str) -> None:
        numba.set_num_threads(THREADS)

    def chain(self) -> Call:
        x, c = (data.floats(data.CHAIN, seed=k) for k in range(2))
        return lambda: _chain(x, c, np.float32(data.A), np.float32(data.B))

    def softmax(self) -> Call:
        x = data.floats(8192, 4096)
        return lambda: _softmax(x)

    def layer_norm(self) -> Call:
        x, w, b = data.floats(8192, 1024), np.ones(1024, np.float32), np.zeros(1024, np.float32)
        return lambda: _layer_norm(x, w, b)

    def cumsum(self) -> Call:
        x = data.floats(8192, 4096)
        return lambda: _cumsum(x)

    def add(self) -> Call:
        x, y = (data.floats(8, seed=k) for k in range(2))
        return lambda: _add(x, y)
