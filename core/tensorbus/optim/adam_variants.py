"""Adamax, NAdam and RAdam: Adam by the infinity norm, with Nesterov momentum, and with a rectified start."""

from __future__ import annotations

from typing import Any, Unpack

from ..errors import ArgumentError
from ..ops.creation.creation import zeros_like
from ..ops.elementwise.arithmetic import abs, maximum
from ..ops.elementwise.transcendental import sqrt
from ..tensor.tensor import Tensor
from .adam import moments
from .fused_update import fused_update
from .optimizer import Choices, Group, Optimizer, Parameters, State, at_least


def check_betas(name: str, group: Group, *settings: str) -> None:
    """Raise ``ArgumentError`` for settings below 0, or betas that are not two numbers in [0, 1)."""
    at_least(name, 0, **{k: group[k] for k in ("lr", "eps", "weight_decay", *settings)})
    betas = group["betas"]
    if len(betas) != 2 or not all(isinstance(b, (int, float)) and 0 <= b < 1 for b in betas):
        raise ArgumentError(f"{name}: betas are two numbers in [0, 1), got {betas!r}.")


def _decayed(parameter: Tensor, gradient: Tensor, group: Group) -> tuple[Tensor, Tensor]:
    """Return both with the decay of weights: of the parameter where it is decoupled, else of the gradient."""
    decay = group["weight_decay"]
    if not decay:
        return parameter, gradient
    if group["decoupled_weight_decay"]:
        return parameter * (1 - group["lr"] * decay), gradient
    return parameter, gradient + parameter * decay


class Adamax(Optimizer):
    """Adam by the infinity norm (Kingma and Ba 2015, section 7)."""

    def __init__(
        self, params: Parameters, lr: float = 2e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0.0, *, maximize: bool = False,
        **choices: Unpack[Choices],
    ) -> None:  # fmt: skip
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, defaults, **choices)

    def check(self, group: Group) -> None:
        """Raise ``ArgumentError`` for settings that are out of range."""
        check_betas("Adamax", group)

    def first_state(self, parameter: Tensor, group: Group) -> State:
        """Return averages of nothing yet."""
        return {"step": 0, **{name: zeros_like(parameter) for name in ("exp_avg", "exp_inf")}}

    def update(self, parameter: Tensor, gradient: Tensor, state: State, group: Group) -> Tensor:
        """Return the parameter less the averaged gradient over the largest one, which fades."""
        beta1, beta2 = group["betas"]
        if not state:
            state.update(self.first_state(parameter, group))
        step = state["step"] = state["step"] + 1
        if group["weight_decay"]:
            gradient = gradient + parameter * group["weight_decay"]
        rate = group["lr"] / (1 - beta1**step)
        moved, state["exp_avg"], state["exp_inf"] = adamax(
            parameter, gradient, state["exp_avg"], state["exp_inf"], beta1, 1 - beta1, beta2, group["eps"],
            rate,
        )  # fmt: skip
        return moved


@fused_update("parameter", "average", "top")
def adamax(
    parameter: Tensor, gradient: Tensor, average: Tensor, top: Tensor, beta1: Any, rest1: Any, beta2: Any,
    eps: Any, rate: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return the next parameter, average and largest gradient; ``rest1`` is ``1 - beta1``."""
    average = average * beta1 + gradient * rest1
    top = maximum(top * beta2, abs(gradient) + eps)
    return parameter - average / top * rate, average, top


class NAdam(Optimizer):
    """Adam with Nesterov momentum (Dozat 2016)."""

    def __init__(
        self, params: Parameters, lr: float = 2e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0.0, momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False, *, maximize: bool = False,
        **choices: Unpack[Choices],
    ) -> None:  # fmt: skip
        super().__init__(
            params,
            {
                "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
                "momentum_decay": momentum_decay, "decoupled_weight_decay": decoupled_weight_decay,
                "maximize": maximize,
            },
            **choices,
        )  # fmt: skip

    def check(self, group: Group) -> None:
        """Raise ``ArgumentError`` for settings that are out of range."""
        check_betas("NAdam", group, "momentum_decay")

    def first_state(self, parameter: Tensor, group: Group) -> State:
        """Return averages of nothing yet."""
        averages = {name: zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
        return {"step": 0, "mu_product": 1.0, **averages}

    def update(self, parameter: Tensor, gradient: Tensor, state: State, group: Group) -> Tensor:
        """Return the parameter less a mean of gradient and average, over the root of the squares."""
        (beta1, beta2), lr = group["betas"], group["lr"]
        if not state:
            state.update(self.first_state(parameter, group))
        step = state["step"] = state["step"] + 1
        parameter, gradient = _decayed(parameter, gradient, group)
        now, ahead = (beta1 * (1 - 0.5 * 0.96 ** (t * group["momentum_decay"])) for t in (step, step + 1))
        product = state["mu_product"] = state["mu_product"] * now
        moved, state["exp_avg"], state["exp_avg_sq"] = nadam(
            parameter, gradient, state["exp_avg"], state["exp_avg_sq"], beta1, 1 - beta1, beta2, 1 - beta2,
            1 - beta2**step, group["eps"], lr * (1 - now) / (1 - product), lr * ahead / (1 - product * ahead),
        )  # fmt: skip
        return moved


@fused_update("parameter", "average", "square")
def nadam(
    parameter: Tensor, gradient: Tensor, average: Tensor, square: Tensor, beta1: Any, rest1: Any, beta2: Any,
    rest2: Any, gathered: Any, eps: Any, now: Any, ahead: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return the next parameter, and both averages; ``rest1`` is ``1 - beta1``."""
    average, square = moments(gradient, average, square, beta1, rest1, beta2, rest2)
    root = sqrt(square / gathered) + eps
    return parameter - gradient / root * now - average / root * ahead, average, square


class RAdam(Optimizer):
    """Adam whose first steps, whose variance is unknown, are plain momentum (Liu et al. 2020)."""

    def __init__(
        self, params: Parameters, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0.0, decoupled_weight_decay: bool = False, *,
        maximize: bool = False,
        **choices: Unpack[Choices],
    ) -> None:  # fmt: skip
        super().__init__(
            params,
            {
                "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
                "decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize,
            },
            **choices,
        )  # fmt: skip

    def check(self, group: Group) -> None:
        """Raise ``ArgumentError`` for settings that are out of range."""
        check_betas("RAdam", group)

    def first_state(self, parameter: Tensor, group: Group) -> State:
        """Return averages of nothing yet."""
        return {"step": 0, **{name: zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}}

    def update(self, parameter: Tensor, gradient: Tensor, state: State, group: Group) -> Tensor:
        """Return the parameter less the averaged gradient, rectified once enough steps are known."""
        (beta1, beta2), lr = group["betas"], group["lr"]
        if not state:
            state.update(self.first_state(parameter, group))
        step = state["step"] = state["step"] + 1
        parameter, gradient = _decayed(parameter, gradient, group)
        tensors = parameter, gradient, state["exp_avg"], state["exp_avg_sq"]
        betas = beta1, 1 - beta1, beta2, 1 - beta2
        rate, gathered = lr / (1 - beta1**step), 1 - beta2**step
        limit = 2 / (1 - beta2) - 1
        length = limit - 2 * step * beta2**step / gathered
        if length <= 5:
            moved, state["exp_avg"], state["exp_avg_sq"] = averaged(*tensors, *betas, rate)
            return moved
        share = (length - 4) * (length - 2) * limit / ((limit - 4) * (limit - 2) * length)
        moved, state["exp_avg"], state["exp_avg_sq"] = rectified(
            *tensors, *betas, group["eps"], rate * (share * gathered) ** 0.5
        )
        return moved


@fused_update("parameter", "average", "square")
def averaged(
    parameter: Tensor, gradient: Tensor, average: Tensor, square: Tensor, beta1: Any, rest1: Any, beta2: Any,
    rest2: Any, rate: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return the parameter less the averaged gradient, and both averages; ``rest1`` is ``1 - beta1``."""
    average, square = moments(gradient, average, square, beta1, rest1, beta2, rest2)
    return parameter - average * rate, average, square


@fused_update("parameter", "average", "square")
def rectified(
    parameter: Tensor, gradient: Tensor, average: Tensor, square: Tensor, beta1: Any, rest1: Any, beta2: Any,
    rest2: Any, eps: Any, rate: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return what ``averaged`` does, over the root of the averaged square."""
    average, square = moments(gradient, average, square, beta1, rest1, beta2, rest2)
    return parameter - average / (sqrt(square) + eps) * rate, average, square
