"""Recurrent layers: steps over time, in several layers and both directions.

Parameters, arguments and values are PyTorch's. The inputs of all steps of a layer go through its weights in
one product.
"""

from __future__ import annotations

from math import sqrt
from typing import Any, ClassVar

from ....devices.device import Device
from ....dtypes.definition import DType
from ....errors import ArgumentError, ShapeError
from ....ops.creation.creation import empty, zeros
from ....ops.elementwise.where_cast import where
from ....ops.matmul.linear import linear
from ....ops.movement.movement import concat, permute_dims, reshape, stack
from ....tensor.tensor import Tensor
from ... import functional, init
from ...module import Module
from ...parameter import Parameter
from ...utils.rnn import PackedSequence
from ..linear import positive
from .rnn_cell import batched, check_nonlinearity, gru_step, lstm_step, plain_step


class _Recurrent(Module):
    """Base of the layers; ``gates`` is the number of sums of ``hidden_size`` in a step."""

    gates: ClassVar[int]
    pair: ClassVar[bool] = False

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0,
        device: Device | str | None = None, dtype: DType | str | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        name = type(self).__name__
        positive(name, input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        if not 0 <= dropout <= 1:
            raise ArgumentError(f"{name}: dropout lies in [0, 1], got {dropout!r}.")
        if proj_size and (not self.pair or not 0 < proj_size < hidden_size):
            raise ArgumentError(
                f"{name}: proj_size is of LSTM only and less than hidden_size, got {proj_size!r}."
            )
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        rows, out = self.gates * hidden_size, proj_size or hidden_size
        for layer, suffix in self._suffixes():
            width = input_size if layer == 0 else out * (2 if bidirectional else 1)
            shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, width), "weight_hh": (rows, out)}
            if bias:
                shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
            if proj_size:
                shapes["weight_hr"] = (proj_size, hidden_size)
            for part, shape in shapes.items():
                parameter = Parameter(empty(shape, device=device, dtype=dtype))
                self.register_parameter(f"{part}_{suffix}", parameter)
        self.reset_parameters()

    def _suffixes(self) -> list[tuple[int, str]]:
        suffixes = ("", "_reverse") if self.bidirectional else ("",)
        return [(layer, f"l{layer}{way}") for layer in range(self.num_layers) for way in suffixes]

    def reset_parameters(self) -> None:
        """Draw new initial values, from within ``1 / sqrt(hidden_size)`` of zero."""
        bound = 1 / sqrt(self.hidden_size)
        for parameter in self.parameters(recurse=False):
            init.uniform_(parameter, -bound, bound)

    def flatten_parameters(self) -> None:
        """Do nothing: here for programs that call it."""

    def _step(self, suffix: str, from_input: Tensor, state: Tensor, cell: Any) -> tuple[Tensor, Any]:
        raise NotImplementedError

    def _sum(self, suffix: str, which: str, x: Tensor) -> Tensor:
        bias = getattr(self, f"bias_{which}_{suffix}") if self.bias else None
        return linear(x, getattr(self, f"weight_{which}_{suffix}"), bias)

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        """Return the outputs of the last layer at all times, and the last state of every layer.

        ``input`` is ``(length, batch, input_size)``, with ``batch_first`` ``(batch, length, input_size)``, or
        ``(length, input_size)``. States are ``(layers * directions, [batch,] size)``, 0 by default; those of
        an LSTM are pairs. A ``PackedSequence`` gives another, and the states at the end of each sequence.
        Raises ``ShapeError`` where they do not fit.
        """
        if isinstance(input, PackedSequence):
            out, state = self._forward(input.padded, hx, input.present(), False)
            return PackedSequence(out, input.lengths), state
        return self._forward(input, hx, None, self.batch_first)

    def _forward(
        self, input: Tensor, hx: Any, present: Tensor | None, batch_first: bool
    ) -> tuple[Tensor, Any]:
        name = type(self).__name__
        if input.ndim not in (2, 3) or input.shape[-1] != self.input_size:
            raise ShapeError(
                f"{name}: an input of 2 or 3 dimensions, the last {self.input_size} long, is needed; got"
                f" shape {input.shape}."
            )
        alone = input.ndim == 2
        if alone:
            input = batched(input, 1)
        elif batch_first:
            input = permute_dims(input, (1, 0, 2))
        if not input.shape[0]:
            raise ShapeError(f"{name}: at least one step of time is needed, got none.")
        states, cells = self._start(input, hx, alone)
        last: list[Tensor] = []
        last_cells: list[Any] = []
        for layer in range(self.num_layers):
            suffixes = [s for depth, s in self._suffixes() if depth == layer]
            results = []
            for suffix in suffixes:
                place = len(last)
                out, state, cell = self._run(suffix, input, states[place], cells[place], present)
                results.append(out)
                last.append(state)
                last_cells.append(cell)
            input = results[0] if len(results) == 1 else concat(results, axis=-1)
            if self.dropout and self.training and layer < self.num_layers - 1:
                input = functional.dropout(input, self.dropout)
        if alone:
            input = reshape(input, (input.shape[0], input.shape[2]))
            last = [reshape(s, s.shape[1:]) for s in last]
            last_cells = [c if c is None else reshape(c, c.shape[1:]) for c in last_cells]
        elif batch_first:
            input = permute_dims(input, (1, 0, 2))
        return input, (stack(last), stack(last_cells)) if self.pair else stack(last)

    def _run(
        self, suffix: str, x: Tensor, state: Tensor, cell: Any, present: Tensor | None
    ) -> tuple[Tensor, Tensor, Any]:
        """Go through time in one direction of one layer; states stay as they are where nothing is present."""
        sums = self._sum(suffix, "ih", x)
        times = range(x.shape[0])
        backwards = suffix.endswith("_reverse")
        outs = []
        for time in reversed(times) if backwards else times:
            before, cell_before = state, cell
            state, cell = self._step(suffix, sums[time], state, cell)
            if present is not None:
                state = where(present[time], state, before)
                cell = cell if cell is None else where(present[time], cell, cell_before)
            outs.append(state)
        out = stack(outs[::-1] if backwards else outs)
        return out if present is None else where(present, out, 0), state, cell

    def _start(self, x: Tensor, hx: Any, alone: bool) -> tuple[list[Any], list[Any]]:
        count = len(self._suffixes())
        out = self.proj_size or self.hidden_size
        sizes = (out, self.hidden_size) if self.pair else (out,)
        if hx is None:
            starts = [zeros((count, x.shape[1], n), dtype=x.dtype, device=x.device) for n in sizes]
        else:
            pair = tuple(hx) if self.pair else (hx,)
            starts = [batched(h, 1) if alone else h for h in pair]
            for h, n in zip(starts, sizes, strict=True):
                if h.shape != (count, x.shape[1], n):
                    raise ShapeError(
                        f"{type(self).__name__}: a state of shape {(count, x.shape[1], n)} is needed, with"
                        f" the batch, got {h.shape}."
                    )
        parts = [[h[k] for k in range(count)] for h in starts]
        return parts[0], parts[1] if self.pair else [None] * count

    def extra_repr(self) -> str:
        """Return the settings that differ from their defaults."""
        parts = [f"{self.input_size}, {self.hidden_size}"]
        defaults = {
            "proj_size": 0, "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0,
            "bidirectional": False,
        }  # fmt: skip
        parts += [f"{k}={getattr(self, k)}" for k, v in defaults.items() if getattr(self, k) != v]
        return ", ".join(parts)


class RNN(_Recurrent):
    """An Elman network (Elman 1990): each step is ``tanh`` or ``relu`` of affine maps of input and state.

    >>> import tensorbus as tb
    >>> out, h = tb.nn.RNN(3, 4, num_layers=2)(tb.ones((5, 2, 3)))
    >>> out.shape, h.shape
    ((5, 2, 4), (2, 2, 4))
    """

    gates = 1

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh",
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device | str | None = None, dtype: DType | str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype
        )
        self.nonlinearity = check_nonlinearity("RNN", nonlinearity)

    def _step(self, suffix: str, from_input: Tensor, state: Tensor, cell: Any) -> tuple[Tensor, Any]:
        return plain_step(from_input + self._sum(suffix, "hh", state), self.nonlinearity), None


class LSTM(_Recurrent):
    """A long short-term memory (Hochreiter and Schmidhuber 1997); its state is a pair of tensors.

    With ``proj_size`` outputs are projected to it (Sak, Senior, Beaufays 2014).

    >>> import tensorbus as tb
    >>> out, (h, c) = tb.nn.LSTM(3, 4, batch_first=True, bidirectional=True)(tb.ones((2, 5, 3)))
    >>> out.shape, h.shape
    ((2, 5, 8), (2, 2, 4))
    """

    gates = 4
    pair = True

    def _step(self, suffix: str, from_input: Tensor, state: Tensor, cell: Any) -> tuple[Tensor, Any]:
        out, cell = lstm_step(from_input + self._sum(suffix, "hh", state), cell)
        if self.proj_size:
            out = linear(out, getattr(self, f"weight_hr_{suffix}"))
        return out, cell


class GRU(_Recurrent):
    """A gated recurrent unit (Cho et al. 2014), with the reset after the product, as in PyTorch.

    >>> import tensorbus as tb
    >>> tb.nn.GRU(3, 4)(tb.ones((5, 3)))[0].shape
    (5, 4)
    """

    gates = 3

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Device | str | None = None, dtype: DType | str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype
        )

    def _step(self, suffix: str, from_input: Tensor, state: Tensor, cell: Any) -> tuple[Tensor, Any]:
        return gru_step(from_input, self._sum(suffix, "hh", state), state), None
