"""Adagrad: steps over the root of the sum of all squares."""

from __future__ import annotations

from typing import Unpack

from ..ops.creation.creation import full_like
from ..ops.elementwise.transcendental import sqrt
from ..tensor.tensor import Tensor
from .optimizer import Choices, Group, Optimizer, Parameters, State, at_least


class Adagrad(Optimizer):
    """Divide by the root of the sum of all squared gradients (Duchi, Hazan, Singer 2011)."""

    def __init__(
        self, params: Parameters, lr: float = 1e-2, lr_decay: float = 0.0, weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0, eps: float = 1e-10, *, maximize: bool = False,
        **choices: Unpack[Choices],
    ) -> None:  # fmt: skip
        super().__init__(
            params,
            {
                "lr": lr, "lr_decay": lr_decay, "weight_decay": weight_decay,
                "initial_accumulator_value": initial_accumulator_value, "eps": eps, "maximize": maximize,
            },
            **choices,
        )  # fmt: skip

    def check(self, group: Group) -> None:
        """Raise ``ArgumentError`` for settings that are out of range."""
        names = ("lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps")
        at_least("Adagrad", 0, **{k: group[k] for k in names})

    def first_state(self, parameter: Tensor, group: Group) -> State:
        """Return a sum of nothing yet."""
        return {"step": 0, "sum": full_like(parameter, group["initial_accumulator_value"])}

    def update(self, parameter: Tensor, gradient: Tensor, state: State, group: Group) -> Tensor:
        """Return the parameter less the gradient over the root of the sum of squares."""
        if not state:
            state.update(self.first_state(parameter, group))
        state["step"] = step = state["step"] + 1
        if group["weight_decay"]:
            gradient = gradient + parameter * group["weight_decay"]
        total = state["sum"] = state["sum"] + gradient * gradient
        rate = group["lr"] / (1 + (step - 1) * group["lr_decay"])
        moved: Tensor = parameter - gradient / (sqrt(total) + group["eps"]) * rate
        return moved
