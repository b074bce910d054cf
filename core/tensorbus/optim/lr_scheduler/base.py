"""Learning-rate schedules: call ``step()`` once an epoch, after the optimizer's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ...errors import ArgumentError, StateError
from ...ops.argument_kinds import shown
from ...ops.call_errors import ArgumentTypeError
from ...tracing import host_prologue
from ..optimizer import SCHEDULED, Group, Optimizer


class LRScheduler:
    """Base of schedules. A subclass writes ``rate(base, epoch)``: the rate in an epoch, from 0 on.

    One that goes on from whatever the rates are, so that others may change them too, writes ``next_rates``
    besides: ``step`` asks it, ``go_to`` asks ``rate``.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        if not hasattr(optimizer, "param_groups"):
            raise ArgumentTypeError(
                f"{type(self).__name__}: 'optimizer' must be an optimizer, got {shown(optimizer)}."
            )
        self.optimizer = optimizer
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        self.base_lrs: list[float] = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = 0
        self._enter(0)

    def rate(self, base: float, epoch: int) -> float:
        """Return the learning rate in ``epoch`` of a group that began with ``base``."""
        raise NotImplementedError(f"{type(self).__name__} has no rate(); write how the rate changes.")

    def step(self) -> None:
        """Go to the next epoch and set the rates of all groups."""
        self._call(self._next)

    def go_to(self, epoch: int) -> None:
        """Go to ``epoch`` and set the rates of all groups."""
        self._call(partial(self._go, epoch))

    def _call(self, function: Callable[[], None]) -> None:
        host_prologue.call_each_run(self, function, self._touched(), self._parts())

    def _next(self) -> None:
        self._enter(self.last_epoch + 1)

    def _enter(self, epoch: int) -> None:
        """Begin an epoch: the one after the last, or the first."""
        self.last_epoch = epoch
        if self._goes_on():
            self._set(self.next_rates([group["lr"] for group in self.optimizer.param_groups], epoch))
        else:
            self._set(self.rates(epoch))

    def _go(self, epoch: int) -> None:
        self.last_epoch = epoch
        self._set(self.rates(epoch))

    def _goes_on(self) -> bool:
        """Return whether the class that says what rates are says how they go on."""
        methods = {"rate", "rates", "next_rates"}
        return "next_rates" in next(vars(c) for c in type(self).__mro__ if methods & vars(c).keys())

    def _touched(self) -> list[tuple[Group, str]]:
        """Return what a schedule may change: the rates of groups, and their momentum."""
        return [(group, key) for group in self.optimizer.param_groups for key in SCHEDULED if key in group]

    def _parts(self) -> list[LRScheduler]:
        """Return the schedules that this one moves."""
        return []

    def rates(self, epoch: int) -> list[float]:
        """Return the learning rate of each group in ``epoch``."""
        return [self.rate(base, epoch) for base in self.base_lrs]

    def next_rates(self, present: list[float], epoch: int) -> list[float]:
        """Return the learning rate of each group in ``epoch`` from those before it; 0 is the first."""
        return self.rates(epoch)

    def _set(self, rates: Sequence[float]) -> None:
        set_rates(self.optimizer, rates)

    def get_last_lr(self) -> list[float]:
        """Return the learning rate of each group."""
        host_prologue.note_observed("the learning rate")
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch, the rates that groups began with, and those that they have."""
        rates = [group["lr"] for group in self.optimizer.param_groups]
        return {"last_epoch": self.last_epoch, "base_lrs": list(self.base_lrs), "last_lr": rates}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load the state of another schedule, with the rates that its optimizer had.

        Raises ``StateError`` for another number of groups, or a state without rates.
        """
        rates = last_rates(type(self).__name__, self.optimizer, state_dict)
        self.last_epoch, self.base_lrs = state_dict["last_epoch"], list(state_dict["base_lrs"])
        self._set(rates)


def set_rates(optimizer: Optimizer, rates: Sequence[float]) -> None:
    """Give each group its learning rate."""
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate


def last_rates(name: str, optimizer: Optimizer, state_dict: Mapping[str, Any]) -> list[float]:
    """Return the rates that a saved schedule had. Raises ``StateError`` unless each group has one."""
    if "last_lr" not in state_dict:
        raise StateError(f"{name}: the state has no 'last_lr', the rates that the schedule had.")
    rates = list(state_dict["last_lr"])
    if len(rates) != len(optimizer.param_groups):
        raise StateError(
            f"{name}: the state has {len(rates)} groups, and the optimizer {len(optimizer.param_groups)}."
        )
    return rates


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

    def next_rates(self, present: list[float], epoch: int) -> list[float]:
        """Return the present rates, ``gamma`` times as high every ``step_size`` epochs."""
        falls = epoch > 0 and epoch % self.step_size == 0
        return [rate * self.gamma for rate in present] if falls else present


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

    def next_rates(self, present: list[float], epoch: int) -> list[float]:
        """Return the present rates, as much nearer to ``eta_min`` as the cosine is."""
        if epoch == 0:
            return present
        least, turn = self.eta_min, math.pi / self.T_max
        if (epoch - 1 - self.T_max) % (2 * self.T_max) == 0:  # from the lowest point no factor leads up again
            rise = (1 - math.cos(turn)) / 2
            return [rate + (base - least) * rise for rate, base in zip(present, self.base_lrs, strict=True)]
        factor = (1 + math.cos(turn * epoch)) / (1 + math.cos(turn * (epoch - 1)))
        return [factor * (rate - least) + least for rate in present]
