"""Derivatives against finite differences, first and second ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from zlib import crc32

import numpy as np
from tensorbus import Tensor, asarray, grad

from ..native import Array, wide
from ..trial import Trial

STEP = 1e-4
DIFFERENCE_TOLERANCE = 2e-6
"""To this part of their terms, differences of fourth order in float64 agree with a right derivative."""
GRADIENT_ULPS = 2000.0
"""Units in the last place that a gradient in the dtype under test may be off, of its largest element."""
Values = Sequence[Array]


def differentiable(trial: Trial) -> list[int]:
    """Return the numbers of the operands that a derivative is taken by; none where a trial has none."""
    places = [k for k, a in enumerate(trial.arrays) if is_inexact(a)]
    if not places or not any(a.size for a in trial.arrays):
        return []
    return places if any(d.is_inexact for d in trial.bind(trial.tensors()).outs) else []


def derivative(trial: Trial, wide_device: str) -> Iterator[str]:
    """Check the gradient in float64 by differences, on ``wide_device``; and the gradient's gradient.

    Where the dtype under test has fewer digits, its gradient is compared with the one in float64 as well.
    """
    places = differentiable(trial)
    if not places:
        return
    wide_values = [wide(a) if is_inexact(a) else a for a in trial.arrays]
    outs = values_of(trial, wide_values, wide_device)
    rng = np.random.default_rng(crc32(f"{trial.op.name} {trial.place} derivative".encode()))
    seeds = [direction(rng, o) if is_inexact(o) else None for o in outs]

    def first(values: Values) -> list[Array]:
        return gradients_of(trial, values, places, seeds, wide_device)[0]

    def total(values: Values) -> float:
        results = values_of(trial, values, wide_device)
        return sum(dot(s, o) for s, o in zip(seeds, results, strict=True) if s is not None)

    gradients = first(wide_values)
    yield from _compare("gradient", wide_values, places, gradients, total, rng)
    weights = [direction(rng, wide_values[k]) for k in places]

    def slope(values: Values) -> float:
        return sum(dot(w, g) for w, g in zip(weights, first(values), strict=True))

    second = _second(trial, wide_values, places, seeds, weights, wide_device)
    yield from _compare("second derivative", wide_values, places, second, slope, rng)
    yield from _own_gradient(trial, places, seeds, gradients)


def _own_gradient(
    trial: Trial, places: list[int], seeds: Sequence[Array | None], wanted: list[Array]
) -> Iterator[str]:
    """Compare the gradient in the dtype under test, on the device under test."""
    gradients = gradients_of(trial, trial.arrays, places, seeds, trial.device)[0]
    for place, got, want in zip(places, gradients, wanted, strict=True):
        eps = float(np.finfo(trial.arrays[place].dtype).eps)
        limit = GRADIENT_ULPS * eps * max(float(np.max(np.abs(want), initial=0.0)), 1.0)
        error = float(np.max(np.abs(wide(got) - want), initial=0.0))
        if not error <= limit:
            yield f"gradient of operand {place} in {trial.dtype}: off by {error:.3g}, allowed {limit:.3g}"


def is_inexact(a: Array) -> bool:
    """Return whether derivatives are taken with respect to an array."""
    return a.dtype.kind in "fc" or a.dtype.name.startswith(("bfloat", "float8"))


def direction(rng: np.random.Generator, like: Array) -> Array:
    """Return random numbers of the shape of an array, complex for a complex one."""
    drawn: Any = np.asarray(rng.uniform(-1, 1, like.shape))
    return np.asarray(drawn + 1j * rng.uniform(-1, 1, like.shape)) if like.dtype.kind == "c" else drawn


def dot(a: Any, b: Any) -> float:
    """Return the real inner product of two arrays."""
    return float(np.sum(np.conj(a) * b).real)


def values_of(trial: Trial, values: Values, device: str) -> list[Array]:
    """Return the results of a call of these arrays."""
    return [x.numpy() for x in trial.run([asarray(v, device=device) for v in values], device)]


def _cotangents(outs: Sequence[Tensor], seeds: Sequence[Array | None]) -> tuple[list[Tensor], list[Tensor]]:
    chosen = [(o, s) for o, s in zip(outs, seeds, strict=True) if s is not None and o.requires_grad]
    return [o for o, _ in chosen], [asarray(s, device=o.device, dtype=o.dtype) for o, s in chosen]


def gradients_of(
    trial: Trial, values: Values, places: list[int], seeds: Sequence[Array | None], device: str
) -> tuple[list[Array], list[Tensor | None], list[Tensor]]:
    """Return the gradients as arrays (zeros for None) and as tensors, and the tensors they belong to."""
    tensors = [asarray(v, device=device) for v in values]
    leaves = [tensors[k].requires_grad_() for k in places]
    outs, starts = _cotangents(trial.run(tensors, device), seeds)
    gradients: Sequence[Tensor | None] = (
        grad(outs, leaves, starts, create_graph=True, allow_unused=True) if outs else [None] * len(leaves)
    )
    arrays = [
        np.zeros(x.shape) if g is None else g.detach().numpy() for x, g in zip(leaves, gradients, strict=True)
    ]
    return arrays, list(gradients), leaves


def _second(
    trial: Trial,
    values: Values,
    places: list[int],
    seeds: Sequence[Array | None],
    weights: Values,
    device: str,
) -> list[Array]:
    _, gradients, leaves = gradients_of(trial, values, places, seeds, device)
    chosen = [(g, w) for g, w in zip(gradients, weights, strict=True) if g is not None and g.requires_grad]
    if not chosen:
        return [np.zeros(x.shape) for x in leaves]
    starts = [asarray(w, device=device, dtype=g.dtype) for g, w in chosen]
    second = grad([g for g, _ in chosen], leaves, starts, allow_unused=True)
    return [np.zeros(x.shape) if g is None else g.numpy() for x, g in zip(leaves, second, strict=True)]


def _compare(
    what: str, values: Values, places: list[int], gradients: list[Array], function: Callable[[Values], float],
    rng: np.random.Generator,
) -> Iterator[str]:  # fmt: skip
    """Compare a gradient with differences along one random direction for each operand."""
    for place, slope in zip(places, gradients, strict=True):
        if not values[place].size:
            continue
        if slope.shape != values[place].shape:
            yield f"{what} of operand {place} has shape {slope.shape}, expected {values[place].shape}"
            continue
        towards = direction(rng, values[place])

        def at(t: float, k: int = place, d: Array = towards) -> float:
            return function([np.asarray(v + t * d) if j == k else v for j, v in enumerate(values)])

        near, far = at(STEP) - at(-STEP), at(2 * STEP) - at(-2 * STEP)
        measured = (8 * near - far) / (12 * STEP)
        computed = dot(slope, towards)
        size = float(np.sum(np.abs(slope * towards))) + abs(measured) + 1e-3 * (1 + abs(at(0.0)))
        if not abs(measured - computed) <= DIFFERENCE_TOLERANCE * size:
            yield f"{what} of operand {place}: {computed:.8g} along a line, by differences {measured:.8g}"
