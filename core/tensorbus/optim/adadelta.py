"""Adadelta: steps as long as those before, without a rate of its own."""

from __future__ import annotations

from typing import Unpack

from ..ops.creation.creation import zeros_like
from ..ops.elementwise.transcendental import sqrt
from ..tensor.tensor import Tensor
from .optimizer import Choices, Group, Optimizer, Parameters, State, at_least


class Adadelta(Optimizer):
    """Make steps as long as those before, by averages of both squares (Zeiler 2012)."""

    def __init__(
        self, params: Parameters, lr: float = 1.0, rho: float = 0.9, eps: float = 1e-6,
        weight_decay: float = 0.0, *, maximize: bool = False,
        **choices: Unpack[Choices],
    ) -> None:  # fmt: skip
        defaults = {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, defaults, **choices)

    def check(self, group: Group) -> None:
        """Raise ``ArgumentError`` for settings that are out of range."""
        at_least("Adadelta", 0, **{k: group[k] for k in ("lr", "rho", "eps", "weight_decay")})
        at_least("Adadelta", 0, one_minus_rho=1 - group["rho"])

    def first_state(self, parameter: Tensor, group: Group) -> State:
        """Return averages of nothing yet."""
        return {"step": 0, **{name: zeros_like(parameter) for name in ("square_avg", "acc_delta")}}

    def update(self, parameter: Tensor, gradient: Tensor, state: State, group: Group) -> Tensor:
        """Return the parameter less the gradient, scaled by the ratio of the two averages."""
        rho, eps = group["rho"], group["eps"]
        if not state:
            state.update(self.first_state(parameter, group))
        state["step"] = state["step"] + 1
        if group["weight_decay"]:
            gradient = gradient + parameter * group["weight_decay"]
        square = state["square_avg"] = state["square_avg"] * rho + gradient * gradient * (1 - rho)
        change = sqrt(state["acc_delta"] + eps) / sqrt(square + eps) * gradient
        state["acc_delta"] = state["acc_delta"] * rho + change * change * (1 - rho)
        moved: Tensor = parameter - change * group["lr"]
        return moved
