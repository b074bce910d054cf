"""Rprop, with a step size for each element, and averaged SGD, which keeps a mean of the iterates."""

from __future__ import annotations

from typing import Unpack

from ..errors import ArgumentError
from ..ops.creation.creation import full_like, zeros_like
from ..ops.elementwise.activation import clip
from ..ops.elementwise.arithmetic import sign
from ..ops.elementwise.where_cast import where
from ..tensor.tensor import Tensor
from .optimizer import Choices, Group, Optimizer, Parameters, State, at_least


class Rprop(Optimizer):
    """Steps that grow where the gradient keeps its sign, and shrink where it does not (Riedmiller 1993).

    ``etas`` are the factors by which they shrink and grow, ``step_sizes`` the least and the largest. It is
    for gradients of all data, not of batches. Raises ``ArgumentError`` for settings out of range.

    >>> import tensorbus as tb
    >>> x = tb.asarray([2.0, -3.0]).requires_grad_()
    >>> optimizer = tb.optim.Rprop([x], lr=0.5)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> x.tolist()
    [1.5, -2.5]
    """

    def __init__(
        self, params: Parameters, lr: float = 1e-2, etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50.0), *, maximize: bool = False,
        **choices: Unpack[Choices],
    ) -> None:  # fmt: skip
        defaults = {"lr": lr, "etas": etas, "step_sizes": step_sizes, "maximize": maximize}
        super().__init__(params, defaults, **choices)

    def check(self, group: Group) -> None:
        """Raise ``ArgumentError`` for settings that are out of range."""
        at_least("Rprop", 0, lr=group["lr"])
        less, more = group["etas"]
        if not 0 < less < 1 < more:
            raise ArgumentError(f"Rprop: etas are 0 < a < 1 < b, got {group['etas']!r}.")
        least, most = group["step_sizes"]
        if not 0 <= least <= most:
            raise ArgumentError(f"Rprop: step_sizes are 0 <= a <= b, got {group['step_sizes']!r}.")

    def first_state(self, parameter: Tensor, group: Group) -> State:
        """Return no gradient yet, and steps of the length ``lr``."""
        steps = full_like(parameter, group["lr"])
        return {"step": 0, "prev": zeros_like(parameter), "step_size": steps}

    def update(self, parameter: Tensor, gradient: Tensor, state: State, group: Group) -> Tensor:
        """Return the parameter less a step in the direction of the gradient's sign."""
        if not state:
            state.update(self.first_state(parameter, group))
        less, more = group["etas"]
        least, most = group["step_sizes"]
        state["step"] = state["step"] + 1
        turn = gradient * state["prev"]
        size = state["step_size"]
        size = where(turn > 0, size * more, where(turn < 0, size * less, size))
        state["step_size"] = clip(size, least, most)
        state["prev"] = where(turn < 0, 0.0, gradient)
        moved: Tensor = parameter - sign(state["prev"]) * state["step_size"]
        return moved


class ASGD(Optimizer):
    """SGD whose rate falls slowly, and the mean of the parameters on the way (Polyak and Juditsky 1992).

    The mean is ``optimizer.state[parameter]["ax"]``: of the steps after ``t0``. Before, it is the parameter.
    ``lambd`` pulls to zero, ``alpha`` is the power with which the rate falls. Raises ``ArgumentError`` for
    settings out of range.

    >>> import tensorbus as tb
    >>> x = tb.asarray([2.0]).requires_grad_()
    >>> optimizer = tb.optim.ASGD([x], lr=0.25, lambd=0.0)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> x.tolist(), optimizer.state[x]["ax"].tolist()
    ([1.0], [1.0])
    """

    def __init__(
        self, params: Parameters, lr: float = 1e-2, lambd: float = 1e-4, alpha: float = 0.75, t0: float = 1e6,
        weight_decay: float = 0.0, *, maximize: bool = False,
        **choices: Unpack[Choices],
    ) -> None:  # fmt: skip
        super().__init__(
            params,
            {
                "lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay,
                "maximize": maximize,
            },
            **choices,
        )  # fmt: skip

    def check(self, group: Group) -> None:
        """Raise ``ArgumentError`` for settings that are out of range."""
        at_least("ASGD", 0, lr=group["lr"], weight_decay=group["weight_decay"])

    def first_state(self, parameter: Tensor, group: Group) -> State:
        """Return a mean of nothing yet."""
        return {"step": 0, "eta": group["lr"], "mu": 1.0, "ax": zeros_like(parameter)}

    def update(self, parameter: Tensor, gradient: Tensor, state: State, group: Group) -> Tensor:
        """Return the parameter less the gradient times a rate of its own."""
        if not state:
            state.update(self.first_state(parameter, group))
        step = state["step"] = state["step"] + 1
        lr, lambd, rate, share = group["lr"], group["lambd"], state["eta"], state["mu"]
        if group["weight_decay"]:
            gradient = gradient + parameter * group["weight_decay"]
        moved: Tensor = parameter * (1 - lambd * rate) - gradient * rate
        state["ax"] = moved if share == 1 else state["ax"] + (moved - state["ax"]) * share
        state["eta"] = lr / (1 + lambd * lr * step) ** group["alpha"]
        state["mu"] = 1 / max(1.0, step - group["t0"])
        return moved
