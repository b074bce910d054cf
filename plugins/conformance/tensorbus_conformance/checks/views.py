"""The claims of an op's view rule: views show what their base becomes, and the other way round.

Where an element of the result lies in the base is asked of the op, on the host, of numbered elements.
Complex numbers are two elements each, as an op may show one part of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorbus as tb
from tensorbus import Tensor, asarray, grad
from tensorbus.errors import ArgumentError
from tensorbus.ops.definition import table

from ..agreement import same_bits
from ..native import Array
from ..trial import HOST, Trial, array, caught
from .compiled import RUNS

FACTOR = 3
"""What views are multiplied by to see their gradients; of small whole numbers that is exact."""


class _Shown:
    """The places where the result of a call shows elements of its operand."""

    def __init__(self, trial: Trial) -> None:
        base = trial.arrays[0]
        numbers = np.arange(2 * base.size, dtype=np.float64)
        numbered: Any = numbers.view(np.complex128) if base.dtype.kind == "c" else numbers[: base.size]
        (out,) = trial.run([asarray(numbered.reshape(base.shape), device=HOST)], HOST)
        values = array(out)
        self.shape = values.shape
        self.complex = values.dtype.kind == "c"
        self.places = _parts(values).astype(np.int64)
        rule = trial.op.view
        assert rule is not None
        self.refuses = bool(rule.refuses) and (rule.refuses_all or values.size != base.size)

    def of(self, base: Array) -> Array:
        """Return what the result shows of a base."""
        elements = _parts(base)[self.places]
        elements = elements.view(np.result_type(elements.dtype, np.complex64)) if self.complex else elements
        return elements.reshape(self.shape)

    def put(self, base: Array, value: Array) -> Array:
        """Return a base whose result is ``value``."""
        parts = _parts(base).copy()
        parts[self.places] = _parts(value)
        return parts.view(base.dtype).reshape(base.shape)


def _parts(a: Array) -> Array:
    flat = np.ascontiguousarray(a).reshape(-1)
    return flat.view(flat.real.dtype) if flat.dtype.kind == "c" else flat


def _others(a: Array) -> Array:
    """Return small whole numbers, none of them the one that was at its place."""
    if a.dtype == bool:
        return ~a
    parts = _parts(a)
    numbers = (np.arange(parts.size) * 3 % 7).astype(np.float64).astype(parts.dtype)
    seven = np.float64(7).astype(parts.dtype)
    changed: Array = np.where(numbers == parts, seven, numbers).view(a.dtype).reshape(a.shape)
    return changed


def _reversed(x: Any) -> Any:
    """Return a view of a view: with the last axis backwards."""
    return x[..., ::-1] if x.ndim else x[...]


def is_view(trial: Trial) -> bool:
    """Return whether the call makes a view; one that asks for a copy does not."""
    return trial.op.view is not None and not trial.sample.kwargs.get("copy")


def views(trial: Trial) -> Iterator[str]:
    """Writes to the base, a view or a view of that are seen in the other two.

    A result that may show an element twice takes no writes, and says so.
    """
    shown = _Shown(trial)
    (x,) = trial.tensors()
    (v,) = trial.run([x])
    w = _reversed(v)
    base = _others(trial.arrays[0])
    x[...] = asarray(base, device=trial.device)
    yield from _differences("the base", base, shown, x, v, w)
    if shown.refuses:
        error = caught(lambda: v.__setitem__(..., 0))
        if not isinstance(error, ArgumentError):
            yield f"it may show an element twice, so a write to it must raise ArgumentError; got {error!r}"
        yield from _differences("what refuses writes", base, shown, x, v, w)
        return
    value = _others(shown.of(base))
    v[...] = asarray(value, device=trial.device)
    base = shown.put(base, value)
    yield from _differences("the view", base, shown, x, v, w)
    value = _others(shown.of(base))
    w[...] = asarray(np.array(_reversed(value), order="C"), device=trial.device)
    base = shown.put(base, value)
    yield from _differences("a view of the view", base, shown, x, v, w)


def _differences(written: str, base: Array, shown: _Shown, x: Tensor, v: Tensor, w: Tensor) -> Iterator[str]:
    view = shown.of(base)
    for name, t, want in (("the base", x, base), ("the view", v, view), ("a view of it", w, _reversed(view))):
        if not same_bits(array(t), np.array(want, order="C")):
            yield f"{name} is wrong after a write to {written}: {array(t).tolist()}, expected {want.tolist()}"
            return


def view_gradients(trial: Trial) -> Iterator[str]:
    """Gradients flow through writes to a view: a product, then other elements in the place of its own."""
    shown = _Shown(trial)
    if shown.refuses:
        return
    base, seed = trial.arrays[0], _others(np.zeros_like(trial.arrays[0]))
    value = _others(shown.of(base))
    zeros = np.zeros_like(value)
    leaf, other = (asarray(a, device=trial.device).requires_grad_() for a in (base, value))
    cases: list[tuple[str, Callable[[Tensor], Any], list[Array]]] = [
        ("multiplied", lambda v: v.mul_(FACTOR), [shown.put(seed, FACTOR * shown.of(seed)), zeros]),
        ("written to", lambda v: v.__setitem__(..., other), [shown.put(seed, zeros), shown.of(seed)]),
    ]
    for name, write, wanted in cases:
        x = leaf * 1
        write(trial.run([x])[0])
        gradients = grad([x], [leaf, other], [asarray(seed, device=trial.device)], allow_unused=True)
        for whose, got, want in zip(("the base", "what was written"), gradients, wanted, strict=True):
            gradient = np.zeros_like(want) if got is None else array(got)
            if not np.array_equal(gradient, want):
                yield (
                    f"the gradient of {whose} is wrong where the view was {name}: {gradient.tolist()},"
                    f" expected {want.tolist()}"
                )


def compiled_views(trials: Sequence[Trial]) -> Iterator[tuple[Trial, str]]:
    """Write to views of all the calls in one compiled function; yield where it gives not what Python does."""
    chosen = [t for t in trials if is_view(t) and not _Shown(t).refuses]
    if not chosen:
        return
    program = tb.compile(_written, compare_eager=False)
    for run in range(1, RUNS + 1):
        results = []
        for function in (_written, program):
            calls = [_call(t) for t in chosen]
            outs = function(calls)
            results.append(
                [[array(x) for x in (call[1], *out)] for call, out in zip(calls, outs, strict=True)]
            )
        for trial, eager, got in zip(chosen, *results, strict=True):
            if not all(same_bits(a, b) for a, b in zip(eager, got, strict=True)):
                yield trial, f"run {run} of compiled writes to the view: not what they give eagerly"
        if any(not same_bits(a, b) for e, g in zip(*results, strict=True) for a, b in zip(e, g, strict=True)):
            return


def _call(trial: Trial) -> tuple[Any, ...]:
    (x,) = trial.tensors()
    args, kwargs = trial.filled([x])
    base = _others(trial.arrays[0])
    value = np.array(_reversed(_Shown(trial).of(base)), order="C")
    others = [asarray(a, device=trial.device) for a in (value, base)]
    return table.function(trial.op.name), args[0], args[1:], kwargs, *others


def _written(calls: list[Any]) -> list[Any]:
    """Write to a view of a view of each operand, then to it; all that the compiled code is told is this."""
    outs = []
    for function, x, args, kwargs, value, base in calls:
        v = function(x, *args, **kwargs)
        w = _reversed(v)
        w[...] = value
        before = [x.clone(), v.clone()]
        x[...] = base
        outs.append([*before, v, w])
    return outs
