"""Adafactor: squares of a matrix kept as means of its rows and of its columns."""

from __future__ import annotations

from typing import Unpack

from ..dtypes.info import finfo
from ..errors import ArgumentError
from ..ops.creation.creation import zeros, zeros_like
from ..ops.elementwise.arithmetic import maximum
from ..ops.elementwise.transcendental import rsqrt, sqrt
from ..ops.reduction.reduction import mean
from ..tensor.tensor import Tensor
from .optimizer import Choices, Group, Optimizer, Parameters, State, at_least, refuse_complex


class Adafactor(Optimizer):
    """Divide by squares that are kept as means of rows and of columns (Shazeer and Stern 2018).

    A matrix of n by m has a state of n + m numbers. The rate is the lesser of ``lr`` and ``step ** -0.5``,
    times the parameter's own size, at least ``eps[1]``; steps are no larger than ``d`` in the mean.
    ``eps[0]``: None is the dtype's. Raises ``ArgumentError`` for settings out of range.

    >>> import tensorbus as tb
    >>> x = tb.ones((3, 2)).requires_grad_()
    >>> optimizer = tb.optim.Adafactor([x], lr=0.1)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> optimizer.state[x]["row_var"].shape, optimizer.state[x]["col_var"].shape
    ((3, 1), (1, 2))
    """

    def __init__(
        self, params: Parameters, lr: float = 1e-2, beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3), d: float = 1.0, weight_decay: float = 0.0, *,
        maximize: bool = False,
        **choices: Unpack[Choices],
    ) -> None:  # fmt: skip
        super().__init__(
            params,
            {
                "lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay,
                "maximize": maximize,
            },
            **choices,
        )  # fmt: skip

    def check(self, group: Group) -> None:
        """Raise ``ArgumentError`` for settings that are out of range, and for complex parameters."""
        refuse_complex("Adafactor", group)
        least, smallest = group["eps"]
        at_least("Adafactor", 0, lr=group["lr"], weight_decay=group["weight_decay"], eps=smallest)
        at_least("Adafactor", 1, d=group["d"])
        at_least("Adafactor", 0, eps=0.0 if least is None else least)
        if group["beta2_decay"] > 0:
            raise ArgumentError(f"Adafactor: beta2_decay must be <= 0, got {group['beta2_decay']!r}.")

    def first_state(self, parameter: Tensor, group: Group) -> State:
        """Return means of nothing yet."""
        shape, dtype, device = parameter.shape, parameter.dtype, parameter.device
        if len(shape) < 2:
            return {"step": 0, "variance": zeros_like(parameter)}
        row, column = (*shape[:-1], 1), (*shape[:-2], 1, shape[-1])
        return {
            "step": 0, "row_var": zeros(row, dtype=dtype, device=device),
            "col_var": zeros(column, dtype=dtype, device=device),
        }  # fmt: skip

    def update(self, parameter: Tensor, gradient: Tensor, state: State, group: Group) -> Tensor:
        """Return the parameter less the gradient over the root of the estimated squares."""
        if not state:
            state.update(self.first_state(parameter, group))
        step = state["step"] = state["step"] + 1
        least, smallest = group["eps"]
        least = finfo(parameter.dtype).eps if least is None else least
        new = step ** group["beta2_decay"]
        rate = maximum(_size(parameter), smallest) * min(group["lr"], 1 / step**0.5)
        if group["weight_decay"]:
            parameter = parameter * (1 - group["lr"] * group["weight_decay"])
        square = gradient * gradient
        if "variance" in state:
            estimate = state["variance"] = state["variance"] + (square - state["variance"]) * new
        else:
            rows, columns = mean(square, axis=-1, keepdims=True), mean(square, axis=-2, keepdims=True)
            row = state["row_var"] = state["row_var"] + (rows - state["row_var"]) * new
            column = state["col_var"] = state["col_var"] + (columns - state["col_var"]) * new
            estimate = row * column / maximum(mean(row, axis=-2, keepdims=True), least)
        change = rsqrt(maximum(estimate, least * least)) * gradient
        moved: Tensor = parameter - change * (rate / maximum(_size(change) / group["d"], 1.0))
        return moved


def _size(x: Tensor) -> Tensor:
    """Return the root of the mean of squares, of shape ``()``."""
    size: Tensor = sqrt(mean(x * x))
    return size
