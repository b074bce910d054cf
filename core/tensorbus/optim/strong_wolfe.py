"""A line search for the strong Wolfe conditions.

Nocedal and Wright, "Numerical Optimization", 2nd edition, algorithms 3.5 and 3.6, with cubic interpolation
and the safeguards that PyTorch has.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

from ..ops.elementwise.arithmetic import abs as size_of
from ..ops.reduction.reduction import max as largest
from ..ops.reduction.reduction import sum as total
from ..tensor.tensor import Tensor

DECREASE: Final = 1e-4
CURVATURE: Final = 0.9


class Point(NamedTuple):
    """A place on the line: how far, the loss there, its gradient, and its slope along the line."""

    step: float
    loss: float
    gradient: Tensor
    slope: float


def _cubic_minimum(a: Point, b: Point, low: float, high: float) -> float:
    """Return where the cubic through two points with their slopes is least, within bounds."""
    if a.step > b.step:
        a, b = b, a
    bend = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.step - b.step)
    square = bend * bend - a.slope * b.slope
    if not square >= 0:
        return (low + high) / 2
    root = math.sqrt(square)
    rise = b.slope - a.slope + 2 * root
    if rise == 0:
        return (low + high) / 2
    place = b.step - (b.step - a.step) * ((b.slope + root - bend) / rise)
    return min(max(place, low), high)


def strong_wolfe(
    evaluate: Callable[[float], tuple[float, Tensor]], step: float, direction: Tensor, loss: float,
    gradient: Tensor, slope: float, tolerance: float, most: int,
) -> tuple[float, Tensor, float, int]:  # fmt: skip
    """Return the loss and gradient at a good step, the step, and how often the loss was computed.

    ``evaluate(step)`` gives loss and gradient; ``loss``, ``gradient`` and ``slope`` are those at 0.
    It is called a little more than ``most`` times at the most.
    """
    start = Point(0.0, loss, gradient, slope)
    used = 0

    def at(place: float) -> Point:
        nonlocal used
        used += 1
        value, g = evaluate(place)
        return Point(place, value, g, float(total(g * direction)))

    def too_high(point: Point) -> bool:
        return not point.loss <= loss + DECREASE * point.step * slope

    before, here = start, at(step)
    rounds = 0
    bracket: list[Point] | None = None
    while rounds < most:
        if too_high(here) or (rounds > 1 and here.loss >= before.loss) or here.slope >= 0:
            good = abs(here.slope) <= -CURVATURE * slope and not too_high(here)
            if good and not (rounds > 1 and here.loss >= before.loss):
                return here.loss, here.gradient, here.step, used
            bracket = [before, here]
            break
        if abs(here.slope) <= -CURVATURE * slope:
            return here.loss, here.gradient, here.step, used
        low, high = here.step + 0.01 * (here.step - before.step), here.step * 10
        before, here = here, at(_cubic_minimum(before, here, low, high))
        rounds += 1
    if bracket is None:
        bracket = [start, here]
    best = _zoom(bracket, at, too_high, most - rounds, slope, float(largest(size_of(direction))), tolerance)
    return best.loss, best.gradient, best.step, used


def _zoom(
    bracket: list[Point], at: Callable[[float], Point], too_high: Callable[[Point], bool], most: int,
    slope: float, reach: float, tolerance: float,
) -> Point:  # fmt: skip
    """Shrink a bracket around a good step until one is found, or nothing moves any more."""
    least, other = sorted(bracket, key=lambda point: point.loss)
    stuck = False
    rounds = 0
    while rounds < most and abs(other.step - least.step) * reach >= tolerance:
        low, high = sorted((least.step, other.step))
        place = _cubic_minimum(least, other, low, high)
        edge = 0.1 * (high - low)
        if min(high - place, place - low) < edge:  # twice near an end: rather a step away from it
            if stuck or not low < place < high:
                place = high - edge if abs(place - high) < abs(place - low) else low + edge
                stuck = False
            else:
                stuck = True
        else:
            stuck = False
        trial = at(place)
        rounds += 1
        if too_high(trial) or trial.loss >= least.loss:
            least, other = sorted((least, trial), key=lambda point: point.loss)
            continue
        if abs(trial.slope) <= -CURVATURE * slope:
            return trial
        if trial.slope * (other.step - least.step) >= 0:
            other = least
        least = trial
    return least
