"""One step of a recurrent network: the cells, and the arithmetic that the layers share with them.

Parameters, their order of gates, arguments and values are PyTorch's.
"""

from __future__ import annotations

from math import sqrt
from typing import Any, ClassVar

from ....devices.device import Device
from ....dtypes.definition import DType
from ....errors import ArgumentError, ShapeError
from ....ops.creation.creation import empty, zeros
from ....ops.elementwise.activation import relu, sigmoid
from ....ops.elementwise.transcendental import tanh
from ....ops.matmul.linear import linear
from ....ops.movement.movement import reshape
from ....tensor.tensor import Tensor
from ... import init
from ...module import Module
from ...parameter import Parameter
from ..linear import positive


def lstm_step(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """Return the next output and cell state of the sums of four gates (Hochreiter, Schmidhuber 1997)."""
    size = cell.shape[-1]
    enter, forget, fresh, leave = (gates[..., k * size : (k + 1) * size] for k in range(4))
    cell = sigmoid(forget) * cell + sigmoid(enter) * tanh(fresh)
    return sigmoid(leave) * tanh(cell), cell


def gru_step(from_input: Tensor, from_state: Tensor, state: Tensor) -> Tensor:
    """Return the next state (Cho et al. 2014); both sums hold the reset, update and new gates."""
    size = state.shape[-1]
    x, h = ([s[..., k * size : (k + 1) * size] for k in range(3)] for s in (from_input, from_state))
    update = sigmoid(x[1] + h[1])
    fresh = tanh(x[2] + sigmoid(x[0] + h[0]) * h[2])
    return fresh + update * (state - fresh)


def plain_step(gates: Tensor, nonlinearity: str) -> Tensor:
    """Return the next state of an Elman network (Elman 1990)."""
    return tanh(gates) if nonlinearity == "tanh" else relu(gates)


def check_nonlinearity(layer: str, nonlinearity: str) -> str:
    """Return it. Raises ``ArgumentError`` unless it is ``"tanh"`` or ``"relu"``."""
    if nonlinearity not in ("tanh", "relu"):
        raise ArgumentError(f"{layer}: nonlinearity must be 'tanh' or 'relu', got {nonlinearity!r}.")
    return nonlinearity


class _Cell(Module):
    """Base of the cells; ``gates`` is the number of sums of ``hidden_size`` in a step."""

    gates: ClassVar[int]

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Device | str | None = None,
        dtype: DType | str | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        positive(type(self).__name__, input_size=input_size, hidden_size=hidden_size)
        self.input_size = input_size
        self.hidden_size = hidden_size
        rows = self.gates * hidden_size
        self.weight_ih = Parameter(empty((rows, input_size), device=device, dtype=dtype))
        self.weight_hh = Parameter(empty((rows, hidden_size), device=device, dtype=dtype))
        for name in ("bias_ih", "bias_hh"):
            parameter = Parameter(empty((rows,), device=device, dtype=dtype)) if bias else None
            self.register_parameter(name, parameter)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values, from within ``1 / sqrt(hidden_size)`` of zero."""
        bound = 1 / sqrt(self.hidden_size)
        for parameter in self.parameters(recurse=False):
            init.uniform_(parameter, -bound, bound)

    def _sums(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return linear(x, self.weight_ih, self.bias_ih), linear(state, self.weight_hh, self.bias_hh)

    def _start(self, x: Tensor, state: Tensor | None, what: str = "hx") -> Tensor:
        name = type(self).__name__
        if x.ndim not in (1, 2) or x.shape[-1] != self.input_size:
            raise ShapeError(f"{name}: ([batch,] {self.input_size}) is needed, got shape {x.shape}.")
        state_shape = (*x.shape[:-1], self.hidden_size)
        if state is None:
            return zeros(state_shape, dtype=x.dtype, device=x.device)
        if state.shape != state_shape:
            raise ShapeError(f"{name}: {what} of shape {state_shape} is needed, got {state.shape}.")
        return state

    def extra_repr(self) -> str:
        """Return the sizes, and what differs from its default."""
        parts = [f"{self.input_size}, {self.hidden_size}"]
        if self.bias_ih is None:
            parts.append("bias=False")
        if getattr(self, "nonlinearity", "tanh") != "tanh":
            parts.append(f"nonlinearity={self.nonlinearity}")
        return ", ".join(parts)


class RNNCell(_Cell):
    """A step of an Elman network: ``tanh(W_ih x + b_ih + W_hh h + b_hh)``, or ``relu`` of it."""

    gates = 1

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh",
        device: Device | str | None = None, dtype: DType | str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(input_size, hidden_size, bias, device, dtype)
        self.nonlinearity = check_nonlinearity("RNNCell", nonlinearity)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """Return the next state; the first is 0."""
        from_input, from_state = self._sums(input, self._start(input, hx))
        return plain_step(from_input + from_state, self.nonlinearity)


class LSTMCell(_Cell):
    """A step of a long short-term memory: ``x`` and ``(h, c)`` to the next ``(h, c)``.

    >>> import tensorbus as tb
    >>> h, c = tb.nn.LSTMCell(3, 4)(tb.ones((2, 3)))
    >>> h.shape, c.shape
    ((2, 4), (2, 4))
    """

    gates = 4

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """Return the next output and cell state; the first are 0."""
        state, cell = (None, None) if hx is None else hx
        from_input, from_state = self._sums(input, self._start(input, state))
        return lstm_step(from_input + from_state, self._start(input, cell, "cx"))


class GRUCell(_Cell):
    """A step of a gated recurrent unit: ``x`` and ``h`` to the next ``h``."""

    gates = 3

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """Return the next state; the first is 0."""
        state = self._start(input, hx)
        return gru_step(*self._sums(input, state), state)


def batched(x: Any, axis: int) -> Any:
    """Return ``x`` with an axis of one example."""
    return reshape(x, (*x.shape[:axis], 1, *x.shape[axis:]))
