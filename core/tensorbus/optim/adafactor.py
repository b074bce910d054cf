"""Adafactor and Muon: optimizers for matrices, whose state is small or whose steps are orthogonal."""

from __future__ import annotations

import math
from typing import Final, Unpack

from ..dispatch.modes import lift_to, readable
from ..dtypes.definition import bfloat16, float32
from ..dtypes.info import finfo
from ..errors import ArgumentError
from ..ops.creation.creation import zeros, zeros_like
from ..ops.elementwise.arithmetic import maximum
from ..ops.elementwise.transcendental import rsqrt, sqrt
from ..ops.matmul.matmul import matmul, matrix_transpose
from ..ops.reduction.reduction import mean, sum
from ..tensor.tensor import Tensor
from .optimizer import Choices, Group, Optimizer, Parameters, State, at_least

_POLYNOMIAL: Final = (3.4445, -4.775, 2.0315)
"""Keller Jordan's coefficients: five steps bring singular values near 1."""


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
        _real("Adafactor", group)
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


class Muon(Optimizer):
    """Momentum whose steps are made orthogonal, for the matrices inside a model (Jordan et al. 2024).

    Give embeddings, the last layer, and vectors to another optimizer. ``ns_steps`` Newton-Schulz steps with
    ``ns_coefficients`` multiply matrices in bfloat16, or in float32 on devices without; the arithmetic
    between the products is float32. ``adjust_lr_fn``: ``"original"`` (None) multiplies the rate by
    ``sqrt(max(1, rows / columns))``, ``"match_rms_adamw"`` by ``0.2 * sqrt(max(rows, columns))``. Raises
    ``ArgumentError`` for settings out of range, and for a parameter that is no matrix.

    >>> import tensorbus as tb
    >>> x = tb.asarray([[3.0, 0.0], [0.0, 1.0]]).requires_grad_()
    >>> optimizer = tb.optim.Muon([x], lr=0.5, weight_decay=0.0)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> [round(v, 0) for v in x.tolist()[0]]
    [3.0, 0.0]
    """

    def __init__(
        self, params: Parameters, lr: float = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95,
        nesterov: bool = True, ns_coefficients: tuple[float, float, float] = _POLYNOMIAL, eps: float = 1e-7,
        ns_steps: int = 5, adjust_lr_fn: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            params,
            {
                "lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov,
                "ns_coefficients": ns_coefficients, "eps": eps, "ns_steps": ns_steps,
                "adjust_lr_fn": adjust_lr_fn,
            },
        )  # fmt: skip

    def check(self, group: Group) -> None:
        """Raise ``ArgumentError`` for settings out of range, and for a parameter that is no real matrix."""
        _real("Muon", group)
        names = ("lr", "weight_decay", "momentum", "eps", "ns_steps")
        at_least("Muon", 0, **{k: group[k] for k in names})
        if group["adjust_lr_fn"] not in (None, "original", "match_rms_adamw"):
            raise ArgumentError(
                f"Muon: adjust_lr_fn is None, 'original' or 'match_rms_adamw', got {group['adjust_lr_fn']!r}."
            )
        if len(group["ns_coefficients"]) != 3:
            raise ArgumentError(f"Muon: ns_coefficients are three, got {group['ns_coefficients']!r}.")
        for parameter in group["params"]:
            if len(parameter.shape) != 2:
                raise ArgumentError(
                    f"Muon: parameters have two axes, got one of shape {parameter.shape}; give it to AdamW."
                )

    def first_state(self, parameter: Tensor, group: Group) -> State:
        """Return momentum of nothing yet."""
        return {"momentum_buffer": zeros_like(parameter)}

    def update(self, parameter: Tensor, gradient: Tensor, state: State, group: Group) -> Tensor:
        """Return the parameter less the orthogonal matrix that is nearest to its momentum."""
        if not state:
            state.update(self.first_state(parameter, group))
        lr, momentum = group["lr"], group["momentum"]
        buffer = state["momentum_buffer"] + (gradient - state["momentum_buffer"]) * (1 - momentum)
        state["momentum_buffer"] = buffer
        change = gradient + (buffer - gradient) * momentum if group["nesterov"] else buffer
        rows, columns = parameter.shape
        if group["adjust_lr_fn"] == "match_rms_adamw":
            scale = 0.2 * math.sqrt(max(rows, columns))
        else:
            scale = math.sqrt(max(1.0, rows / columns))
        step = _orthogonal(change, group["ns_coefficients"], group["ns_steps"], group["eps"])
        moved: Tensor = parameter * (1 - lr * group["weight_decay"]) - step * (lr * scale)
        return moved


def _real(name: str, group: Group) -> None:
    """Raise ``ArgumentError`` for complex parameters, whose parts are no rows and columns."""
    for parameter in group["params"]:
        if parameter.dtype.is_complex:
            raise ArgumentError(
                f"{name}: parameters are real, got one of {parameter.dtype}; give it to Adam, or optimize its"
                " view_as_real."
            )


def _size(x: Tensor) -> Tensor:
    """Return the root of the mean of squares, of shape ``()``."""
    size: Tensor = sqrt(mean(x * x))
    return size


def _orthogonal(x: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    """Return about the nearest matrix with orthogonal rows or columns, by Newton and Schulz.

    Products take and give bfloat16, which matrix units are made for; what is between them is computed in
    float32 and rounded once, as in PyTorch, whose ``addmm`` adds before it rounds.
    """
    a, b, c = coefficients
    small = bfloat16 if bfloat16 in x.device.properties.dtypes else float32
    tall = x.shape[0] > x.shape[1]
    whole = readable(x)  # of a distributed one: gathered once, where each product would communicate
    factor = (matrix_transpose(whole) if tall else whole).to(small).to(float32)
    factor = (factor / maximum(sqrt(sum(factor * factor)), eps)).to(small)
    for _ in range(steps):
        gram = matmul(factor, matrix_transpose(factor))
        squared = matmul(gram, gram)
        change = (gram.to(float32) * b + squared.to(float32) * c).to(small)
        factor = (factor.to(float32) * a + matmul(change, factor).to(float32)).to(small)
    factor = matrix_transpose(factor) if tall else factor
    result: Tensor = lift_to(factor.to(x.dtype), x._vtype.device)
    return result
