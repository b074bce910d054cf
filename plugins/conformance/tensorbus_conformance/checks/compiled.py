"""A compiled program against the eager calls it was captured from: one function of many sample calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
import tensorbus as tb
from tensorbus import Tensor, asarray, grad
from tensorbus.ops.definition import table

from ..agreement import difference, same_bits
from ..native import Array, wide
from ..trial import Trial, array
from .expected import expected
from .kernel import in_box

RUNS = 5
"""How often a compiled function is run: ``compile`` may only look on at first, and then compile at last."""
GRADIENT_ULPS = 256.0
"""Units in the last place of its largest element that a compiled gradient may be off the eager one: sums may
run in another order, and a fused chain is rounded in other places."""
Call = tuple[Callable[..., Any], list[Any], dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Ran:
    """The results of a compiled function of several calls: of each at each run, and what it did beside."""

    runs: list[list[list[Array]]]
    spread: list[list[Array]]
    changed: list[bool]
    overwritten: list[bool]


def compiled(trials: Sequence[Trial]) -> Iterator[tuple[Trial, str]]:
    """Compile all the calls as one function; yield where its results are not as good as eager ones.

    Where the whole cannot be compiled, each call is compiled by itself, so that the one at fault is named.
    """
    if not trials:
        return
    try:
        ran = _run(trials)
    except Exception as error:
        alone = [outcome for trial in trials for outcome in _alone(trial)]
        yield from alone or [(trials[0], f"{len(trials)} calls in one function raised {_shown(error)}")]
    else:
        yield from _problems(trials, ran)


def _alone(trial: Trial) -> Iterator[tuple[Trial, str]]:
    try:
        ran = _run([trial])
    except Exception as error:
        yield trial, f"compiled, it raised {_shown(error)}"
    else:
        yield from _problems([trial], ran)


def _shown(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _run(trials: Sequence[Trial]) -> Ran:
    """Run the compiled calls several times, then with operands that lie apart, then with other ones."""
    program = tb.compile(_together, compare_eager=False)
    operands = [trial.tensors() for trial in trials]
    calls = [_call(trial, tensors) for trial, tensors in zip(trials, operands, strict=True)]
    outs = [program(calls) for _ in range(RUNS)]
    runs = [_arrays(out) for out in outs]
    apart = [[in_box(a, t.device) for a in t.arrays] for t in trials]
    spread = _arrays(program([_call(t, tensors) for t, tensors in zip(trials, apart, strict=True)]))
    others = [trial.other() for trial in trials]
    _arrays(program([_call(t, t.tensors()) for t in others]))
    last = _arrays(outs[-1])
    return Ran(
        runs=runs,
        spread=spread,
        changed=[
            not all(same_bits(a, array(t)) for a, t in zip(trial.arrays, tensors, strict=True))
            for trial, tensors in zip(trials, operands, strict=True)
        ],
        overwritten=[
            not all(same_bits(a, b) for a, b in zip(x, y, strict=True))
            for x, y in zip(runs[-1], last, strict=True)
        ],
    )


def _arrays(outs: Sequence[Any]) -> list[list[Array]]:
    return [[array(x) for x in _several(out)] for out in outs]


def _call(trial: Trial, tensors: Sequence[Tensor]) -> Call:
    args, kwargs = trial.filled(tensors)
    return table.function(trial.op.name), args, kwargs


def _together(calls: list[Call]) -> list[Any]:
    """Call each: all that the compiled code is told of the kit is this."""
    return [function(*args, **kwargs) for function, args, kwargs in calls]


def _several(out: Any) -> tuple[Tensor, ...]:
    return (out,) if isinstance(out, Tensor) else tuple(out)


def _problems(trials: Sequence[Trial], ran: Ran) -> Iterator[tuple[Trial, str]]:
    for k, trial in enumerate(trials):
        eager = [array(x) for x in trial.run(trial.tensors())]
        ways = [(f"run {n} of the compiled call", run[k]) for n, run in enumerate(ran.runs, 1)]
        ways.append(("the compiled call of operands in a box of larger tensors", ran.spread[k]))
        for name, differences in ways:
            problem = _difference(trial, eager, differences)
            if problem is not None:
                yield trial, f"{name}: {problem}"
                break
        *_, first, second, third = (run[k] for run in ran.runs)
        if not all(same_bits(a, c) and same_bits(b, c) for a, b, c in zip(first, second, third, strict=True)):
            yield trial, "the compiled call gave other bits when it was made again"
        if ran.changed[k]:
            yield trial, "the compiled call changed an operand"
        if ran.overwritten[k]:
            yield trial, "a later run of the compiled call changed the result of an earlier one"


def _difference(trial: Trial, eager: Sequence[Array], got: Sequence[Array]) -> str | None:
    """Return how results differ from eager ones, beyond what the op's tolerance allows either of them."""
    for place, (a, b) in enumerate(zip(eager, got, strict=True)):
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            return f"result {place} is {b.dtype} of shape {b.shape}; eager it is {a.dtype} of shape {a.shape}"
    if all(same_bits(a, b) for a, b in zip(eager, got, strict=True)):
        return None
    return expected(trial).problem(got)


def compiled_gradient(trial: Trial) -> Iterator[str]:
    """A function that calls the op and takes its gradient gives, compiled, the gradients it gives eagerly."""
    places = [k for k, a in enumerate(trial.arrays) if a.dtype.kind in "fc"]
    if not places or not any(trial.arrays[k].size for k in places):
        return
    outs = [array(x) for x in trial.run(trial.tensors())]
    rng = np.random.default_rng(crc32(f"{trial.op.name} {trial.place} compiled".encode()))
    drawn = [_seed(rng, o, trial.device) for o in outs]
    tensors = trial.tensors()
    leaves = [tensors[k].requires_grad_() for k in places]
    call = _call(trial, tensors)
    chosen = [
        k for k, (o, s) in enumerate(zip(_several(_together([call])[0]), drawn, strict=True))
        if s is not None and o.requires_grad
    ]  # fmt: skip
    if not chosen:
        return
    seeds = [drawn[k] for k in chosen]
    wanted = _gradients(call, leaves, chosen, seeds)
    program = tb.compile(_gradients, compare_eager=False)
    for run in range(1, RUNS + 1):
        for place, want, got in zip(places, wanted, program(call, leaves, chosen, seeds), strict=True):
            problem = _apart(want, got)
            if problem is not None:
                yield f"run {run} of the compiled gradient of operand {place}: {problem}"
                return


def _gradients(call: Call, leaves: list[Tensor], chosen: list[int], seeds: list[Any]) -> list[Tensor | None]:
    function, args, kwargs = call
    out = function(*args, **kwargs)
    outs = (out,) if isinstance(out, Tensor) else out
    return list(grad([outs[k] for k in chosen], leaves, seeds, allow_unused=True))


def _seed(rng: np.random.Generator, like: Array, device: str) -> Tensor | None:
    if like.dtype.kind not in "fc":
        return None
    drawn: Any = np.asarray(rng.uniform(-1, 1, like.shape))
    if like.dtype.kind == "c":
        drawn = drawn + 1j * rng.uniform(-1, 1, like.shape)
    return asarray(drawn.astype(like.dtype), device=device)


def _apart(want: Tensor | None, got: Tensor | None) -> str | None:
    if want is None or got is None:
        return None if want is got else f"{got!r}, eager it is {want!r}"
    if want.dtype is not got.dtype:
        return f"it is {got.dtype}; eager it is {want.dtype}"
    eager, compiled = array(want), array(got)
    largest = float(np.max(np.abs(np.nan_to_num(wide(eager), posinf=0, neginf=0)), initial=0.0))
    return difference(compiled, wide(eager), GRADIENT_ULPS, max(largest, 1.0))
