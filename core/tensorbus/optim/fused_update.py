"""``fused_update``: a function of an update as one node of a captured program, instead of one for each op."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any

from ..dispatch.modes import apply_modes
from ..ops.definition import Op
from ..ops.fused_update import fused_update_op
from ..tensor.tensor import Tensor
from ..tracing.active_modes import active_modes
from ..tracing.active_tracer import active_tracer

Update = Callable[..., tuple[Tensor, ...]]


def fused_update(*results: str) -> Callable[[Update], Update]:
    """Return the decorator of a function of tensors and numbers that gives a tuple of ``results``.

    The function may do nothing but elementwise ops on its operands, and gives tensors of their shape and
    dtype. A capture sees one op and does not look into it, so that it is for functions of this package: it
    may depend on nothing that can change. It runs as it is where nothing is captured, and for tensors of
    several shapes (beside ``()``) or dtypes.
    """

    def decorate(function: Update) -> Update:
        name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        op = fused_update_op(name, tuple(signature(function).parameters), results, function)

        @wraps(function)
        def call(*operands: Any) -> tuple[Tensor, ...]:
            if active_modes and active_tracer() is not None and _is_even(op, operands):
                _, results = apply_modes(op, operands, {})
                if results is not NotImplemented:
                    return tuple(results)
            return function(*operands)

        return call

    return decorate


def _is_even(op: Op[...], operands: tuple[Any, ...]) -> bool:
    """Return whether all tensors have the shape of the first, or ``()``, and its dtype, a floating one."""
    first = operands[0]
    shape, dtype = first.shape, first.dtype
    if dtype not in op.dtypes:
        return False
    for x in operands:
        if isinstance(x, Tensor) and not (x.dtype is dtype and (x.shape == shape or x.shape == ())):
            return False
    return True
