"""Arguments of a backward pass: the tensors that it starts from, and their gradients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..dispatch.modes import lift_to, wraps
from ..errors import AutogradError, DeviceError, DtypeError, ShapeError
from ..ops.creation.creation import ones_like
from ..ops.elementwise.where_cast import cast
from ..tensor.tensor import Tensor


def tensors_of(function: str, parameter: str, argument: Any) -> list[Tensor]:
    """Return one tensor or several as a list. Raises ``DtypeError`` for anything else."""
    if isinstance(argument, Tensor):
        return [argument]
    several: list[Any] = list(argument) if isinstance(argument, Iterable) else [None]
    if not all(isinstance(x, Tensor) for x in several):
        got = type(argument).__name__
        raise DtypeError(f"{function}: {parameter!r} must be a tensor or a tuple of tensors, got {got}.")
    return several


def as_list(grads: Tensor | Sequence[Tensor | None] | None, count: int) -> list[Tensor | None]:
    """Return the gradients to start from: one for each output, None where none is given."""
    seeds: list[Any] = [None] * count if grads is None else [grads]
    seeds = list(grads) if isinstance(grads, (list, tuple)) else seeds
    if len(seeds) != count:
        raise AutogradError(f"{len(seeds)} gradient(s) were given for {count} output(s); one each is needed.")
    return seeds


def seed(out: Tensor, g: Tensor | None) -> Tensor:
    """Return the gradient that the pass starts from at an output: ones if none is given."""
    if g is None:
        if out.dtype.is_complex:
            raise AutogradError(
                f"a gradient is created for real outputs only, this one is {out.dtype}; pass the gradient to"
                " start from, or take its .real or abs()."
            )
        if out.size != 1:
            raise AutogradError(
                f"a gradient is created for one-element outputs only, this one has shape {out.shape};"
                " pass the gradient to start from, or reduce it with .sum()."
            )
        return ones_like(out)
    if not isinstance(g, Tensor):
        raise DtypeError(
            f"the gradient to start from is a tensor of shape {out.shape}, got {type(g).__name__}."
        )
    if wraps(out.device, g.device):
        g = lift_to(g, out.device)
    elif not wraps(g.device, out.device):  # one that differs between the examples of a vmap may be above
        raise DeviceError(
            f"a gradient on {g.device} was given for an output on {out.device}; move it with .to()."
        )
    if g.shape != out.shape:
        raise ShapeError(f"a gradient of shape {g.shape} was given for an output of shape {out.shape}.")
    return g if g.dtype is out.dtype else cast(g, out.dtype)
