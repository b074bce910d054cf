"""The results of a kernel, and what it must leave alone."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod

import ml_dtypes
import numpy as np
from tensorbus import Tensor, asarray, plugins
from tensorbus.dtypes.definition import DType
from tensorbus.ops.definition import table

from ..agreement import same_bits
from ..native import Array
from ..trial import Trial, array, raw
from .expected import Expected, expected

EQUAL_ELEMENTS_FACTOR = 16.0
"""How many times its tolerance a sum of equal elements may be off: they are all rounded the same way."""
LARGE_SIZE = (1 << 17) + 3
"""How many elements are many."""
REPEATS = 2
"""How often a call is repeated: once would leave out what goes wrong at every third time."""
LEAK_CALLS = 200
"""How often one call of each op is repeated, for what goes wrong now and then."""
LEAK_ROUNDS = 4
"""In how many rounds these calls are made: what grows in each but the first is a leak."""
LEAK_MIN_CALLS = 20
"""How many calls of a round are made however long they take, within reason; of the last ones, all."""
LEAK_FACTORS = (1, 4, 16)
"""By how much the calls of each measurement are more: one is not enough to accuse."""
LEAK_BYTES_PER_CALL = {"host": 12, "device": 0}
"""More than so many bytes of each call are a leak: one of NumPy's arrays, over 100, at every seventh call."""
LEAK_BYTES_PER_ROUND = 8192
"""What may come and go in a round however many calls it has: the last measurement allows for it."""


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
    yield from _unchanged(tensors, before)
    yield from _repeated(trial, tensors, got)
    other = trial.other()
    other.run(other.tensors())
    if not all(same_bits(a, array(x)) for a, x in zip(got, outs, strict=True)):
        yield "another call changed the result of this one"


def _unchanged(tensors: Sequence[Tensor], before: Sequence[bytes]) -> Iterator[str]:
    for place, (t, data) in enumerate(zip(tensors, before, strict=True)):
        if raw(t) != data:
            yield f"the kernel changed its operand {place}"


def _repeated(trial: Trial, tensors: Sequence[Tensor], got: Sequence[Array]) -> Iterator[str]:
    for _ in range(REPEATS):
        again = [array(x) for x in trial.run(tensors)]
        if not all(same_bits(a, b) for a, b in zip(got, again, strict=True)):
            yield "the same call gave other bits when it was made again"
            return


def steady(trial: Trial) -> Iterator[str]:
    """Many calls of one kind give the same bits each time, and keep no memory.

    What seems to keep some is measured again, with more calls each time: caches fill up and lists double,
    but only a leak goes on as before.
    """
    tensors = trial.tensors()
    first = [array(x) for x in trial.run(tensors)]
    suspects = {"host", "device"}
    done = 0
    for factor in LEAK_FACTORS:
        rounds: list[tuple[int, dict[str, int]]] = []
        gc.freeze()  # what was there before need not be looked through at each round
        tracemalloc.start()
        try:
            for _ in range(LEAK_ROUNDS):
                calls, count = 0, factor * LEAK_CALLS // LEAK_ROUNDS
                least = count if factor == LEAK_FACTORS[-1] else factor * LEAK_MIN_CALLS
                for _ in _within_reason(count, least):
                    calls += 1
                    again = [array(x) for x in trial.run(tensors)]
                    if not all(same_bits(a, b) for a, b in zip(first, again, strict=True)):
                        yield f"the same call gave other bits at the {done + calls}th repetition"
                        return
                del again
                done += calls
                rounds.append((calls, _in_use(trial.device)))
        finally:
            tracemalloc.stop()
            gc.unfreeze()
        growth = {where: _growth(rounds, where) for where in suspects}
        suspects = {where for where, grown in growth.items() if grown > LEAK_BYTES_PER_CALL[where]}
        fewest = min(calls for calls, _ in rounds)
        if factor == LEAK_FACTORS[-1] and growth.get("host", 0) <= LEAK_BYTES_PER_ROUND / fewest:
            suspects.discard("host")
        if not suspects:
            return
    for where in sorted(suspects):
        yield f"each call keeps memory of the {where}: {growth[where]:.0f} bytes, over {done} calls"


def _growth(rounds: Sequence[tuple[int, dict[str, int]]], where: str) -> float:
    """Return by how many bytes each call made the memory in use grow, at least, in every round.

    What the first round leaves behind is kept for later calls.
    """
    return min((now[where] - before[where]) / calls for (_, before), (calls, now) in pairwise(rounds))


def _within_reason(count: int, least: int) -> Iterator[int]:
    """Count up, for a twentieth of a second or to ``least``, but for two seconds at most."""
    start = time.perf_counter()
    for k in range(count):
        yield k
        spent = time.perf_counter() - start
        if spent > (0.05 if k + 1 >= least else 2.0):
            return


def _in_use(device: str) -> dict[str, int]:
    """Return the bytes that Python and NumPy hold here, and what the device says that it holds."""
    runtime = plugins.backend(device).runtime
    runtime.synchronize(0)
    gc.collect()
    stats = runtime.memory_stats(0)
    held = 0 if stats.scope == "process" else stats.allocated
    return {"host": tracemalloc.get_traced_memory()[0], "device": held}


def aliased(trial: Trial) -> Iterator[str]:
    """One tensor in the place of all operands of the same kind gives what equal tensors give."""
    first = [trial.fills.index(f) for f in trial.fills]
    if first == list(range(len(first))):
        return
    one = trial.over([trial.arrays[k] for k in first])
    by_place = {k: asarray(trial.arrays[k], device=trial.device) for k in set(first)}
    tensors = [by_place[k] for k in first]
    before = [raw(t) for t in tensors]
    outs = one.run(tensors)
    problem = expected(one).problem([array(x) for x in outs])
    if problem is not None:
        yield f"with one tensor for operands of the same kind: {problem}"
    for problem in _unchanged(tensors, before):
        yield f"with one tensor for operands of the same kind: {problem}"


def _native_dtype(out: Tensor, dtype: DType) -> object:
    """Return what a value of a dtype has as ``dtype`` on the device of ``out``: ``from_host`` says so."""
    runtime, index = plugins.backend(out.device.type).runtime, out.device.index
    value = runtime.from_host(memoryview(raw(out)), out.shape, dtype, index)
    return getattr(value, "dtype", None)


def _raw_values(outs: tuple[Tensor, ...], wanted: Expected) -> Iterator[str]:
    """Compare what the device holds with what the cell says of it."""
    for place, (out, dtype) in enumerate(zip(outs, wanted.dtypes, strict=True)):
        held, due = len(raw(out)), prod(out.shape) * dtype.itemsize
        if out.dtype is not dtype:
            yield f"result {place} is said to be {out.dtype}; the op's rule says {dtype}"
        elif held != due:
            yield f"result {place} holds {held} bytes; {dtype} of shape {out.shape} has {due}"
        inner, native = getattr(out._value, "dtype", None), _native_dtype(out, dtype)
        if inner is not None and native is not None and inner != native:
            yield f"result {place} holds {inner}; the op's rule says {dtype}, which is {native} there"


def bounds(trial: Trial) -> Iterator[str]:
    """Operands in the middle of larger memory give the same: nothing beyond their ends is read."""
    if not trial.arrays or all(not a.size for a in trial.arrays):
        return
    wanted = expected(trial)
    for name, placed in (
        ("in the middle of a buffer", _in_buffer),
        ("in the middle of another buffer", _between_least),
        ("in a box of a larger tensor", in_box),
        ("backwards", _backwards),
    ):
        tensors = [placed(a, trial.device) for a in trial.arrays]
        problem = wanted.problem([array(x) for x in trial.run(tensors)])
        if problem is not None:
            yield f"with operands {name}, between elements that must not be read: {problem}"
    if any(a.ndim > 1 for a in trial.arrays):
        tensors = [
            asarray(a, device=trial.device) if k % 2 else _fortran_order(a, trial.device)
            for k, a in enumerate(trial.arrays)
        ]
        problem = wanted.problem([array(x) for x in trial.run(tensors)])
        if problem is not None:
            yield f"with every second operand in Fortran's order: {problem}"


def many(trial: Trial) -> Trial | None:
    """Return the call of an elementwise op over many elements: those of few, repeated."""
    if trial.op.family != "elementwise" or trial.sample.note or len({a.shape for a in trial.arrays}) != 1:
        return None
    return trial.over([np.resize(a.reshape(-1), LARGE_SIZE) for a in trial.arrays])


def stretched(trial: Trial) -> Iterator[str]:
    """Operands whose first axis has a stride of 0, as after ``broadcast_to``, give what copies give."""
    if any(f.matrix for f in trial.fills) or not any(a.ndim and a.shape[0] > 1 for a in trial.arrays):
        return
    if trial.op.name.startswith("scatter"):  # places that are the same leave open which value is stored
        return
    rows = [a[:1] if a.ndim else a for a in trial.arrays]
    same = trial.over(
        [np.array(np.broadcast_to(r, a.shape), order="C") for r, a in zip(rows, trial.arrays, strict=True)]
    )
    tensors = [
        table["broadcast_to"](asarray(r, device=trial.device), a.shape)
        for r, a in zip(rows, trial.arrays, strict=True)
    ]
    problem = expected(same).problem([array(x) for x in same.run(tensors)], EQUAL_ELEMENTS_FACTOR)
    if problem is not None:
        yield f"with operands that repeat one row by a stride of 0: {problem}"


def large(trial: Trial) -> Iterator[str]:
    """Many elements give what few give: devices have other kernels for large tensors."""
    whole = many(trial)
    if whole is None:
        return
    wanted = expected(trial)
    few = trial.arrays[0].size
    rows = -(-LARGE_SIZE // few)
    flat = [a.reshape(-1) for a in trial.arrays]
    tall = [np.tile(a, (rows, 1)) for a in flat]
    for name, arrays in (
        (f"{LARGE_SIZE} elements", whole.arrays),
        ("a row beside many", [tall[0], *flat[1:]]),
        ("many beside a row", [*flat[:-1], tall[-1]]),
    )[: 1 if len(flat) == 1 else 3]:
        shape = arrays[0].shape if arrays[0].size > few else arrays[-1].shape
        results = tuple(np.resize(np.reshape(r, -1), shape) for r in wanted.results)
        scale = np.resize(np.reshape(wanted.scale, -1), shape) if np.ndim(wanted.scale) else wanted.scale
        tensors = [asarray(a, device=trial.device) for a in arrays]
        got = [array(x) for x in trial.run(tensors)]
        problem = replace(wanted, results=results, scale=scale).problem(got)
        if problem is not None:
            yield f"{name}: {problem}"
        for problem in _repeated(trial, tensors, got):
            yield f"{name}: {problem}"


def poison(a: Array) -> object:
    """Return an element that shows where it gets in: NaN, or the largest number."""
    if a.dtype.kind == "b":
        return True
    if a.dtype.kind in "iu":
        return np.iinfo(a.dtype).max
    return np.nan


def _least(a: Array) -> object:
    """Return one that shows where the other does not: in a minimum, in ``all``, in the order of a sort."""
    if a.dtype.kind == "b":
        return False
    if a.dtype.kind in "iu":
        return np.iinfo(a.dtype).min
    return ml_dtypes.finfo(a.dtype).min if a.dtype.kind != "c" else complex(np.finfo(a.dtype).min, 0)


def _between_least(a: Array, device: str) -> Tensor:
    return _in_buffer(a, device, _least(a))


def _fortran_order(a: Array, device: str) -> Tensor:
    """The first axis changes quickest."""
    return table["permute_dims"](asarray(np.array(a.T, order="C"), device=device), tuple(range(a.ndim))[::-1])


def _in_buffer(a: Array, device: str, around: object = None) -> Tensor:
    """The elements lie packed, with others before and behind them."""
    edge, size = 67, a.size
    flat = np.full(size + 2 * edge, poison(a) if around is None else around, a.dtype)
    flat[edge : edge + size] = a.reshape(-1)
    middle = table["slice"](asarray(flat, device=device), (edge,), (size,), (1,))
    return table["reshape"](middle, a.shape)


def in_box(a: Array, device: str) -> Tensor:
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
