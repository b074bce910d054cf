"""``gradcheck``: derivatives against differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import ArgumentError, AutogradError
from ..ops.creation.creation import iota
from ..ops.elementwise.comparison import equal
from ..ops.elementwise.where_cast import cast
from ..tensor.tensor import Tensor
from . import engine


def gradcheck(
    function: Callable[..., Tensor | Sequence[Tensor]], inputs: Tensor | Sequence[Any], *, eps: float = 1e-6,
    atol: float = 1e-5, rtol: float = 1e-3, raise_exception: bool = True,
) -> bool:  # fmt: skip
    """Return whether the gradients of ``function`` at ``inputs`` are those that differences show.

    Each element of each input that requires a gradient is moved by ``eps`` both ways; a difference of more
    than ``atol + rtol`` times the slope is an error, told in ``AutogradError`` or, without
    ``raise_exception``, by False. ``function`` must give the same at each call. Inputs are real, and
    should be float64: others are too coarse for these limits. Raises ``ArgumentError`` where no input
    requires a gradient, or one is complex.

    >>> import tensorbus as tb
    >>> x = tb.asarray([0.5, 2.0], dtype=tb.float64).requires_grad_()
    >>> tb.autograd.gradcheck(lambda x: x.exp() * x, x)
    True
    """
    arguments = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    checked = [k for k, x in enumerate(arguments) if isinstance(x, Tensor) and x.requires_grad]
    if not checked:
        raise ArgumentError("gradcheck: no input requires a gradient; call requires_grad_() on one.")
    for k in checked:
        if arguments[k].dtype.is_complex:
            raise ArgumentError(f"gradcheck: input {k} is {arguments[k].dtype}; it checks real inputs only.")
    outs = _results(function(*arguments))
    difference = None
    for place, out in enumerate(outs):
        if difference is None and out.requires_grad:
            slopes = _slopes(out, [arguments[k] for k in checked])
            for k, jacobian in zip(checked, slopes, strict=True):
                difference = difference or _compared(function, arguments, place, k, jacobian, eps, atol, rtol)
    if difference is not None and raise_exception:
        raise AutogradError(difference)
    return difference is None


def _results(returned: Any) -> list[Tensor]:
    every = [returned] if isinstance(returned, Tensor) else list(returned)
    return [x for x in every if isinstance(x, Tensor) and x.dtype.is_floating]


def _unit(x: Tensor, at: int) -> Tensor:
    """Return 1 at element ``at`` of the shape of ``x``, and 0 elsewhere."""
    return cast(equal(iota(x.size, device=x.device), at), x.dtype).reshape(x.shape)


def _slopes(out: Tensor, inputs: Sequence[Tensor]) -> list[list[list[float]]]:
    """Return, for each input, the derivative of each element of ``out`` by each of its elements."""
    rows: list[list[list[float]]] = [[] for _ in inputs]
    for place in range(out.size):
        grads = engine.grad(out, inputs, _unit(out, place), retain_graph=True, allow_unused=True)
        for row, g, x in zip(rows, grads, inputs, strict=True):
            row.append([0.0] * x.size if g is None else g.reshape(-1).tolist())
    return rows


def _compared(
    function: Any, arguments: Sequence[Any], place: int, k: int, slopes: list[list[float]], eps: float,
    atol: float, rtol: float,
) -> str | None:  # fmt: skip
    """Return what is wrong with the derivative of result ``place`` by input ``k``, or None."""
    x = arguments[k]
    for at in range(x.size):
        ends = []
        for step in (eps, -eps):
            other = (x.detach() + _unit(x, at) * step).requires_grad_()
            out = _results(function(*arguments[:k], other, *arguments[k + 1 :]))[place]
            ends.append(out.reshape(-1).tolist())
        for row, (high, low) in enumerate(zip(*ends, strict=True)):
            expected, got = (high - low) / (2 * eps), slopes[row][at]
            if not abs(got - expected) <= atol + rtol * abs(expected):
                return (
                    f"gradcheck: the derivative of element {row} of result {place} by element {at} of input"
                    f" {k} is {got:.6g}, where differences give {expected:.6g}."
                )
    return None
