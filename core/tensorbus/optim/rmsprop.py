"""RMSprop, Adagrad and Adadelta: steps over the root of accumulated squares."""

from __future__ import annotations

from typing import Unpack

from ..ops.creation.creation import full_like, zeros_like
from ..ops.elementwise.transcendental import sqrt
from ..tensor.tensor import Tensor
from .optimizer import Choices, Group, Optimizer, Parameters, State, at_least


class RMSprop(Optimizer):
    """Divide by the root of an average of squared gradients (Hinton's lecture 6e, 2012; Graves 2013).

    ``centered`` subtracts the square of their average first. Raises ``ArgumentError`` for settings out of
    range.

    >>> import tensorbus as tb
    >>> x = tb.asarray([2.0]).requires_grad_()
    >>> optimizer = tb.optim.RMSprop([x], lr=0.1, alpha=0.0)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> round(x.item(), 4)
    1.9
    """

    def __init__(
        self, params: Parameters, lr: float = 1e-2, alpha: float = 0.99, eps: float = 1e-8,
        weight_decay: float = 0.0, momentum: float = 0.0, centered: bool = False, *, maximize: bool = False,
        **choices: Unpack[Choices],
    ) -> None:  # fmt: skip
        super().__init__(
            params,
            {
                "lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay, "momentum": momentum,
                "centered": centered, "maximize": maximize,
            },
            **choices,
        )  # fmt: skip

    def check(self, group: Group) -> None:
        """Raise ``ArgumentError`` for settings that are out of range."""
        names = ("lr", "alpha", "eps", "weight_decay", "momentum")
        at_least("RMSprop", 0, **{k: group[k] for k in names})

    def first_state(self, parameter: Tensor, group: Group) -> State:
        """Return averages of nothing yet."""
        state = {"step": 0, "square_avg": zeros_like(parameter)}
        if group["momentum"] > 0:
            state["momentum_buffer"] = zeros_like(parameter)
        if group["centered"]:
            state["grad_avg"] = zeros_like(parameter)
        return state

    def update(self, parameter: Tensor, gradient: Tensor, state: State, group: Group) -> Tensor:
        """Return the parameter less the gradient over the root of its averaged square."""
        alpha: float = group["alpha"]
        if not state:
            state.update(self.first_state(parameter, group))
        state["step"] = state["step"] + 1
        if group["weight_decay"]:
            gradient = gradient + parameter * group["weight_decay"]
        square = state["square_avg"] * alpha + gradient * gradient * (1 - alpha)
        state["square_avg"] = square
        if group["centered"]:
            average = state["grad_avg"] = state["grad_avg"] * alpha + gradient * (1 - alpha)
            square = square - average * average
        change = gradient / (sqrt(square) + group["eps"])
        if group["momentum"] > 0:
            change = state["momentum_buffer"] = state["momentum_buffer"] * group["momentum"] + change
        moved: Tensor = parameter - change * group["lr"]
        return moved


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
