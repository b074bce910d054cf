"""Methods that change a tensor: each computes a new value, which the cell then holds.

One table says what; nothing is written into memory that others see. What is one op, and large, is written
over the value where nobody can tell.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from math import prod
from typing import Any, Final

from ..autograd.node_order import order
from ..compat.torch_names import IN_PLACE
from ..dtypes.definition import bool_
from ..errors import ArgumentError
from ..interchange.host_array import as_assigned_value
from ..ops.call_errors import error_of_call, misfit
from ..ops.definition import InPlaceCall, table
from ..ops.elementwise.activation import clip
from ..ops.elementwise.arithmetic import add as _add
from ..ops.elementwise.arithmetic import addcdiv, addcmul, divide, floor_divide, fmod, multiply, trunc
from ..ops.elementwise.arithmetic import lerp as _lerp
from ..ops.elementwise.transcendental import power
from ..ops.elementwise.where_cast import cast
from ..ops.indexing import indexing
from ..ops.indexing.index_select import masked_fill as _masked_fill
from ..random.generator import Generator, normal, uniform
from ..tensor.tensor import Tensor
from .inplace_kernel import INPLACE_MIN_SIZE


def _copy(x: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    """Hold the elements of ``src``, broadcast, in this dtype and on this device."""
    if isinstance(src, Tensor):
        src = src.to(x.device, x.dtype, non_blocking=non_blocking)
    return _held(x, src, "copy_")


def _fill(x: Tensor, value: Any) -> Tensor:
    """Hold a value everywhere."""
    return _held(x, value, "fill_")


def _held(x: Tensor, value: Any, by: str) -> Tensor:
    assigned = value if isinstance(value, Tensor) else as_assigned_value(value, x)
    what = indexing.assignment(x, ..., assigned)
    if what is not None and table.run_in_place(what._replace(by=by)):
        return x
    return indexing.setitem(x, ..., assigned)


def _zero(x: Tensor) -> Tensor:
    """Hold zeros."""
    return _held(x, 0, "zero_")


def _plus(x: Tensor, other: Any, *, alpha: complex = 1) -> Tensor:
    """Add ``alpha * other``."""
    return _add(x, other if type(alpha) is int and alpha == 1 else other * alpha)


def _minus(x: Tensor, other: Any, *, alpha: complex = 1) -> Tensor:
    """Subtract ``alpha * other``."""
    return _plus(x, other, alpha=-alpha)


def _times(x: Tensor, other: Any) -> Tensor:
    """Multiply by ``other``."""
    return multiply(x, other)


def _over(x: Tensor, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """Divide by ``other``; ``rounding_mode`` is None, ``"trunc"`` or ``"floor"``."""
    if rounding_mode not in (None, "trunc", "floor"):
        raise ArgumentError(f"div_: rounding_mode is None, 'trunc' or 'floor', got {rounding_mode!r}.")
    if rounding_mode == "floor":
        return floor_divide(x, other)
    if rounding_mode is None:
        return divide(x, other)
    return floor_divide(x - fmod(x, other), other) if x.dtype.is_integer else trunc(divide(x, other))


def _to_the(x: Tensor, exponent: Any) -> Tensor:
    """Raise to a power."""
    return power(x, exponent)


def _towards(x: Tensor, end: Any, weight: Any) -> Tensor:
    """Go the share ``weight`` of the way to ``end``."""
    return _lerp(x, end, weight)


def _limited(x: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """Limit to ``min`` from below and ``max`` from above."""
    limited: Tensor = clip(x, min, max)
    return limited


def _plus_product(x: Tensor, tensor1: Any, tensor2: Any, *, value: complex = 1) -> Tensor:
    """Add ``value * tensor1 * tensor2``."""
    out: Tensor = addcmul(x, tensor1, tensor2, value=value)
    return out


def _plus_quotient(x: Tensor, tensor1: Any, tensor2: Any, *, value: complex = 1) -> Tensor:
    """Add ``value * tensor1 / tensor2``."""
    out: Tensor = addcdiv(x, tensor1, tensor2, value=value)
    return out


def _masked(x: Tensor, mask: Tensor, value: Any) -> Tensor:
    """Hold ``value`` where ``mask`` is true."""
    if isinstance(mask, Tensor) and mask.dtype is bool_ and prod(x._value.shape) >= INPLACE_MIN_SIZE:
        assigned = value if isinstance(value, Tensor) else as_assigned_value(value, x)
        if table.run_in_place(InPlaceCall("where", (mask, assigned, x), {}, 2, "masked_fill_")):
            return x
    out: Tensor = _masked_fill(x, mask, value)
    return out


def _normal(x: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Hold normally distributed numbers."""
    drawn = normal(x.shape, mean, std, dtype=x.dtype, device=x.device, generator=generator)
    return _held(x, drawn, "normal_")


def _uniform(x: Tensor, low: float = 0.0, high: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Hold numbers spread evenly over ``[low, high)``."""
    drawn = uniform(x.shape, low, high, dtype=x.dtype, device=x.device, generator=generator)
    return _held(x, drawn, "uniform_")


_SAME: Final = {"add_": "add", "sub_": "subtract", "mul_": "multiply", "div_": "divide"}
"""The ops that methods without options come down to."""


def _method(name: str, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    op = _SAME.get(name, "")

    @wraps(function)
    def change(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        large = len(args) == 1 and not kwargs and prod(self._value.shape) >= INPLACE_MIN_SIZE
        if op and large and table.run_in_place(InPlaceCall(op, (self, *args), {}, by=name)):
            return self
        since = next(order)
        try:
            out = function(self, *args, **kwargs)
        except Exception as error:
            misuse = error_of_call(function, name, (self, *args), kwargs, error)
            if misuse is error:
                raise
            raise misuse from None
        if out is self:
            return self
        if out.dtype is not self.dtype and out.dtype.kind in (self.dtype.kind, "bool"):
            out = cast(out, self.dtype)  # as an assignment to x[...] does
        self.rebind(out, by=name, since=since)
        return self

    change.__name__, change.__qualname__ = name, f"Tensor.{name}"
    change.__doc__ = f"{function.__doc__} Changes the tensor, and returns it."
    return change


_TABLE: Final[dict[str, Callable[..., Tensor]]] = {
    "copy_": _copy, "fill_": _fill, "zero_": _zero, "add_": _plus, "sub_": _minus, "mul_": _times,
    "div_": _over, "pow_": _to_the, "lerp_": _towards, "clamp_": _limited, "clip_": _limited,
    "addcmul_": _plus_product, "addcdiv_": _plus_quotient, "masked_fill_": _masked, "normal_": _normal,
    "uniform_": _uniform, "multiply_": _times, "subtract_": _minus, "divide_": _over,
}  # fmt: skip


def _of(name: str) -> Callable[..., Tensor]:
    """Return the method of that name as a function, looked up when it is first called."""

    def function(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        method = getattr(Tensor, name)
        try:
            out: Tensor = method(x, *args, **kwargs)
        except TypeError as error:
            misuse = misfit(method, f"{name}_", error)
            if misuse is None:
                raise
            raise misuse from None
        return out

    function.__doc__ = f"Hold what ``x.{name}(...)`` returns; of comparisons 0 and 1."
    return function


METHODS: Final = {
    name: _method(name, function)
    for name, function in {**{f"{name}_": _of(name) for name in IN_PLACE}, **_TABLE}.items()
}
