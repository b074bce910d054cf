"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Any, Final, Unpack

from ..errors import ArgumentError
from ..ops.creation.creation import full_like
from ..tensor.tensor import Tensor
from .fused_update import fused_update
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

    def first_state(self, parameter: Tensor, group: Group) -> State:
        """Return what momentum has gathered of nothing yet; with dampening only the first gradient tells.

        It is -0.0: any gradient added to it stays what it is, to the sign of a zero.
        """
        if not group["momentum"] or group["dampening"]:
            return {}
        return {"momentum_buffer": full_like(parameter, -0.0)}

    def update(self, parameter: Tensor, gradient: Tensor, state: State, group: Group) -> Tensor:
        """Return the parameter less ``lr`` times the gradient, or what momentum has gathered of it."""
        momentum: float = group["momentum"]
        lr: float = group["lr"]
        decay: float = group["weight_decay"]
        gathered: Tensor | None = state.get("momentum_buffer")
        if momentum and gathered is not None and not group["dampening"]:
            update = nesterov_step if group["nesterov"] else momentum_step
            parameter, state["momentum_buffer"] = (
                update(parameter, gradient, gathered, momentum, lr)
                if not decay
                else _DECAYED[update](parameter, gradient, gathered, momentum, lr, decay)
            )
            return parameter
        if decay:
            gradient = gradient + parameter * decay
        if momentum:
            if gathered is None:
                gathered = gradient
            else:
                gathered = gathered * momentum + gradient * (1 - group["dampening"])
            state["momentum_buffer"] = gathered
            gradient = gradient + gathered * momentum if group["nesterov"] else gathered
        return parameter - gradient * lr


@fused_update("parameter", "gathered")
def momentum_step(
    parameter: Tensor, gradient: Tensor, gathered: Tensor, momentum: Any, lr: Any
) -> tuple[Tensor, ...]:
    """Return the next parameter, and what momentum has gathered."""
    gathered = gathered * momentum + gradient
    return parameter - gathered * lr, gathered


@fused_update("parameter", "gathered")
def nesterov_step(
    parameter: Tensor, gradient: Tensor, gathered: Tensor, momentum: Any, lr: Any
) -> tuple[Tensor, ...]:
    """Return what ``momentum_step`` does, a step ahead."""
    gathered = gathered * momentum + gradient
    return parameter - (gradient + gathered * momentum) * lr, gathered


@fused_update("parameter", "gathered")
def decayed_momentum_step(
    parameter: Tensor, gradient: Tensor, gathered: Tensor, momentum: Any, lr: Any, decay: Any
) -> tuple[Tensor, ...]:
    """Return what ``momentum_step`` does, with weight decay."""
    gathered = gathered * momentum + (gradient + parameter * decay)
    return parameter - gathered * lr, gathered


@fused_update("parameter", "gathered")
def decayed_nesterov_step(
    parameter: Tensor, gradient: Tensor, gathered: Tensor, momentum: Any, lr: Any, decay: Any
) -> tuple[Tensor, ...]:
    """Return what ``nesterov_step`` does, with weight decay."""
    gradient = gradient + parameter * decay
    gathered = gathered * momentum + gradient
    return parameter - (gradient + gathered * momentum) * lr, gathered


_DECAYED: Final[dict[Any, Any]] = {
    momentum_step: decayed_momentum_step, nesterov_step: decayed_nesterov_step
}  # fmt: skip
