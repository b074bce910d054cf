"""Forward derivatives: against differences, against gradients, and differentiated once more, both ways."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from zlib import crc32

import numpy as np
from tensorbus import Tensor, asarray, grad
from tensorbus.func import jvp

from ..native import Array, wide
from ..trial import Trial
from .derivative import (
    DIFFERENCE_TOLERANCE,
    GRADIENT_ULPS,
    STEP,
    Values,
    differentiable,
    direction,
    dot,
    gradients_of,
    is_inexact,
    values_of,
)  # fmt: skip

AGREEMENT = 1e-9
"""To this part of their terms two derivatives in float64 agree that ought to be the same number."""


def forward_derivative(trial: Trial, wide_device: str) -> Iterator[str]:
    """Check the tangent in float64, along a direction of all operands and along one of the first alone.

    With ``u`` a gradient of the results and ``v`` the direction: ``J v`` is the slope by differences,
    ``<u, J v>`` is ``<J^T u, v>``, and the gradient of ``<u, J v>`` is the derivative of ``J^T u`` along
    ``v``. Where the dtype under test has fewer digits, its tangent is compared with the one in float64 as
    well.
    """
    places = differentiable(trial)
    if not places:
        return
    wide_values = [wide(a) if is_inexact(a) else a for a in trial.arrays]
    rng = np.random.default_rng(crc32(f"{trial.op.name} {trial.place} jvp".encode()))
    for moved in [places] if len(places) == 1 else [places, places[:1]]:
        which = "all operands" if moved == places else "one operand"
        along = [direction(rng, wide_values[k]) for k in moved]
        tangents = _tangents(trial, wide_values, moved, along, wide_device)
        yield from _differences(trial, wide_values, moved, along, tangents, wide_device, which)
        seeds = [direction(rng, t) if t is not None else None for t in tangents]
        yield from _transposes(trial, wide_values, moved, along, seeds, tangents, wide_device, which)
        yield from _own_tangents(trial, moved, along, tangents)


def _run(trial: Trial, tensors: Sequence[Any], moved: list[int], device: str) -> Any:
    """Return the op as a function of the tensors that move."""

    def function(*chosen: Tensor) -> tuple[Tensor, ...]:
        own = [*tensors]
        for k, x in zip(moved, chosen, strict=True):
            own[k] = x
        return tuple([x for x in trial.run(own, device) if x.dtype.is_inexact])

    return function


def _tensors(values: Values, like: Sequence[Tensor], device: str) -> list[Tensor]:
    return [asarray(v, device=device, dtype=x.dtype) for v, x in zip(values, like, strict=True)]


def _pushed(
    trial: Trial, tensors: Sequence[Tensor], moved: list[int], along: Values, device: str
) -> tuple[Tensor, ...]:
    points = [tensors[k] for k in moved]
    directions = tuple(_tensors(along, points, device))
    result: tuple[Tensor, ...] = jvp(_run(trial, tensors, moved, device), tuple(points), directions)[1]
    return result


def _tangents(
    trial: Trial, values: Values, moved: list[int], along: Values, device: str
) -> list[Array | None]:
    """Return the tangent of each result, None for one that has none."""
    tensors = [asarray(v, device=device) for v in values]
    inexact = [d.is_inexact for d in trial.bind(tensors, device).outs]
    pushed = iter(_pushed(trial, tensors, moved, along, device))
    return [next(pushed).numpy() if here else None for here in inexact]


def _differences(
    trial: Trial, values: Values, moved: list[int], along: Values, tangents: Sequence[Array | None],
    device: str, which: str,
) -> Iterator[str]:  # fmt: skip
    def at(t: float) -> list[Array]:
        steps = dict(zip(moved, along, strict=True))
        return values_of(
            trial, [np.asarray(v + t * steps[k]) if k in steps else v for k, v in enumerate(values)], device
        )

    samples = [at(STEP), at(-STEP), at(2 * STEP), at(-2 * STEP), at(0.0)]
    for place, tangent in enumerate(tangents):
        if tangent is None:
            continue
        a, b, c, d, out = (s[place] for s in samples)
        measured = (8 * (a - b) - (c - d)) / (12 * STEP)
        if tangent.shape != out.shape:
            yield f"tangent of result {place} has shape {tangent.shape}, expected {out.shape}"
            continue
        size = float(np.max(np.abs(tangent), initial=0.0) + 1e-3 * (1 + np.max(np.abs(out), initial=0.0)))
        error = float(np.max(np.abs(measured - tangent), initial=0.0))
        if not error <= 10 * DIFFERENCE_TOLERANCE * max(size, float(np.sum(np.abs(tangent)))):
            yield f"tangent of result {place} along {which}: off by {error:.3g} from differences"


def _transposes(
    trial: Trial, values: Values, moved: list[int], along: Values, seeds: Sequence[Array | None],
    tangents: Sequence[Array | None], device: str, which: str,
) -> Iterator[str]:  # fmt: skip
    pairs = [(s, t) for s, t in zip(seeds, tangents, strict=True) if s is not None and t is not None]
    forward = sum(dot(s, t) for s, t in pairs)
    size = sum(float(np.sum(np.abs(s * t))) for s, t in pairs)
    backs = gradients_of(trial, values, moved, seeds, device)[0]
    reverse = sum(dot(b, v) for b, v in zip(backs, along, strict=True))
    size += sum(float(np.sum(np.abs(b * v))) for b, v in zip(backs, along, strict=True))
    if not abs(forward - reverse) <= AGREEMENT * (size + 1):
        yield f"tangent along {which}: <u, J v> is {forward:.12g}, <J^T u, v> is {reverse:.12g}"
    one = _gradient_of_tangent(trial, values, moved, along, seeds, device)
    two = _tangent_of_gradient(trial, values, moved, along, seeds, device)
    for k, a, b in zip(moved, one, two, strict=True):
        limit = AGREEMENT * 1e3 * (1 + float(np.max(np.abs(a), initial=0.0)))
        error = float(np.max(np.abs(a - b), initial=0.0))
        if not error <= limit:
            yield (
                f"second derivative at operand {k} along {which}: the gradient of a tangent and the tangent"
                f" of a gradient differ by {error:.3g}"
            )


def _gradient_of_tangent(
    trial: Trial, values: Values, moved: list[int], along: Values, seeds: Sequence[Array | None], device: str
) -> list[Array]:
    tensors = [asarray(v, device=device) for v in values]
    leaves = [tensors[k].requires_grad_() for k in moved]
    pushed = _pushed(trial, tensors, moved, along, device)
    starts = [s for s in seeds if s is not None]
    chosen = [(t, s) for t, s in zip(pushed, starts, strict=True) if t.requires_grad]
    if not chosen:
        return [np.zeros(x.shape) for x in leaves]
    outs = [t for t, _ in chosen]
    gradients = grad(outs, leaves, _tensors([s for _, s in chosen], outs, device), allow_unused=True)
    return [np.zeros(x.shape) if g is None else g.numpy() for x, g in zip(leaves, gradients, strict=True)]


def _tangent_of_gradient(
    trial: Trial, values: Values, moved: list[int], along: Values, seeds: Sequence[Array | None], device: str
) -> list[Array]:
    tensors = [asarray(v, device=device) for v in values]
    starts = [s for s in seeds if s is not None]

    def gradient(*chosen: Tensor) -> tuple[Tensor, ...]:
        leaves = [(x * 1).requires_grad_() for x in chosen]
        outs = _run(trial, tensors, moved, device)(*leaves)
        pairs = [(o, s) for o, s in zip(outs, starts, strict=True) if o.requires_grad]
        if not pairs:
            return tuple([x * 0 for x in leaves])
        results = [o for o, _ in pairs]
        gradients = grad(
            results, leaves, _tensors([s for _, s in pairs], results, device), create_graph=True,
            allow_unused=True,
        )  # fmt: skip
        return tuple([x * 0 if g is None else g for x, g in zip(leaves, gradients, strict=True)])

    points = [tensors[k] for k in moved]
    pushed = jvp(gradient, tuple(points), tuple(_tensors(along, points, device)))[1]
    return [t.detach().numpy() for t in pushed]


def _own_tangents(
    trial: Trial, moved: list[int], along: Values, wanted: Sequence[Array | None]
) -> Iterator[str]:
    """Compare the tangent in the dtype under test, on the device under test."""
    tangents = _tangents(trial, trial.arrays, moved, along, trial.device)
    for place, (got, want) in enumerate(zip(tangents, wanted, strict=True)):
        if got is None or want is None:
            continue
        eps = float(np.finfo(trial.arrays[moved[0]].dtype).eps)
        limit = GRADIENT_ULPS * eps * max(float(np.max(np.abs(want), initial=0.0)), 1.0)
        error = float(np.max(np.abs(wide(got) - want), initial=0.0))
        if not error <= limit:
            yield f"tangent of result {place} in {trial.dtype}: off by {error:.3g}, allowed {limit:.3g}"
