"""What a kernel gives, and what it must leave alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

import numpy as np
from tensorbus import Tensor, asarray
from tensorbus.ops.op import table

from ..agreement import same_bits
from ..native import Array
from ..trial import Trial, array, raw
from .expected import Expected, expected

MANY = (1 << 17) + 3
"""How many elements are many."""


def value(trial: Trial) -> Iterator[str]:
    """The result is the reference's, its raw value has the dtype of the op's rule, operands stay."""
    wanted = expected(trial)
    tensors = trial.tensors()
    before = [raw(t) for t in tensors]
    outs = trial.run(tensors)
    yield from _raw_values(outs, wanted)
    got = [array(x) for x in outs]
    problem = wanted.problem(got)
    if problem is not None:
        yield problem
    for place, (t, data) in enumerate(zip(tensors, before, strict=True)):
        if raw(t) != data:
            yield f"the kernel changed its operand {place}"
    again = [array(x) for x in trial.run(tensors)]
    if not all(same_bits(a, b) for a, b in zip(got, again, strict=True)):
        yield "the same call gave other bits the second time"


def _raw_values(outs: tuple[Tensor, ...], wanted: Expected) -> Iterator[str]:
    """Compare what the device holds with what the cell says of it."""
    for place, (out, dtype) in enumerate(zip(outs, wanted.dtypes, strict=True)):
        held, due = len(raw(out)), prod(out.shape) * dtype.itemsize
        if out.dtype is not dtype:
            yield f"result {place} is said to be {out.dtype}; the op's rule says {dtype}"
        elif held != due:
            yield f"result {place} holds {held} bytes; {dtype} of shape {out.shape} has {due}"
        inner = getattr(out._value, "dtype", None)
        if inner is not None and str(getattr(inner, "name", inner)) not in (dtype.name, "bool"):
            yield f"result {place} holds {inner}; the op's rule says {dtype}"


def bounds(trial: Trial) -> Iterator[str]:
    """Operands in the middle of larger memory give the same: nothing beyond their ends is read."""
    if not trial.arrays or all(not a.size for a in trial.arrays):
        return
    wanted = expected(trial)
    for name, placed in (
        ("in the middle of a buffer", _in_buffer),
        ("in a box of a larger tensor", _in_box),
        ("backwards", _backwards),
    ):
        tensors = [placed(a, trial.device) for a in trial.arrays]
        problem = wanted.problem([array(x) for x in trial.run(tensors)])
        if problem is not None:
            yield f"with operands {name}, between elements that must not be read: {problem}"


def large(trial: Trial) -> Iterator[str]:
    """Many elements give what few give: devices have other kernels for large tensors."""
    if trial.op.family != "elementwise" or trial.sample.note or len({a.shape for a in trial.arrays}) != 1:
        return
    wanted = expected(trial)
    few = tuple(np.resize(np.reshape(r, -1), MANY) for r in wanted.results)
    scale = np.resize(np.reshape(wanted.scale, -1), MANY) if np.ndim(wanted.scale) else wanted.scale
    tensors = [asarray(np.resize(a.reshape(-1), MANY), device=trial.device) for a in trial.arrays]
    problem = replace(wanted, results=few, scale=scale).problem([array(x) for x in trial.run(tensors)])
    if problem is not None:
        yield f"{MANY} elements: {problem}"


def poison(a: Array) -> object:
    """Return an element that shows where it gets in: NaN, or the largest number."""
    if a.dtype.kind == "b":
        return True
    if a.dtype.kind in "iu":
        return np.iinfo(a.dtype).max
    return np.nan


def _in_buffer(a: Array, device: str) -> Tensor:
    """The elements lie packed, with others before and behind them."""
    edge, size = 67, a.size
    flat = np.full(size + 2 * edge, poison(a), a.dtype)
    flat[edge : edge + size] = a.reshape(-1)
    middle = table["slice"](asarray(flat, device=device), (edge,), (size,), (1,))
    return table["reshape"](middle, a.shape)


def _in_box(a: Array, device: str) -> Tensor:
    """Elements lie apart, with others between, before and behind them along every axis."""
    if not a.ndim:
        return _in_buffer(a, device)
    steps = (*(1,) * (a.ndim - 1), 2)
    shape = tuple(s * n + 3 for n, s in zip(a.shape, steps, strict=True))
    big = np.full(shape, poison(a), a.dtype)
    big[tuple(slice(1, 1 + s * n, s) for n, s in zip(a.shape, steps, strict=True))] = a
    return table["slice"](asarray(big, device=device), (1,) * a.ndim, a.shape, steps)


def _backwards(a: Array, device: str) -> Tensor:
    """The first axis changes quickest, and every axis runs from its end."""
    order = tuple(range(a.ndim))[::-1]
    moved = np.full((*a.T.shape, 3), poison(a), a.dtype)
    moved[..., 1] = np.flip(a.T)
    middle = table["slice"](
        asarray(moved, device=device), (*(0,) * a.ndim, 1), (*a.T.shape, 1), (1,) * (a.ndim + 1)
    )
    return table["permute_dims"](table["flip"](table["reshape"](middle, a.T.shape)), order)
