"""Schedules in sequence or in a chain, and one that follows the loss (reduce on plateau)."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import ArgumentError, StateError
from ..optimizer import Optimizer
from .base import LRScheduler, last_rates, set_rates


class SequentialLR(LRScheduler):
    """Runs schedules in turn: each up to its milestone, then the next, which begins at its epoch 0.

    >>> import tensorbus as tb
    >>> optimizer = tb.optim.SGD([tb.ones((1,)).requires_grad_()], lr=1.0)
    >>> warm = tb.optim.lr_scheduler.LinearLR(optimizer, 0.5, total_iters=2)
    >>> cool = tb.optim.lr_scheduler.ExponentialLR(optimizer, 0.1)
    >>> both = tb.optim.lr_scheduler.SequentialLR(optimizer, [warm, cool], [2])
    >>> both.get_last_lr()
    [0.5]
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int]
    ) -> None:
        if len(schedulers) != len(milestones) + 1:
            raise ArgumentError(
                f"SequentialLR: one milestone less than schedulers is needed, got {len(milestones)} and"
                f" {len(schedulers)}."
            )
        if any(s.optimizer is not optimizer for s in schedulers):
            raise ArgumentError("SequentialLR: all schedulers must belong to the optimizer given.")
        self.schedulers = list(schedulers)
        self.milestones = list(milestones)
        super().__init__(optimizer)

    def _parts(self) -> list[LRScheduler]:
        return _within(self.schedulers)

    def _at(self, epoch: int) -> tuple[LRScheduler, int]:
        """Return the schedule that an epoch belongs to, and which epoch it is there."""
        place = bisect_right(self.milestones, epoch)
        return self.schedulers[place], epoch - (self.milestones[place - 1] if place else 0)

    def _enter(self, epoch: int) -> None:
        self.last_epoch = epoch
        schedule, there = self._at(epoch)
        if there == 0:
            schedule.go_to(0)
        else:
            schedule.step()

    def _go(self, epoch: int) -> None:
        self.last_epoch = epoch
        schedule, there = self._at(epoch)
        schedule.go_to(there)

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch, the rates, and the states of the schedules."""
        return {**super().state_dict(), "schedulers": _states(self.schedulers)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load the state of another schedule."""
        _load(self.schedulers, state_dict)
        super().load_state_dict(state_dict)


class ChainedScheduler(LRScheduler):
    """Several schedules that step together, in turn: each goes on from the rates that the last one left.

    >>> import tensorbus as tb
    >>> optimizer = tb.optim.SGD([tb.ones((1,)).requires_grad_()], lr=1.0)
    >>> S = tb.optim.lr_scheduler
    >>> both = S.ChainedScheduler([S.ExponentialLR(optimizer, 0.5), S.StepLR(optimizer, 2, 0.1)])
    >>> both.step()
    >>> both.step()
    >>> both.get_last_lr()
    [0.025]
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        if not schedulers:
            raise ArgumentError("ChainedScheduler: at least one scheduler is needed, got none.")
        self.schedulers: list[LRScheduler] = []  # all have set their first rates already
        super().__init__(optimizer or schedulers[0].optimizer)
        self.schedulers = list(schedulers)

    def _parts(self) -> list[LRScheduler]:
        return _within(self.schedulers)

    def _enter(self, epoch: int) -> None:
        self.last_epoch = epoch
        for schedule in self.schedulers:
            if epoch == 0:
                schedule._enter(0)
            else:
                schedule.step()

    def _go(self, epoch: int) -> None:
        """Begin again and step: some rates are known only from those before."""
        set_rates(self.optimizer, self.base_lrs)
        for passed in range(epoch + 1):
            self._enter(passed)

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch, the rates, and the states of the schedules."""
        return {**super().state_dict(), "schedulers": _states(self.schedulers)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load the state of another schedule."""
        _load(self.schedulers, state_dict)
        super().load_state_dict(state_dict)


def _within(schedulers: Sequence[LRScheduler]) -> list[LRScheduler]:
    """Return schedules and their parts."""
    return [part for schedule in schedulers for part in (schedule, *schedule._parts())]


def _states(schedulers: Sequence[LRScheduler]) -> list[dict[str, Any]]:
    return [schedule.state_dict() for schedule in schedulers]


def _load(schedulers: Sequence[LRScheduler], state_dict: Mapping[str, Any]) -> None:
    """Load the states of the parts. Raises ``StateError`` for another number of them."""
    states = state_dict["schedulers"]
    if len(states) != len(schedulers):
        raise StateError(
            f"load_state_dict: the state is of {len(states)} schedules, and there are {len(schedulers)}."
        )
    for schedule, state in zip(schedulers, states, strict=True):
        schedule.load_state_dict(state)


class ReduceLROnPlateau:
    """Multiply the rate by ``factor`` when a quantity has not become better for ``patience`` epochs.

    ``mode`` says whether less (``"min"``) or more (``"max"``) is better, ``threshold`` by how much, as a
    share (``threshold_mode="rel"``) or absolutely (``"abs"``). After a change ``cooldown`` epochs do not
    count. No rate goes below ``min_lr``, nor changes by less than ``eps``. Raises ``ArgumentError``.
    """

    def __init__(
        self, optimizer: Optimizer, mode: str = "min", factor: float = 0.1, patience: int = 10,
        threshold: float = 1e-4, threshold_mode: str = "rel", cooldown: int = 0,
        min_lr: float | Sequence[float] = 0.0, eps: float = 1e-8,
    ) -> None:  # fmt: skip
        if factor >= 1:
            raise ArgumentError(f"ReduceLROnPlateau: factor must be < 1, got {factor!r}.")
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise ArgumentError(
                f"ReduceLROnPlateau: mode must be 'min' or 'max' and threshold_mode 'rel' or 'abs', got"
                f" {mode!r} and {threshold_mode!r}."
            )
        count = len(optimizer.param_groups)
        self.min_lrs = list(min_lr) if isinstance(min_lr, (list, tuple)) else [min_lr] * count
        if len(self.min_lrs) != count:
            raise ArgumentError(
                f"ReduceLROnPlateau: {count} least rates are needed, got {len(self.min_lrs)}."
            )
        self.optimizer = optimizer
        self.mode = mode
        self.factor = factor
        self.patience = patience
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.cooldown = cooldown
        self.eps = eps
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = self.cooldown_counter = self.last_epoch = 0

    def is_better(self, value: float) -> bool:
        """Return whether ``value`` is better than the best so far, by the threshold."""
        sign = -1 if self.mode == "min" else 1
        if self.threshold_mode == "rel":
            limit = self.best * (1 + sign * self.threshold)
        else:
            limit = self.best + sign * self.threshold
        return value < limit if self.mode == "min" else value > limit

    def step(self, metrics: Any) -> None:
        """Record an epoch's quantity, a number or a one-element tensor."""
        value = float(metrics)
        self.last_epoch += 1
        if self.is_better(value):
            self.best, self.num_bad_epochs = value, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            for group, least in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
                lower = max(group["lr"] * self.factor, least)
                if group["lr"] - lower > self.eps:
                    group["lr"] = lower
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0

    def get_last_lr(self) -> list[float]:
        """Return the learning rate of each group."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Return everything but the optimizer, and the rates of its groups."""
        own = {k: v for k, v in vars(self).items() if k != "optimizer"}
        return {**own, "last_lr": [group["lr"] for group in self.optimizer.param_groups]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load the state of another schedule and the rates of its optimizer. Raises ``StateError``."""
        rates = last_rates(type(self).__name__, self.optimizer, state_dict)
        vars(self).update({k: v for k, v in state_dict.items() if k not in ("optimizer", "last_lr")})
        set_rates(self.optimizer, rates)
