"""L-BFGS: a quasi-Newton method whose directions come from the last changes of the gradient."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..autograd.engine import enable_grad, no_grad
from ..dispatch.modes import base_device, readable, spread_like
from ..errors import ArgumentError, StateError
from ..ops.creation.creation import zeros_like
from ..ops.elementwise.arithmetic import abs
from ..ops.elementwise.complex import view_as_complex, view_as_real
from ..ops.movement.movement import concat, reshape
from ..ops.reduction.reduction import max, sum
from ..tensor.tensor import Tensor
from .optimizer import Group, Optimizer, Parameters, State, at_least
from .strong_wolfe import strong_wolfe


class LBFGS(Optimizer):
    """L-BFGS (Liu and Nocedal 1989), with a strong Wolfe line search if wanted (Nocedal and Wright 2006).

    ``step`` needs a closure that clears the gradients, computes the loss, calls ``backward`` and returns it.
    One group of parameters only. Raises ``ArgumentError`` for more, or settings out of range.

    >>> import tensorbus as tb
    >>> x = tb.asarray([3.0, -2.0]).requires_grad_()
    >>> optimizer = tb.optim.LBFGS([x], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = ((x - 1) ** 2).sum()
    ...     loss.backward()
    ...     return loss
    >>> loss = optimizer.step(closure)
    >>> [round(v, 3) for v in x.tolist()]
    [1.0, 1.0]
    """

    def __init__(
        self, params: Parameters, lr: float = 1.0, max_iter: int = 20, max_eval: int | None = None,
        tolerance_grad: float = 1e-7, tolerance_change: float = 1e-9, history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:  # fmt: skip
        defaults = {
            "lr": lr, "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change,
            "history_size": history_size, "line_search_fn": line_search_fn,
        }  # fmt: skip
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise ArgumentError("LBFGS: parameters of one group only are supported.")
        self._parameters: list[Tensor] = self.param_groups[0]["params"]

    def check(self, group: Group) -> None:
        """Raise ``ArgumentError`` for settings that are out of range."""
        at_least("LBFGS", 0, lr=group["lr"])
        at_least("LBFGS", 1, max_iter=group["max_iter"], history_size=group["history_size"])
        if group["line_search_fn"] not in (None, "strong_wolfe"):
            raise ArgumentError(
                f"LBFGS: line_search_fn must be None or 'strong_wolfe', got {group['line_search_fn']!r}."
            )

    def _gradient(self) -> Tensor:
        parts = [_real(zeros_like(p) if p.grad is None else p.grad) for p in self._parameters]
        if len({g.device for g in parts}) > 1:  # one vector of all: whole, where the first one's elements are
            home = base_device(parts[0].device)
            parts = [readable(g).to(home) for g in parts]
        return concat([reshape(g, (g.size,)) for g in parts])

    def _fit(self, number: Any, entries: State, parameter: Tensor, group: Group) -> State:
        """Return saved state: its tensors are of all parameters at once. Raises ``StateError``."""
        like = self._gradient()

        def fitted(name: str, value: Any) -> Any:
            if isinstance(value, list):
                return [fitted(name, x) for x in value]
            if not isinstance(value, Tensor):
                return value
            if value.shape != like.shape:
                raise StateError(
                    f"LBFGS: {name!r} has shape {value.shape}, and all parameters together {like.shape}."
                )
            return value.detach().to(like.device, like.dtype, copy=True)

        return {name: fitted(name, value) for name, value in entries.items()}

    def _values(self) -> list[Tensor]:
        return [p.detach().clone() for p in self._parameters]

    def _move(self, values: list[Tensor], step: float, direction: Tensor) -> None:
        at = 0
        for parameter, value in zip(self._parameters, values, strict=True):
            real = _real(value)
            change = reshape(direction[at : at + real.size], real.shape)
            if change.device != real.device:
                change = spread_like(change.to(base_device(real.device)), real)
            moved = real + change * step
            new = view_as_complex(moved) if value.dtype.is_complex else moved
            parameter.rebind(new, by="the step of LBFGS")
            at += real.size

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make up to ``max_iter`` steps; return the loss at the start. The closure is needed."""
        if closure is None:
            raise ArgumentError("LBFGS: step() needs a closure that computes the loss again.")
        group = self.param_groups[0]
        state = self.state.setdefault(self._parameters[0], {"func_evals": 0, "n_iter": 0})

        def evaluate() -> Any:
            with enable_grad():
                return closure()

        with no_grad():
            first = evaluate()
            loss, evaluations = float(first), 1
            state["func_evals"] += 1
            gradient = self._gradient()
            if float(max(abs(gradient))) <= group["tolerance_grad"]:
                return first
            for iteration in range(1, group["max_iter"] + 1):
                state["n_iter"] += 1
                direction = self._direction(state, gradient, group)
                before, slope = loss, float(sum(gradient * direction))
                state["prev_flat_grad"] = gradient
                size = float(group["lr"])
                if state["n_iter"] == 1:
                    size *= min(1.0, 1.0 / float(sum(abs(gradient))))
                if slope > -group["tolerance_change"]:
                    break
                values = self._values()
                if group["line_search_fn"]:

                    def along(t: float, values: Any = values, direction: Any = direction) -> Any:
                        self._move(values, t, direction)
                        loss_there = float(evaluate())
                        return loss_there, self._gradient()

                    loss, gradient, size, used = strong_wolfe(
                        along,
                        size,
                        direction,
                        loss,
                        gradient,
                        slope,
                        group["tolerance_change"],
                        group["max_eval"] - evaluations,
                    )
                    self._move(values, size, direction)
                else:
                    self._move(values, size, direction)
                    used = 0
                    if iteration != group["max_iter"]:
                        loss, used = float(evaluate()), 1
                        gradient = self._gradient()
                state["t"], state["d"] = size, direction
                evaluations += used
                state["func_evals"] += used
                done = (
                    evaluations >= group["max_eval"]
                    or float(max(abs(gradient))) <= group["tolerance_grad"]
                    or float(max(abs(direction * size))) <= group["tolerance_change"]
                    or math.fabs(loss - before) < group["tolerance_change"]
                )
                if done:
                    break
        return first

    def _direction(self, state: dict[str, Any], gradient: Tensor, group: Group) -> Tensor:
        """Return where to go: the gradient, turned by what the remembered changes say of the curvature."""
        if state["n_iter"] == 1:
            state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1.0)
            return -gradient
        change = gradient - state["prev_flat_grad"]
        move = state["d"] * state["t"]
        curvature = float(sum(change * move))
        if curvature > 1e-10:
            for name, entry in (("old_dirs", change), ("old_stps", move), ("ro", 1.0 / curvature)):
                state[name] = [*state[name], entry][-group["history_size"] :]
            state["H_diag"] = curvature / float(sum(change * change))
        weights = []
        direction = -gradient
        remembered = list(zip(state["old_dirs"], state["old_stps"], state["ro"], strict=True))
        for change, move, factor in reversed(remembered):
            weight = float(sum(move * direction)) * factor
            weights.append(weight)
            direction = direction - change * weight
        direction = direction * state["H_diag"]
        for (change, move, factor), weight in zip(remembered, reversed(weights), strict=True):
            direction = direction + move * (weight - float(sum(change * direction)) * factor)
        out: Tensor = direction
        return out


def _real(x: Tensor) -> Tensor:
    """Return a tensor's numbers, the parts of complex ones along a last axis."""
    parts: Tensor = view_as_real(x) if x.dtype.is_complex else x
    return parts
