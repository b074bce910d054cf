"""Numbers from further distributions, drawn from the same generators.

The uniform numbers behind them are the same on every device; functions like ``log`` are each device's own, so
results may differ in their last bits, and with them, rarely, what a rejection decides. Parameters are numbers
or tensors that broadcast to ``shape``; they are not checked where they are tensors.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .compat import torch_names
from .dtypes import definition as dt
from .dtypes.definition import DType
from .errors import ArgumentError, DtypeError
from .ops.call_errors import with_form
from .ops.creation.creation import DeviceLike, zeros
from .ops.definition import Shape
from .ops.elementwise.arithmetic import abs, floor, maximum, minimum
from .ops.elementwise.comparison import (
    greater,
    greater_equal,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
)
from .ops.elementwise.special import erfinv, lgamma
from .ops.elementwise.transcendental import exp, log, sqrt, tan
from .ops.elementwise.where_cast import cast, where
from .ops.movement.family import as_shape
from .ops.movement.movement import broadcast_to
from .ops.reduction.reduction import all as all_of
from .ops.reduction.reduction import sum
from .random.generator import Generator, normal, open_unit

if TYPE_CHECKING:
    from .tensor.tensor import Tensor

Number = Any
"""A number, or a tensor of them."""


__path__: list[
    str
] = []  # a from import of what is missing then asks for a module, and is told what stands for it


def __getattr__(name: str) -> Any:
    """Say what draws in the place of a class of ``torch.distributions``."""
    message = f"module {__name__!r} has no attribute {name!r}{torch_names.of_distributions(name)}"
    raise AttributeError(message)


def _kind(name: str, dtype: DType | str | None) -> DType:
    kind = dt.default_float if dtype is None else dt.dtype(dtype)
    if not kind.is_floating:
        raise DtypeError(f"{name}: a floating-point dtype is needed, got {kind}.")
    return kind


def _positive(name: str, **parameters: Number) -> None:
    for role, value in parameters.items():
        if isinstance(value, (int, float)) and not value > 0:
            raise ArgumentError(f"{name}: {role} must be > 0, got {value!r}.")


def _as(x: Any, kind: DType) -> Tensor:
    out: Tensor = x if x.dtype is kind else cast(x, kind)
    return out


@with_form
def exponential(
    shape: int | tuple[int, ...], /, rate: Number = 1.0, *, dtype: DType | str | None = None,
    device: DeviceLike = None, generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Return waiting times of ``rate`` events a unit of time: their mean is ``1 / rate``.

    >>> import tensorbus as tb
    >>> tb.exponential((2, 3)).shape
    (2, 3)
    """
    _positive("exponential", rate=rate)
    kind = _kind("exponential", dtype)
    return _as(-log(open_unit(as_shape("exponential", shape), device, generator)) / rate, kind)


@with_form
def laplace(
    shape: int | tuple[int, ...], /, loc: Number = 0.0, scale: Number = 1.0, *,
    dtype: DType | str | None = None, device: DeviceLike = None, generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Return numbers of density ``exp(-abs(x - loc) / scale) / (2 * scale)``."""
    _positive("laplace", scale=scale)
    kind = _kind("laplace", dtype)
    side = open_unit(as_shape("laplace", shape), device, generator) * 2 - 1
    size = -log(1 - abs(side))
    return _as(where(less(side, 0), -size, size) * scale + loc, kind)


@with_form
def gumbel(
    shape: int | tuple[int, ...], /, loc: Number = 0.0, scale: Number = 1.0, *,
    dtype: DType | str | None = None, device: DeviceLike = None, generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Return numbers of the distribution of the largest of many: ``loc - scale * log(-log(uniform))``."""
    _positive("gumbel", scale=scale)
    kind = _kind("gumbel", dtype)
    return _as(-log(-log(open_unit(as_shape("gumbel", shape), device, generator))) * scale + loc, kind)


@with_form
def cauchy(
    shape: int | tuple[int, ...], /, loc: Number = 0.0, scale: Number = 1.0, *,
    dtype: DType | str | None = None, device: DeviceLike = None, generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Return numbers of Cauchy's distribution around the median ``loc``."""
    _positive("cauchy", scale=scale)
    kind = _kind("cauchy", dtype)
    angle = (open_unit(as_shape("cauchy", shape), device, generator) - 0.5) * math.pi
    return _as(tan(angle) * scale + loc, kind)


@with_form
def truncated_normal(
    shape: int | tuple[int, ...], /, mean: float = 0.0, std: float = 1.0, low: float = -2.0,
    high: float = 2.0, *, dtype: DType | str | None = None, device: DeviceLike = None,
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Return normally distributed numbers, of those that lie in ``[low, high]``.

    By the inverse of the distribution function, like PyTorch's ``trunc_normal_``: limits many deviations away
    on one side of the mean are not what it is for. Raises ``ArgumentError`` for an empty interval.
    """
    _positive("truncated_normal", std=std)
    if not low < high:
        raise ArgumentError(f"truncated_normal: low must be less than high, got {low!r} and {high!r}.")
    kind = _kind("truncated_normal", dtype)
    first, last = (math.erf((end - mean) / (std * math.sqrt(2))) for end in (low, high))
    chance = open_unit(as_shape("truncated_normal", shape), device, generator)
    drawn = erfinv(chance * (last - first) + first) * (std * math.sqrt(2)) + mean
    return _as(minimum(maximum(drawn, low), high), kind)


@with_form
def geometric(
    p: Number, shape: int | tuple[int, ...], *, dtype: DType | str | None = None,
    device: DeviceLike = None, generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Return how many trials of probability ``p`` it takes until the first succeeds: 1, 2 and so on."""
    _probability("geometric", p)
    kind = dt.default_int if dtype is None else dt.dtype(dtype)
    chance = open_unit(as_shape("geometric", shape), device, generator)
    lost: Any = (math.log1p(-p) if p < 1 else -math.inf) if isinstance(p, (int, float)) else log(1 - p)
    return cast(floor(log(chance) / lost) + 1, kind)


def _probability(name: str, p: Number) -> None:
    if isinstance(p, (int, float)) and not 0 <= p <= 1:
        raise ArgumentError(f"{name}: a probability lies in [0, 1], got {p!r}.")


@with_form
def binomial(
    count: int, p: Number, shape: int | tuple[int, ...], *, dtype: DType | str | None = None,
    device: DeviceLike = None, generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Return how many of ``count`` trials of probability ``p`` succeed.

    Exactly the same on every device. All trials are made, so that the work grows with ``count``.
    """
    if count < 0:
        raise ArgumentError(f"binomial: count must be >= 0, got {count!r}.")
    _probability("binomial", p)
    kind = dt.default_int if dtype is None else dt.dtype(dtype)
    size = as_shape("binomial", shape)
    total: Any = zeros(size, dtype=dt.int64, device=device)
    for done in range(0, count, 64):
        chances = open_unit((min(64, count - done), *size), device, generator)
        total = total + sum(cast(less(chances, p), dt.int64), axis=0)
    return cast(total, kind)


def _spread(parameter: Number, shape: Shape, device: DeviceLike) -> Any:
    """Return a parameter as a float32 tensor of ``shape``."""
    if isinstance(parameter, (int, float)):
        return zeros(shape, dtype=dt.float32, device=device) + float(parameter)
    return broadcast_to(cast(parameter, dt.float32), shape)


@with_form
def gamma(
    shape: int | tuple[int, ...], /, concentration: Number, rate: Number = 1.0, *,
    dtype: DType | str | None = None, device: DeviceLike = None, generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Return numbers of the gamma distribution (Marsaglia and Tsang 2000): the mean is their ratio.

    Waits for the device after each round of rejections.
    """
    _positive("gamma", concentration=concentration, rate=rate)
    kind, size = _kind("gamma", dtype), as_shape("gamma", shape)
    alpha = _spread(concentration, size, device)
    small = less(alpha, 1.0)
    d = where(small, alpha + 1, alpha) - 1 / 3
    c = 1 / sqrt(9 * d)
    accepted, done = d * 0, less(d, 0)
    while not bool(all_of(done)):
        x = normal(size, device=device, generator=generator)
        v = (1 + c * x) ** 3
        chance = open_unit(size, device, generator)
        inside = greater(v, 0)
        safe = where(inside, v, 1.0)
        good = logical_and(inside, less(log(chance), 0.5 * x * x + d - d * safe + d * log(safe)))
        accepted = where(logical_and(good, logical_not(done)), d * safe, accepted)
        done = logical_or(done, good)
    lift = exp(log(open_unit(size, device, generator)) / where(small, alpha, 1.0))
    return _as(where(small, accepted * lift, accepted) / rate, kind)


@with_form
def beta(
    shape: int | tuple[int, ...], /, a: Number, b: Number, *, dtype: DType | str | None = None,
    device: DeviceLike = None, generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Return numbers in [0, 1] of the beta distribution: a share between two gammas."""
    _positive("beta", a=a, b=b)
    x = gamma(shape, a, device=device, generator=generator)
    y = gamma(shape, b, device=device, generator=generator)
    return _as(x / (x + y), _kind("beta", dtype))


@with_form
def dirichlet(
    concentration: Tensor, shape: int | tuple[int, ...] = (), *, dtype: DType | str | None = None,
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Return shares that add up to 1 along the last axis: ``shape`` in front of ``concentration``'s own."""
    size = (*as_shape("dirichlet", shape), *concentration.shape)
    parts = gamma(size, concentration, device=concentration.device, generator=generator)
    return _as(parts / sum(parts, axis=-1, keepdims=True), _kind("dirichlet", dtype))


@with_form
def poisson(
    rate: Number, shape: int | tuple[int, ...] | None = None, *, dtype: DType | str | None = None,
    device: DeviceLike = None, generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Return how many events happen where ``rate`` are expected; floats, as in PyTorch.

    ``rate`` is a number, or a tensor, whose shape and device hold then. By inversion below 10, else by
    transformed rejection (Hormann 1993), which waits for the device after each round.

    >>> import tensorbus as tb
    >>> tb.poisson(0.0, (2,)).tolist()
    [0.0, 0.0]
    """
    if isinstance(rate, (int, float)):
        if not rate >= 0:
            raise ArgumentError(f"poisson: rate must be >= 0, got {rate!r}.")
        if shape is None:
            raise ArgumentError("poisson: a shape is needed where the rate is a number.")
        size = as_shape("poisson", shape)
        kind = _kind("poisson", dtype)
    else:
        size = rate.shape if shape is None else as_shape("poisson", shape)
        device = rate.device
        kind = _kind("poisson", rate.dtype if dtype is None else dtype)
    mean = _spread(rate, size, device)
    low = less(mean, 10.0)
    few = _few(where(low, mean, 1.0), open_unit(size, device, generator))
    if bool(all_of(low)):
        return _as(few, kind)
    return _as(where(low, few, _many(where(low, 10.0, mean), size, device, generator)), kind)


def _few(mean: Any, chance: Any) -> Any:
    """Count how many terms of the distribution function lie below a uniform number."""
    term = exp(-mean)
    reached, count = term, mean * 0
    for k in range(1, 45):  # of rates below 10 more are less likely than the uniform number is fine
        count = count + cast(greater(chance, reached), dt.float32)
        term = term * mean * (1 / k)
        reached = reached + term
    return count


def _many(mean: Any, size: Shape, device: DeviceLike, generator: Generator | None) -> Any:
    b = 0.931 + 2.53 * sqrt(mean)
    a = -0.059 + 0.02483 * b
    inverse = 1.1239 + 1.1328 / (b - 3.4)
    quick = 0.9277 - 3.6224 / (b - 2)
    accepted, done = mean * 0, less(mean, 0)
    while not bool(all_of(done)):
        u = open_unit(size, device, generator) - 0.5
        v = open_unit(size, device, generator)
        us = 0.5 - abs(u)
        k = floor((2 * a / us + b) * u + mean + 0.43)
        sure = logical_and(greater_equal(us, 0.07), less_equal(v, quick))
        possible = logical_and(greater_equal(k, 0), logical_not(logical_and(less(us, 0.013), greater(v, us))))
        safe = maximum(k, 0.0)
        likely = less_equal(
            log(v) + log(inverse) - log(a / (us * us) + b), safe * log(mean) - mean - lgamma(safe + 1)
        )
        good = logical_or(sure, logical_and(possible, likely))
        accepted = where(logical_and(good, logical_not(done)), k, accepted)
        done = logical_or(done, good)
    return accepted
