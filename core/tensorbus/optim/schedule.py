"""Learning rates that change with time: call ``step()`` once an epoch, after the optimizer's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from .. import symbolic
from ..errors import ArgumentError, StateError
from .optimizer import SCHEDULED, Group, Optimizer


class LRScheduler:
    """Base of schedules. A subclass writes ``rate(base, epoch)``: the rate in an epoch, from 0 on."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        self.base_lrs: list[float] = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = 0
        self._set()

    def rate(self, base: float, epoch: int) -> float:
        """Return the learning rate in ``epoch`` of a group that began with ``base``."""
        raise NotImplementedError(f"{type(self).__name__} has no rate(); write how the rate changes.")

    def step(self) -> None:
        """Go to the next epoch and set the rates of all groups."""
        symbolic.call(self, self._next, self._touched())

    def go_to(self, epoch: int) -> None:
        """Go to ``epoch`` and set the rates of all groups."""
        symbolic.call(self, partial(self._go, epoch), self._touched())

    def _next(self) -> None:
        self._go(self.last_epoch + 1)

    def _go(self, epoch: int) -> None:
        self.last_epoch = epoch
        self._set()

    def _touched(self) -> list[tuple[Group, str]]:
        """Return what a schedule may change: the rates of groups, and their momentum."""
        return [(group, key) for group in self.optimizer.param_groups for key in SCHEDULED if key in group]

    def rates(self, epoch: int) -> list[float]:
        """Return the learning rate of each group in ``epoch``."""
        return [self.rate(base, epoch) for base in self.base_lrs]

    def _set(self) -> None:
        for group, rate in zip(self.optimizer.param_groups, self.rates(self.last_epoch), strict=True):
            group["lr"] = rate

    def get_last_lr(self) -> list[float]:
        """Return the learning rate of each group."""
        symbolic.telling("the learning rate")
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch and the rates that groups began with."""
        return {"last_epoch": self.last_epoch, "base_lrs": list(self.base_lrs)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go to where another schedule was. Raises ``StateError`` for another number of groups."""
        if len(state_dict["base_lrs"]) != len(self.base_lrs):
            raise StateError(
                f"{type(self).__name__}: the state has {len(state_dict['base_lrs'])} groups, and the"
                f" optimizer"
                f" {len(self.base_lrs)}."
            )
        self.last_epoch, self.base_lrs = state_dict["last_epoch"], list(state_dict["base_lrs"])
        self._set()


class StepLR(LRScheduler):
    """Multiply the rate by ``gamma`` every ``step_size`` epochs."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1) -> None:
        if step_size < 1:
            raise ArgumentError(f"StepLR: step_size must be >= 1, got {step_size!r}.")
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer)

    def rate(self, base: float, epoch: int) -> float:
        """Return the learning rate in ``epoch``."""
        return base * self.gamma ** (epoch // self.step_size)


class CosineAnnealingLR(LRScheduler):
    """Lower the rate to ``eta_min`` along half a cosine in ``T_max`` epochs (Loshchilov and Hutter 2017)."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0) -> None:  # noqa: N803 - PyTorch's name
        if T_max < 1:
            raise ArgumentError(f"CosineAnnealingLR: T_max must be >= 1, got {T_max!r}.")
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer)

    def rate(self, base: float, epoch: int) -> float:
        """Return the learning rate in ``epoch``."""
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * epoch / self.T_max)) / 2
