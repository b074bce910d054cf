"""Schedules that multiply the rate by a factor of the epoch."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from math import prod

from ..errors import ArgumentError
from .optimizer import Optimizer
from .schedule import LRScheduler


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


class MultiStepLR(LRScheduler):
    """Multiply the rate by ``gamma`` at every epoch of ``milestones``."""

    def __init__(self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1) -> None:
        self.milestones = sorted(milestones)
        self.gamma = gamma
        super().__init__(optimizer)

    def rate(self, base: float, epoch: int) -> float:
        """Return the learning rate in ``epoch``."""
        return base * self.gamma ** bisect_right(self.milestones, epoch)


class ExponentialLR(LRScheduler):
    """Multiply the rate by ``gamma`` every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float) -> None:
        self.gamma = gamma
        super().__init__(optimizer)

    def rate(self, base: float, epoch: int) -> float:
        """Return the learning rate in ``epoch``."""
        return base * self.gamma**epoch


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
