"""Schedules that multiply the rate by a factor of the epoch."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from math import prod

from ...errors import ArgumentError
from ..optimizer import Optimizer
from .base import LRScheduler


class _ByFunction(LRScheduler):
    """Base of schedules by ``lr_lambda(epoch)``: one function for all groups, or one for each."""

    def __init__(
        self, optimizer: Optimizer, lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]]
    ) -> None:
        count = len(optimizer.param_groups)
        self.lr_lambdas = [lr_lambda] * count if callable(lr_lambda) else list(lr_lambda)
        if len(self.lr_lambdas) != count:
            name = type(self).__name__
            raise ArgumentError(f"{name}: {count} functions are needed, got {len(self.lr_lambdas)}.")
        super().__init__(optimizer)


class LambdaLR(_ByFunction):
    """Multiply the first rate by ``lr_lambda(epoch)``, one function for all groups or one for each.

    >>> import tensorbus as tb
    >>> optimizer = tb.optim.SGD([tb.ones((1,)).requires_grad_()], lr=1.0)
    >>> schedule = tb.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    def rates(self, epoch: int) -> list[float]:
        """Return the learning rates in ``epoch``."""
        return [b * f(epoch) for b, f in zip(self.base_lrs, self.lr_lambdas, strict=True)]


class MultiplicativeLR(_ByFunction):
    """Multiply the rate by ``lr_lambda(epoch)`` at every epoch, one function for all groups or one for each.

    >>> import tensorbus as tb
    >>> optimizer = tb.optim.SGD([tb.ones((1,)).requires_grad_()], lr=1.0)
    >>> schedule = tb.optim.lr_scheduler.MultiplicativeLR(optimizer, lambda epoch: 0.5)
    >>> schedule.step()
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.25]
    """

    def rates(self, epoch: int) -> list[float]:
        """Return the learning rates in ``epoch``."""
        epochs = range(1, epoch + 1)
        return [b * prod(map(f, epochs)) for b, f in zip(self.base_lrs, self.lr_lambdas, strict=True)]

    def next_rates(self, present: list[float], epoch: int) -> list[float]:
        """Return the present rates times what the functions give."""
        if epoch == 0:
            return present
        return [rate * f(epoch) for rate, f in zip(present, self.lr_lambdas, strict=True)]


class MultiStepLR(LRScheduler):
    """Multiply the rate by ``gamma`` at every epoch of ``milestones``."""

    def __init__(self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1) -> None:
        self.milestones = sorted(milestones)
        self.gamma = gamma
        super().__init__(optimizer)

    def rate(self, base: float, epoch: int) -> float:
        """Return the learning rate in ``epoch``."""
        return base * self.gamma ** bisect_right(self.milestones, epoch)

    def next_rates(self, present: list[float], epoch: int) -> list[float]:
        """Return the present rates, ``gamma`` times as high for each milestone that the epoch is."""
        count = self.milestones.count(epoch)
        return [rate * self.gamma**count for rate in present] if count else present


class ExponentialLR(LRScheduler):
    """Multiply the rate by ``gamma`` every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float) -> None:
        self.gamma = gamma
        super().__init__(optimizer)

    def rate(self, base: float, epoch: int) -> float:
        """Return the learning rate in ``epoch``."""
        return base * self.gamma**epoch

    def next_rates(self, present: list[float], epoch: int) -> list[float]:
        """Return the present rates times ``gamma``."""
        return [rate * self.gamma for rate in present] if epoch else present


class ConstantLR(LRScheduler):
    """Multiply the rate by ``factor`` until epoch ``total_iters``."""

    def __init__(self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5) -> None:
        if not 0 <= factor <= 1:
            raise ArgumentError(f"ConstantLR: factor lies in [0, 1], got {factor!r}.")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer)

    def rate(self, base: float, epoch: int) -> float:
        """Return the learning rate in ``epoch``."""
        return base * self.factor if epoch < self.total_iters else base

    def next_rates(self, present: list[float], epoch: int) -> list[float]:
        """Return the present rates, multiplied at the beginning and divided again at the end."""
        if epoch == 0 and self.total_iters > 0:
            return [rate * self.factor for rate in present]
        if epoch == 0 or epoch != self.total_iters:
            return present
        return [rate * (1.0 / self.factor) for rate in present] if self.factor else self.rates(epoch)


class LinearLR(LRScheduler):
    """Multiply the rate by a factor that goes from ``start_factor`` to ``end_factor`` in ``total_iters``."""

    def __init__(
        self, optimizer: Optimizer, start_factor: float = 1.0 / 3, end_factor: float = 1.0,
        total_iters: int = 5,
    ) -> None:  # fmt: skip
        if not 0 < start_factor <= 1 or not 0 <= end_factor <= 1:
            raise ArgumentError(
                f"LinearLR: start_factor lies in (0, 1] and end_factor in [0, 1], got {start_factor!r} and"
                f" {end_factor!r}."
            )
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer)

    def rate(self, base: float, epoch: int) -> float:
        """Return the learning rate in ``epoch``."""
        share = min(epoch, self.total_iters) / self.total_iters
        return base * (self.start_factor + (self.end_factor - self.start_factor) * share)

    def next_rates(self, present: list[float], epoch: int) -> list[float]:
        """Return the present rates times this epoch's factor over the one before."""
        if epoch == 0:
            return [rate * self.start_factor for rate in present]
        if epoch > self.total_iters:
            return present
        rise = self.end_factor - self.start_factor
        factor = 1.0 + rise / (self.total_iters * self.start_factor + (epoch - 1) * rise)
        return [rate * factor for rate in present]


class PolynomialLR(LRScheduler):
    """Let the rate fall to 0 at epoch ``total_iters``, as ``(1 - epoch / total_iters) ** power``."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0) -> None:
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer)

    def rate(self, base: float, epoch: int) -> float:
        """Return the learning rate in ``epoch``."""
        left: float = (1 - min(epoch, self.total_iters) / self.total_iters) ** self.power
        return base * left

    def next_rates(self, present: list[float], epoch: int) -> list[float]:
        """Return the present rates times this epoch's factor over the one before."""
        if epoch == 0 or epoch > self.total_iters:
            return present
        left, before = (1 - e / self.total_iters for e in (epoch, epoch - 1))
        return [rate * (left / before) ** self.power for rate in present]
