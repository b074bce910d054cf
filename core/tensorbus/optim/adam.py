"""Adam, and AdamW, which decouples weight decay from the gradient."""

from __future__ import annotations

import math
from typing import Any, Unpack

from ..errors import ArgumentError
from ..ops.creation.creation import zeros, zeros_like
from ..ops.elementwise.arithmetic import maximum
from ..ops.elementwise.transcendental import expm1, sqrt
from ..tensor.tensor import Tensor
from .fused_update import fused_update
from .optimizer import Choices, Group, Optimizer, Parameters, State, at_least


class Adam(Optimizer):
    """Adam (Kingma and Ba 2015), or with ``amsgrad`` the variant of Reddi, Kale, Kumar 2018.

    ``weight_decay`` is added to the gradient, or with ``decoupled_weight_decay`` shrinks parameters, as in
    ``AdamW``. With ``capturable`` the count of steps is a tensor on the
    parameter's device, so that a captured step can be run again. Raises ``ArgumentError`` for settings out of
    range.

    >>> import tensorbus as tb
    >>> x = tb.asarray([2.0]).requires_grad_()
    >>> optimizer = tb.optim.Adam([x], lr=0.5)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> round(x.item(), 4)
    1.5
    """

    decoupled = False

    def __init__(
        self, params: Parameters, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0.0, amsgrad: bool = False, *, maximize: bool = False,
        decoupled_weight_decay: bool = False, **choices: Unpack[Choices],
    ) -> None:  # fmt: skip
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad,
            "maximize": maximize, "decoupled_weight_decay": decoupled_weight_decay,
            "capturable": choices.get("capturable", False),
        }  # fmt: skip
        super().__init__(params, defaults, **choices)

    def check(self, group: Group) -> None:
        """Raise ``ArgumentError`` for settings that are out of range."""
        name = type(self).__name__
        at_least(name, 0, **{k: group[k] for k in ("lr", "eps", "weight_decay")})
        betas = group["betas"]
        if len(betas) != 2 or not all(isinstance(b, (int, float)) and 0 <= b < 1 for b in betas):
            raise ArgumentError(f"{name}: betas are two numbers in [0, 1), got {betas!r}.")

    def first_state(self, parameter: Tensor, group: Group) -> State:
        """Return averages of nothing yet."""
        names = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")[: 3 if group["amsgrad"] else 2]
        step = zeros((), device=parameter.device) if group["capturable"] else 0
        return {"step": step, **{name: zeros_like(parameter) for name in names}}

    def update(self, parameter: Tensor, gradient: Tensor, state: State, group: Group) -> Tensor:
        """Return the parameter less the averaged gradient, over the root of its averaged square."""
        beta1, beta2 = group["betas"]
        decay = group["weight_decay"]
        if not state:
            state.update(self.first_state(parameter, group))
        step = state["step"] = state["step"] + 1
        decoupled = self.decoupled or group["decoupled_weight_decay"]
        if decay and not decoupled:
            gradient = gradient + parameter * decay
        floor, rate = _corrected(step, group)
        if isinstance(step, Tensor):
            floor, rate = floor.to(parameter.dtype), rate.to(parameter.dtype)
        if decay and decoupled and not group["amsgrad"]:
            moved, state["exp_avg"], state["exp_avg_sq"] = adamw(
                parameter, gradient, state["exp_avg"], state["exp_avg_sq"], beta1, 1 - beta1, beta2,
                1 - beta2, floor, rate, 1 - group["lr"] * decay,
            )  # fmt: skip
            return moved
        if decay and decoupled:
            parameter = parameter * (1 - group["lr"] * decay)
        numbers = beta1, 1 - beta1, beta2, 1 - beta2, floor, rate
        operands = parameter, gradient, state["exp_avg"], state["exp_avg_sq"]
        if group["amsgrad"]:
            moved, state["exp_avg"], state["exp_avg_sq"], state["max_exp_avg_sq"] = amsgrad(
                *operands, state["max_exp_avg_sq"], *numbers
            )
        else:
            moved, state["exp_avg"], state["exp_avg_sq"] = adam(*operands, *numbers)
        return moved


def moments(
    gradient: Tensor, average: Tensor, square: Tensor, beta1: Any, rest1: Any, beta2: Any, rest2: Any
) -> tuple[Tensor, Tensor]:
    """Return the next running averages of the gradient and of its square; ``rest1`` is ``1 - beta1``."""
    return average * beta1 + gradient * rest1, square * beta2 + gradient * gradient * rest2


@fused_update("parameter", "average", "square")
def adam(
    parameter: Tensor, gradient: Tensor, average: Tensor, square: Tensor, beta1: Any, rest1: Any, beta2: Any,
    rest2: Any, floor: Any, rate: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return the next parameter, and both averages; ``rest1`` is ``1 - beta1``."""
    average, square = moments(gradient, average, square, beta1, rest1, beta2, rest2)
    return parameter - average / (sqrt(square) + floor) * rate, average, square


@fused_update("parameter", "average", "square")
def adamw(
    parameter: Tensor, gradient: Tensor, average: Tensor, square: Tensor, beta1: Any, rest1: Any, beta2: Any,
    rest2: Any, floor: Any, rate: Any, decay: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return what ``adam`` does for a parameter that weight decay leaves ``decay`` of."""
    average, square = moments(gradient, average, square, beta1, rest1, beta2, rest2)
    return parameter * decay - average / (sqrt(square) + floor) * rate, average, square


@fused_update("parameter", "average", "square", "largest")
def amsgrad(
    parameter: Tensor, gradient: Tensor, average: Tensor, square: Tensor, largest: Tensor, beta1: Any,
    rest1: Any, beta2: Any, rest2: Any, floor: Any, rate: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return what ``adam`` does, over the root of the largest average there has been."""
    average, square = moments(gradient, average, square, beta1, rest1, beta2, rest2)
    largest = maximum(largest, square)
    return parameter - average / (sqrt(largest) + floor) * rate, average, square, largest


def _corrected(step: Any, group: Group) -> tuple[Any, Any]:
    """Return ``eps`` and the rate with the corrections of both moments, numbers: no op on every element.

    Most parameters are at the same step, and have the same ones then.
    """
    shared: dict[str, Any] = group.get("shared", {})
    known = shared.get("corrected")
    if known is not None and not isinstance(step, Tensor) and known[0] == step:
        return known[1], known[2]
    beta1, beta2 = group["betas"]
    correction = _gathered(beta2, step) ** 0.5
    floor, rate = correction * group["eps"], correction * group["lr"] / _gathered(beta1, step)
    if not isinstance(step, Tensor):
        shared["corrected"] = step, floor, rate
    return floor, rate


def _gathered(beta: float, step: Any) -> Any:
    """Return ``1 - beta**step``, the weight that an average has gathered; precise in float32 too."""
    if isinstance(step, Tensor) and beta > 0:
        return -expm1(step * math.log(beta))
    return 1 - beta**step


class AdamW(Adam):
    """Adam whose weight decay shrinks parameters and leaves gradients alone (Loshchilov and Hutter 2019).

    >>> import tensorbus as tb
    >>> model = tb.nn.Linear(3, 1)
    >>> optimizer = tb.optim.AdamW(model.parameters(), lr=1e-2)
    >>> model(tb.ones((2, 3))).sum().backward()
    >>> optimizer.step()
    """

    decoupled = True

    def __init__(
        self, params: Parameters, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False,
        **choices: Unpack[Choices],
    ) -> None:  # fmt: skip
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize, decoupled_weight_decay=True,
            **choices,
        )  # fmt: skip
