"""Muon: steps whose matrix is made orthogonal."""

from __future__ import annotations

import math
from typing import Final

from ..dispatch.modes import lift_to, readable
from ..dtypes.definition import bfloat16, float32
from ..errors import ArgumentError
from ..ops.creation.creation import zeros_like
from ..ops.elementwise.arithmetic import maximum
from ..ops.elementwise.transcendental import sqrt
from ..ops.matmul.matmul import matmul, matrix_transpose
from ..ops.reduction.reduction import sum
from ..tensor.tensor import Tensor
from .optimizer import Group, Optimizer, Parameters, State, at_least, refuse_complex

_POLYNOMIAL: Final = (3.4445, -4.775, 2.0315)
"""Keller Jordan's coefficients: five steps bring singular values near 1."""


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
        refuse_complex("Muon", group)
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
