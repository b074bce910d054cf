"""Arrays for sample calls: the same at every run, drawn from the op's name and the place of the sample."""

from __future__ import annotations

from math import prod
from typing import Any
from zlib import crc32

import numpy as np
from tensorbus.dtypes import definition as dt
from tensorbus.dtypes.definition import DType, Scalar
from tensorbus.testing.sample import Fill

from .native import Array, native


def make(fill: Fill, dtype: DType, seed: str) -> Array:
    """Return the array that ``fill`` describes, of its own dtype or else of ``dtype``."""
    kind = fill.dtype or dtype
    rng = np.random.default_rng(crc32(seed.encode()))
    with np.errstate(all="ignore"):
        if fill.values:
            return _repeated(fill, kind)
        if fill.matrix:
            matrix = _matrix(fill, rng)
            return (matrix if kind.is_complex else matrix.real).astype(native(kind))
        if kind is dt.bool_:
            return np.asarray(rng.integers(0, 2, fill.shape)).astype(bool)
        if kind.is_integer:
            return _integers(fill, kind, rng)
        real = _floats(fill, rng)
        return np.asarray(real + 1j * _floats(fill, rng) if kind.is_complex else real).astype(native(kind))


def _repeated(fill: Fill, dtype: DType) -> Array:
    values = [v for v in fill.values if _has(dtype, v)] or [0, 1]
    plain: Any = (
        [float(v.real) for v in values] if dtype.is_floating else values
    )  # ml_dtypes takes no Python integers
    return np.resize(np.array(plain, None if dtype.is_floating else native(dtype)), fill.shape).astype(
        native(dtype)
    )


def _has(dtype: DType, value: Scalar) -> bool:
    """Return whether ``dtype`` holds exactly ``value``; complex dtypes get numbers of modest size only."""
    if dtype is dt.bool_:
        return isinstance(value, bool) or (isinstance(value, int) and value in (0, 1))
    if dtype.is_integer:
        low, high = dt.integer_range(dtype)
        return isinstance(value, int) and low <= value <= high
    if isinstance(value, complex):
        return dtype.is_complex
    held = np.array(value).astype(native(dtype)).astype(np.complex128 if dtype.is_complex else np.float64)
    if dtype.is_complex:
        return bool(held == value and abs(held) < 1e5)
    return bool(held == value or (value != value and np.isnan(held)))


def _integers(fill: Fill, dtype: DType, rng: np.random.Generator) -> Array:
    least, most = dt.integer_range(dtype)
    low = (-20 if dtype.kind == "int" else 0) if fill.low is None else max(int(np.ceil(fill.low)), least)
    high = 20 if fill.high is None else min(int(np.floor(fill.high)), most)
    size = prod(fill.shape)
    if fill.distinct and size > high - low + 1:
        low = max(least, -(size // 2)) if dtype.kind == "int" else 0
        high = min(most, low + size)
    if fill.distinct and size <= high - low + 1:
        return (rng.permutation(high - low + 1)[:size] + low).reshape(fill.shape).astype(native(dtype))
    return np.asarray(rng.integers(low, max(low, high), fill.shape, endpoint=True)).astype(native(dtype))


def _floats(fill: Fill, rng: np.random.Generator) -> Array:
    low = (-4.0 if fill.high is None or fill.high > -4 else fill.high - 1) if fill.low is None else fill.low
    high = max(4.0, low + 1) if fill.high is None else fill.high
    if fill.distinct:
        size = prod(fill.shape)
        return rng.permutation(np.linspace(low, high, size) if size > 1 else np.full(size, high)).reshape(
            fill.shape
        )
    return np.asarray(rng.uniform(low, high, fill.shape))


def _matrix(fill: Fill, rng: np.random.Generator) -> Array:
    """Return complex matrices of the kind asked for, whose real parts are of that kind as well."""
    shape = fill.shape
    rows, columns = shape[-2:]
    drawn: Any = rng.uniform(-1, 1, shape) + 1j * rng.uniform(-1, 1, shape)
    if fill.matrix == "symmetric":
        return np.asarray((drawn + np.conj(np.swapaxes(drawn, -1, -2))) / 2)
    if fill.matrix == "definite":
        return np.asarray(drawn @ np.conj(np.swapaxes(drawn, -1, -2)) + 2 * np.eye(rows))
    strong = drawn + 3 * np.eye(rows, columns)
    if fill.matrix == "lower":
        return np.asarray(np.tril(strong))
    if fill.matrix == "upper":
        return np.asarray(np.triu(strong))
    return np.asarray(strong)
