"""Cyclic schedules: warm restarts, one cycle, and many."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ...errors import ArgumentError
from ..optimizer import Optimizer
from .base import LRScheduler


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine from the first rate to ``eta_min``, again and again (Loshchilov and Hutter 2017).

    The first takes ``T_0`` epochs, each of the others ``T_mult`` times as many as the one before. ``step``
    takes an epoch, which may be a fraction.
    """

    def __init__(self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0) -> None:  # noqa: N803 - PyTorch's names
        if not isinstance(T_0, int) or T_0 < 1 or not isinstance(T_mult, int) or T_mult < 1:
            raise ArgumentError(
                f"CosineAnnealingWarmRestarts: T_0 and T_mult must be integers >= 1, got {T_0!r}"
                f" and {T_mult!r}."
            )
        self.T_0 = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        super().__init__(optimizer)

    def step(self, epoch: float | None = None) -> None:
        """Go to the next epoch, or to ``epoch``, and set the rates of all groups."""
        if epoch is not None and epoch < 0:
            raise ArgumentError(f"CosineAnnealingWarmRestarts: an epoch is >= 0, got {epoch!r}.")
        self._call(self._next if epoch is None else partial(self._go, epoch))

    def _next(self) -> None:
        self._go(self._time + 1)

    def _enter(self, epoch: float) -> None:
        self._go(epoch)

    def _go(self, epoch: float) -> None:
        self._time = float(epoch)
        self.last_epoch = math.floor(epoch)
        self._set([self.rate(base, epoch) for base in self.base_lrs])

    def rate(self, base: float, epoch: float) -> float:
        """Return the learning rate in ``epoch``, which may be a fraction."""
        length, since = float(self.T_0), float(epoch)
        while since >= length:
            since -= length
            length *= self.T_mult
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * since / length)) / 2

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch, also with its fraction, the rates that groups began with, and those they have."""
        return {**super().state_dict(), "time": self._time}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load the state of another schedule, as ``LRScheduler`` does."""
        super().load_state_dict(state_dict)
        self._time = state_dict["time"]


class OneCycleLR(LRScheduler):
    """Up to ``max_lr`` and far down again in ``total_steps`` steps (Smith and Topin 2018).

    ``total_steps``, or ``epochs`` times ``steps_per_epoch``; ``pct_start`` of them go up, from ``max_lr /
    div_factor``; the end is the start over ``final_div_factor``. ``anneal_strategy`` is ``"cos"`` or
    ``"linear"``. With ``cycle_momentum`` momentum (or the first beta) goes the other way, between
    ``max_momentum`` and ``base_momentum``. Raises ``ArgumentError``, also for a step after the last.
    """

    def __init__(
        self, optimizer: Optimizer, max_lr: float | list[float], total_steps: int | None = None,
        epochs: int | None = None, steps_per_epoch: int | None = None, pct_start: float = 0.3,
        anneal_strategy: str = "cos", cycle_momentum: bool = True, base_momentum: float = 0.85,
        max_momentum: float = 0.95, div_factor: float = 25.0, final_div_factor: float = 1e4,
        three_phase: bool = False,
    ) -> None:  # fmt: skip
        if total_steps is None:
            if not epochs or not steps_per_epoch:
                raise ArgumentError("OneCycleLR: total_steps, or epochs and steps_per_epoch, are needed.")
            total_steps = epochs * steps_per_epoch
        if total_steps < 1 or not 0 <= pct_start <= 1 or anneal_strategy not in ("cos", "linear"):
            raise ArgumentError(
                f"OneCycleLR: total_steps >= 1, pct_start in [0, 1] and anneal_strategy 'cos' or 'linear' are"
                f" needed, got {total_steps!r}, {pct_start!r} and {anneal_strategy!r}."
            )
        self.total_steps = total_steps
        self.anneal_strategy = anneal_strategy
        self.cycle_momentum = cycle_momentum
        count = len(optimizer.param_groups)
        tops = list(max_lr) if isinstance(max_lr, (list, tuple)) else [max_lr] * count
        if len(tops) != count:
            raise ArgumentError(f"OneCycleLR: {count} rates are needed, got {len(tops)}.")
        for group, top in zip(optimizer.param_groups, tops, strict=True):
            group["max_lr"], group["initial_lr"] = top, top / div_factor
            group["min_lr"] = group["initial_lr"] / final_div_factor
            if cycle_momentum:
                if "betas" not in group and "momentum" not in group:
                    raise ArgumentError(
                        "OneCycleLR: cycle_momentum needs an optimizer with momentum or betas."
                    )
                group["max_momentum"], group["base_momentum"] = max_momentum, base_momentum
        up = pct_start * total_steps
        calm = ("max_momentum", "base_momentum")
        if three_phase:
            self._phases = [
                (up - 1, "initial_lr", "max_lr", *calm),
                (2 * up - 2, "max_lr", "initial_lr", *calm[::-1]),
                (total_steps - 1.0, "initial_lr", "min_lr", calm[0], calm[0]),
            ]
        else:
            self._phases = [
                (up - 1, "initial_lr", "max_lr", *calm), (total_steps - 1.0, "max_lr", "min_lr", *calm[::-1]),
            ]  # fmt: skip
        super().__init__(optimizer)

    def _between(self, start: float, end: float, share: float) -> float:
        if self.anneal_strategy == "linear":
            return start + (end - start) * share
        return end + (start - end) / 2 * (1 + math.cos(math.pi * share))

    def _phase(self, epoch: int) -> tuple[float, tuple[str, str, str, str]]:
        """Return how far the phase of an epoch has come, and the settings at its beginning and end."""
        if epoch > self.total_steps:
            raise ArgumentError(
                f"OneCycleLR: step {epoch} was asked for, and the cycle has {self.total_steps}."
            )
        ends = [end for end, *_ in self._phases]
        place = next((k for k, end in enumerate(ends) if epoch <= end), len(ends) - 1)
        begin = ends[place - 1] if place else 0.0
        share = (epoch - begin) / (ends[place] - begin) if ends[place] != begin else 1.0
        return share, self._phases[place][1:]

    def rates(self, epoch: int) -> list[float]:
        """Return the learning rate of each group in ``epoch``."""
        share, (low, high, _, _) = self._phase(epoch)
        return [self._between(group[low], group[high], share) for group in self.optimizer.param_groups]

    def _set(self, rates: Sequence[float]) -> None:
        super()._set(rates)
        if self.cycle_momentum:
            share, (_, _, first, last) = self._phase(self.last_epoch)
            for group in self.optimizer.param_groups:
                _set_momentum(group, self._between(group[first], group[last], share))


class CyclicLR(LRScheduler):
    """Up from ``base_lr`` to ``max_lr`` and down again, over and over (Smith 2017): step after every batch.

    ``step_size_up`` steps go up and ``step_size_down`` (None: as many) down. ``mode``: ``"triangular"``,
    ``"triangular2"``, where each cycle is half as high as the one before, or ``"exp_range"``, where each step
    is ``gamma`` times as high. ``scale_fn`` stands in for the mode: a function of the cycle, or of the step
    where ``scale_mode`` is ``"iterations"``. With ``cycle_momentum`` momentum (or the first beta) goes the
    other way, between ``max_momentum`` and ``base_momentum``. Raises ``ArgumentError``.

    >>> import tensorbus as tb
    >>> optimizer = tb.optim.SGD([tb.ones((1,)).requires_grad_()], lr=1.0, momentum=0.9)
    >>> schedule = tb.optim.lr_scheduler.CyclicLR(optimizer, 0.0, 1.0, step_size_up=2)
    >>> rates = []
    >>> for _ in range(4):
    ...     schedule.step()
    ...     rates += schedule.get_last_lr()
    >>> rates
    [0.5, 1.0, 0.5, 0.0]
    """

    def __init__(
        self, optimizer: Optimizer, base_lr: float | list[float], max_lr: float | list[float],
        step_size_up: int = 2000, step_size_down: int | None = None, mode: str = "triangular",
        gamma: float = 1.0, scale_fn: Callable[[int], float] | None = None, scale_mode: str = "cycle",
        cycle_momentum: bool = True, base_momentum: float = 0.8, max_momentum: float = 0.9,
    ) -> None:  # fmt: skip
        known = ("triangular", "triangular2", "exp_range")
        if scale_fn is None and mode not in known:
            raise ArgumentError(f"CyclicLR: mode is one of {', '.join(known)}, got {mode!r}.")
        if scale_mode not in ("cycle", "iterations"):
            raise ArgumentError(f"CyclicLR: scale_mode is 'cycle' or 'iterations', got {scale_mode!r}.")
        down = step_size_up if step_size_down is None else step_size_down
        if step_size_up < 1 or down < 1:
            raise ArgumentError(f"CyclicLR: steps up and down are >= 1, got {step_size_up!r} and {down!r}.")
        self.step_size_up, self.step_size_down = step_size_up, down
        self.mode, self.gamma = mode, gamma
        self.scale_fn, self.scale_mode = scale_fn, scale_mode
        self.cycle_momentum = cycle_momentum
        self.base_momentum, self.max_momentum = base_momentum, max_momentum
        count = len(optimizer.param_groups)
        lows, self.max_lrs = (
            list(x) if isinstance(x, (list, tuple)) else [x] * count for x in (base_lr, max_lr)
        )
        if len(lows) != count or len(self.max_lrs) != count:
            raise ArgumentError(
                f"CyclicLR: {count} rates are needed, got {len(lows)} and {len(self.max_lrs)}."
            )
        for group, low in zip(optimizer.param_groups, lows, strict=True):
            group["initial_lr"] = low
            if cycle_momentum and "betas" not in group and "momentum" not in group:
                raise ArgumentError("CyclicLR: cycle_momentum needs an optimizer with momentum or betas.")
        super().__init__(optimizer)

    def _share(self, step: int) -> float:
        """Return how far up a rate is, from 0 to 1, as the cycle or the step has it scaled."""
        total = self.step_size_up + self.step_size_down
        cycle, at = 1 + step // total, step % total
        up = at / self.step_size_up
        height = up if at <= self.step_size_up else (total - at) / self.step_size_down
        if self.scale_fn is not None:
            return height * self.scale_fn(cycle if self.scale_mode == "cycle" else step)
        scales = {"triangular2": 0.5 ** (cycle - 1), "exp_range": self.gamma**step}
        return height * scales.get(self.mode, 1.0)

    def rates(self, epoch: int) -> list[float]:
        """Return the learning rate of each group in ``epoch``."""
        share = self._share(epoch)
        return [low + (high - low) * share for low, high in zip(self.base_lrs, self.max_lrs, strict=True)]

    def _set(self, rates: Sequence[float]) -> None:
        super()._set(rates)
        if self.cycle_momentum:
            share = self._share(self.last_epoch)
            for group in self.optimizer.param_groups:
                _set_momentum(group, self.max_momentum - (self.max_momentum - self.base_momentum) * share)


def _set_momentum(group: dict[str, object], momentum: float) -> None:
    betas = group.get("betas")
    if isinstance(betas, tuple):
        group["betas"] = (momentum, *betas[1:])
    else:
        group["momentum"] = momentum
