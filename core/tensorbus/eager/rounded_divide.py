"""``divide`` as users call it: with PyTorch's ``rounding_mode``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError
from ..ops.argument_kinds import shown
from ..ops.elementwise import arithmetic

if TYPE_CHECKING:
    from ..tensor.tensor import Tensor


def divide(x: Any, y: Any, /, *, rounding_mode: str | None = None) -> Tensor:
    """Return ``x / y``, rounded towards zero or down where ``rounding_mode`` is ``"trunc"`` or ``"floor"``.

    Rounded quotients of integers are integers. Raises ``ArgumentError`` for another mode.

    >>> import tensorbus as tb
    >>> tb.divide(tb.asarray([7, -7]), 2, rounding_mode="trunc").tolist()
    [3, -3]
    """
    if rounding_mode is None:
        return arithmetic.divide.function(x, y)
    if not isinstance(rounding_mode, str):
        raise ArgumentError(f"divide: rounding_mode is None, 'trunc' or 'floor', got {shown(rounding_mode)}.")
    if rounding_mode == "floor":
        return arithmetic.floor_divide(x, y)
    if rounding_mode != "trunc":
        raise ArgumentError(f"divide: rounding_mode is None, 'trunc' or 'floor', got {rounding_mode!r}.")
    rest = arithmetic.fmod(x, y)
    if rest.dtype.is_floating:
        return arithmetic.trunc(arithmetic.divide(x, y))
    return arithmetic.floor_divide(arithmetic.subtract(x, rest), y)
