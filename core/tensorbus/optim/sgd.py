"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Unpack

from ..errors import ArgumentError
from ..tensor.tensor import Tensor
from .optimizer import Choices, Group, Optimizer, Parameters, State, at_least


class SGD(Optimizer):
    """Gradient descent, with momentum (Polyak 1964; Sutskever, Martens, Dahl, Hinton 2013) if wanted.

    Raises ``ArgumentError`` for settings below 0, or ``nesterov`` without momentum or with dampening.

    >>> import tensorbus as tb
    >>> x = tb.asarray([2.0]).requires_grad_()
    >>> optimizer = tb.optim.SGD([x], lr=0.25)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> x.tolist()
    [1.0]
    """

    def __init__(
        self, params: Parameters, lr: float = 1e-3, momentum: float = 0.0, dampening: float = 0.0,
        weight_decay: float = 0.0, nesterov: bool = False, *, maximize: bool = False,
        **choices: Unpack[Choices],
    ) -> None:  # fmt: skip
        super().__init__(
            params,
            {
                "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay,
                "nesterov": nesterov, "maximize": maximize,
            },
            **choices,
        )  # fmt: skip

    def check(self, group: Group) -> None:
        """Raise ``ArgumentError`` for settings that are out of range."""
        at_least("SGD", 0, **{k: group[k] for k in ("lr", "momentum", "weight_decay")})
        if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"] != 0):
            raise ArgumentError(
                f"SGD: nesterov needs momentum > 0 and no dampening, got momentum {group['momentum']!r} and"
                f" dampening {group['dampening']!r}."
            )

    def update(self, parameter: Tensor, gradient: Tensor, state: State, group: Group) -> Tensor:
        """Return the parameter less ``lr`` times the gradient, or what momentum has gathered of it."""
        momentum: float = group["momentum"]
        lr: float = group["lr"]
        if group["weight_decay"]:
            gradient = gradient + parameter * group["weight_decay"]
        if momentum:
            gathered: Tensor | None = state.get("momentum_buffer")
            if gathered is None:
                gathered = gradient
            else:
                fresh = gradient * (1 - group["dampening"]) if group["dampening"] else gradient
                gathered = gathered * momentum + fresh
            state["momentum_buffer"] = gathered
            gradient = gradient + gathered * momentum if group["nesterov"] else gathered
        return parameter - gradient * lr
