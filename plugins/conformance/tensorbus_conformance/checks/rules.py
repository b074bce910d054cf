"""The other rules of an op: decomposition, batching, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from tensorbus import Tensor, asarray, func
from tensorbus.errors import UnsupportedDtypeError
from tensorbus.ops.definition import table

from ..agreement import same_bits
from ..native import Array, native
from ..trial import Trial, array
from .expected import expected


def decomposition(trial: Trial) -> Iterator[str]:
    """A composite's decomposition, run on the device, is as good as its kernel has to be."""
    decompose = trial.op.decompose
    if decompose is None or trial.op.family == "creation":
        return
    bound = trial.bind(trial.tensors())
    if bound.plan.run is None:
        return  # the value check has run it
    cast = table["cast"]
    operands = [
        x if not isinstance(x, Tensor) or c is None else cast(x, c)
        for x, c in zip(bound.operands, bound.plan.casts, strict=True)
    ]
    results = decompose(*operands, **bound.attrs)
    outs = tuple(results) if trial.op.results else (results,)
    problem = expected(trial).problem([array(x) for x in outs])
    if problem is not None:
        yield f"the decomposition: {problem}"


def batching(trial: Trial) -> Iterator[str]:
    """``vmap`` over operands gives what a loop over the examples gives."""
    if not trial.arrays or trial.op.family == "creation":
        return
    examples = [trial.arrays, trial.other().arrays]
    for dims in _batched_axes(len(trial.arrays)):
        yield from _one_way(trial, examples, dims)


def _batched_axes(count: int) -> Iterator[tuple[int | None, ...]]:
    """Yield where the operands have their examples: all combinations for two, one or all of many."""
    if count > 2:
        yield (0,) * count
        yield from (tuple(0 if j == k else None for j in range(count)) for k in range(count))
        return
    for dims in product((0, -1, None), repeat=count):
        if any(d is not None for d in dims):
            yield dims


def _one_way(trial: Trial, examples: list[list[Array]], dims: tuple[int | None, ...]) -> Iterator[str]:
    whole = [
        asarray(
            np.stack([e[j] for e in examples], axis=d) if d is not None else examples[0][j],
            device=trial.device,
        )
        for j, d in enumerate(dims)
    ]
    stacked = [[e[j] if d is not None else examples[0][j] for j, d in enumerate(dims)] for e in examples]
    got = [array(x) for x in func.vmap(lambda *xs: trial.run(xs), dims)(*whole)]
    for k, arrays in enumerate(stacked):
        problem = expected(trial.over(arrays)).problem([np.array(g[k], order="C") for g in got])
        if problem is not None:
            yield f"vmap over {dims}: example {k}: {problem}"
            return


def refusal(trial: Trial) -> Iterator[str]:
    """A bad call raises the error that the sample names, and changes nothing."""
    wanted = trial.sample.raises
    assert wanted is not None
    try:
        tensors = trial.tensors()
    except UnsupportedDtypeError:
        return  # the call needs a dtype that the device does not have
    try:
        for x in trial.run(tensors):
            array(x)  # a device that queues its work reports an index beyond when it is waited for
    except wanted as error:
        if not str(error).strip():
            yield f"{type(error).__name__} without a word"
    except UnsupportedDtypeError:
        return  # nor has it the dtype of the result, which is told first
    except Exception as error:
        yield f"raised {type(error).__name__} ({error}); {wanted.__name__} is due"
    else:
        yield f"was not refused; {wanted.__name__} is due"
    for place, (t, a) in enumerate(zip(tensors, trial.arrays, strict=True)):
        if not same_bits(array(t), np.asarray(a).astype(native(t.dtype))):
            yield f"the refused call changed operand {place}"
