"""``GradScaler``: multiplies losses, so that gradients in float16 do not vanish, and divides gradients again.

Micikevicius et al.: "Mixed precision training", 2018. The factor is a number on the host, the same on all
ranks: they decide by gradients that they have in common.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..autograd.engine import no_grad
from ..dtypes import definition as dt
from ..errors import ArgumentError, DtypeError, StateError
from ..tensor.tensor import Tensor
from .rank_agreement import current

_NUMBERS = ("scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker")
"""The entries of a state dict."""


class GradScaler:
    """Scales losses by a factor that follows what gradients can hold.

    A step is left out where a gradient is infinite or NaN, and the factor multiplied by ``backoff_factor``;
    after ``growth_interval`` steps in a row that were done it is multiplied by ``growth_factor``. Ranks that
    share parameters of an optimizer, as copies of ``replicate`` or in parts, decide alike by all that it has,
    also by those of one rank alone: all of them make the same calls, and each has shared ones in it.
    ``device`` is what PyTorch's has, and chooses nothing here. With ``enabled=False`` nothing is scaled.

    bfloat16 has the range of float32 and needs none of this. Raises ``ArgumentError`` for numbers that do not
    let the factor grow and shrink.

    >>> import tensorbus as tb
    >>> w = tb.nn.Parameter(tb.ones(2))
    >>> optimizer, scaler = tb.optim.SGD([w], lr=0.5), tb.amp.GradScaler(init_scale=1024.0)
    >>> scaler.scale((w * w).sum()).backward()
    >>> w.grad.tolist()
    [2048.0, 2048.0]
    >>> scaler.step(optimizer)
    >>> scaler.update()
    >>> w.tolist(), scaler.get_scale()
    ([0.0, 0.0], 1024.0)
    """

    def __init__(
        self, device: object = None, *, init_scale: float = 65536.0, growth_factor: float = 2.0,
        backoff_factor: float = 0.5, growth_interval: int = 2000, enabled: bool = True,
    ) -> None:  # fmt: skip
        if not (init_scale > 0 and growth_factor > 1 > backoff_factor > 0 and growth_interval >= 1):
            raise ArgumentError(
                f"GradScaler: init_scale must be > 0, growth_factor > 1, backoff_factor between 0 and 1,"
                f" growth_interval >= 1; got {init_scale!r}, {growth_factor!r}, {backoff_factor!r},"
                f" {growth_interval!r}."
            )
        self._enabled = enabled
        self._scale, self._growth_tracker = float(init_scale), 0
        self._growth_factor, self._backoff_factor = growth_factor, backoff_factor
        self._growth_interval = growth_interval
        self._not_finite: dict[int, bool] = {}
        """Of optimizers whose gradients are unscaled since the last ``update``: whether one is not finite."""
        self._stepped: set[int] = set()
        self._is_shared: set[bool] = set()
        """Whether ranks share parameters, of optimizers since the last ``update``."""

    def scale(self, outputs: Any) -> Any:
        """Return a loss multiplied by the factor, or those in tuples, lists and mappings."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs * self._scale
        if isinstance(outputs, Mapping):
            return {name: self.scale(part) for name, part in outputs.items()}
        if isinstance(outputs, tuple | list):
            parts = [self.scale(part) for part in outputs]
            return type(outputs)(*parts) if hasattr(outputs, "_fields") else type(outputs)(parts)
        return outputs

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of the optimizer's parameters, to clip them, say; ``step`` does it otherwise.

        Raises ``StateError`` where that was done since the last ``update``, ``DtypeError`` for gradients in
        float16, in which the quotients would vanish.
        """
        if not self._enabled:
            return
        if id(optimizer) in self._not_finite:
            raise StateError(
                "GradScaler.unscale_: this optimizer's gradients are unscaled already; call update() after"
                " step()."
            )
        tensors = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        for p in tensors:
            if p.grad.dtype == dt.float16:
                raise DtypeError(
                    f"GradScaler.unscale_: a gradient of shape {p.shape} is float16, in which what was scaled"
                    f" vanishes again. Keep parameters in float32, and compute by autocast or"
                    f" MixedPrecisionPolicy."
                )
        ranks, sums = current(), dict[Any, Tensor]()
        with no_grad():
            for p in tensors:
                p.grad = p.grad * (1.0 / self._scale)
                mine = ranks.part_of(p.grad)
                nothing = (mine * 0).sum()  # NaN where it is not finite
                key = mine.device, mine.dtype
                sums[key] = nothing if key not in sums else sums[key] + nothing
            here = not all(math.isfinite(abs(x.item())) for x in sums.values())
        groups = ranks.groups_of([p for group in optimizer.param_groups for p in group["params"]])
        self._not_finite[id(optimizer)] = ranks.any_of(here, groups)
        self._is_shared.add(bool(groups))

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Let the optimizer step, and return what that returns, if all its gradients are finite.

        Raises ``StateError`` where it has since the last ``update``.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if id(optimizer) in self._stepped:
            raise StateError("GradScaler.step: this optimizer has done a step already; call update() first.")
        if id(optimizer) not in self._not_finite:
            self.unscale_(optimizer)
        self._stepped.add(id(optimizer))
        return None if self._not_finite[id(optimizer)] else optimizer.step(*args, **kwargs)

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Let the factor grow or shrink, or be ``new_scale``; at the end of each step.

        Raises ``StateError`` where no optimizer's gradients were looked at, and where ranks share parameters
        of one optimizer and none of another, which would let them come to different factors.
        """
        if not self._enabled:
            return
        if new_scale is None and not self._not_finite:
            raise StateError("GradScaler.update: no step() or unscale_() since the last update().")
        if new_scale is None and len(self._is_shared) > 1:
            raise StateError(
                "GradScaler.update: ranks share parameters of one optimizer, and another has only this"
                " rank's own: ranks would come to different factors. Put them into one optimizer, or use a"
                " scaler for each."
            )
        if new_scale is not None:
            self._scale = float(new_scale)
        elif any(self._not_finite.values()):
            self._scale, self._growth_tracker = self._scale * self._backoff_factor, 0
        else:
            self._growth_tracker += 1
            if self._growth_tracker == self._growth_interval:
                grown = self._scale * self._growth_factor
                self._scale, self._growth_tracker = grown if math.isfinite(grown) else self._scale, 0
        self._not_finite.clear()
        self._stepped.clear()
        self._is_shared.clear()

    def get_scale(self) -> float:
        """Return the factor."""
        return self._scale if self._enabled else 1.0

    def get_growth_factor(self) -> float:
        """Return what the factor is multiplied by after steps in a row."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Multiply the factor by ``new_factor`` after steps in a row."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """Return what the factor is multiplied by after a step that was left out."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Multiply the factor by ``new_factor`` after a step that was left out."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """Return after how many steps in a row the factor grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Let the factor grow after ``new_interval`` steps in a row."""
        self._growth_interval = new_interval

    def is_enabled(self) -> bool:
        """Return whether losses are scaled."""
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """Return the factor and how it changes, as PyTorch's has them; {} where nothing is scaled."""
        return {name: getattr(self, f"_{name.strip('_')}") for name in _NUMBERS} if self._enabled else {}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over the factor and how it changes. Raises ``StateError`` where an entry is missing."""
        if not self._enabled:
            return
        missing = [name for name in _NUMBERS if name not in state_dict]
        if missing:
            raise StateError(f"GradScaler.load_state_dict: the state has no {', '.join(map(repr, missing))}.")
        for name in _NUMBERS:
            setattr(self, f"_{name.strip('_')}", state_dict[name])
