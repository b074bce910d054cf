"""RMSprop: steps over the root of an average of squares."""

from __future__ import annotations

from typing import Unpack

from ..ops.creation.creation import zeros_like
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
