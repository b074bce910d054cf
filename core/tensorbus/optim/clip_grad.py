"""Gradient clipping by norm and by value."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ..autograd.engine import no_grad
from ..devices.device import Device
from ..dispatch.modes import base_device, readable
from ..dtypes.definition import real_of
from ..errors import ArgumentError, AutogradError, DtypeError
from ..ops.call_errors import with_form
from ..ops.creation.creation import zeros
from ..ops.elementwise.arithmetic import abs, maximum, minimum
from ..ops.elementwise.where_cast import narrowed, widened
from ..ops.movement.movement import stack
from ..ops.reduction.reduction import max, sum
from ..tensor.tensor import Tensor


@with_form
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
) -> Tensor:  # fmt: skip
    """Scale all gradients so that their joint norm is at most ``max_norm``; return the norm they had.

    Nothing is read back to the host unless ``error_if_nonfinite``, which raises ``AutogradError`` for a norm
    that is infinite or NaN. Parameters without a gradient count for nothing, complex numbers by their moduli.
    Pascanu, Mikolov, Bengio 2013.

    >>> import tensorbus as tb
    >>> x = tb.asarray([3.0, 4.0]).requires_grad_()
    >>> (x * x).sum().backward()
    >>> tb.optim.clip_grad_norm_([x], 1.0).item()
    10.0
    """
    if not norm_type > 0:
        raise ArgumentError(f"clip_grad_norm_: norm_type must be > 0, or inf, got {norm_type!r}.")
    tensors = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    pairs = [(p, p.grad) for p in tensors if p.grad is not None]
    if not pairs:
        return zeros(())
    with no_grad():
        home = pairs[0][1]
        places: dict[Device, list[Tensor]] = {}
        for _, gradient in pairs:
            places.setdefault(gradient.device, []).append(_powers(gradient, norm_type))
        joint = [_joined(powers, norm_type) for powers in places.values()]
        if len(joint) > 1:
            first = readable(joint[0])
            others = [readable(x).to(first.device, first.dtype) for x in joint[1:]]
            joint = [_joined([first, *others], norm_type)]
        total = joint[0] if norm_type == math.inf else joint[0] ** (1 / norm_type)
        if error_if_nonfinite and not math.isfinite(float(total)):
            raise AutogradError(
                f"clip_grad_norm_: the gradients' norm is {float(total)}, so they cannot be clipped."
            )
        factor = minimum(max_norm / (total + 1e-6), 1.0)
        for parameter, gradient in pairs:
            there = gradient.device if gradient.device == factor.device else base_device(gradient.device)
            parameter.grad = gradient * factor.to(there, real_of(gradient.dtype))
        norm: Tensor = narrowed(total, home.dtype)
        return norm


@with_form
def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Limit every element of all gradients to ``clip_value`` in size.

    Raises ``ArgumentError`` for a negative limit, and ``DtypeError`` for complex gradients.
    """
    if not clip_value >= 0:
        raise ArgumentError(f"clip_grad_value_: clip_value must be >= 0, got {clip_value!r}.")
    tensors = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    pairs = [(p, p.grad) for p in tensors if p.grad is not None]
    for _, gradient in pairs:
        if gradient.dtype.is_complex:
            raise DtypeError(
                f"clip_grad_value_: gradients are real, got one of {gradient.dtype}, which have no order;"
                " use clip_grad_norm_."
            )
    with no_grad():
        for parameter, gradient in pairs:
            parameter.grad = maximum(minimum(gradient, clip_value), -clip_value)


def _powers(x: Tensor, kind: float) -> Tensor:
    """Return the sum of the powers of all elements, or their maximum where the power is infinite.

    Narrow dtypes are taken in float32, where the square of 300 is a number.
    """
    x = abs(x) if x.dtype.is_complex else widened(x)
    if kind == math.inf:
        return max(abs(x))
    return sum(x * x) if kind == 2 else sum(abs(x) ** kind)


def _joined(powers: Sequence[Tensor], kind: float) -> Tensor:
    """Return the sum or maximum of what ``_powers`` returned: of distributed tensors by one collective."""
    row = stack([x.to(powers[0].dtype) for x in powers])
    return max(row) if kind == math.inf else sum(row)
