"""Checks that a derivative returned by user code has the shape of what it is the gradient of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..devices.device import ValueType
from ..errors import AutogradError
from ..ops.elementwise.arithmetic import real
from ..ops.elementwise.where_cast import cast
from ..ops.movement.movement import sum_to
from ..tensor.tensor import Tensor


def checked_gradients(
    returned: Sequence[Any], xs: Sequence[Any], who: str, wanted: Sequence[Any] | None = None
) -> list[Tensor | None]:
    """Return each of ``returned`` in the shape and dtype of the tensor at its place in ``xs``; None stays.

    ``wanted`` has None at the places whose gradients nobody needs. Raises as ``checked_gradient`` does.
    """
    return [
        None if value is None or (wanted is not None and wanted[place] is None)
        else checked_gradient(value, x.shape, x._vtype.materialized, who, place)
        for place, (value, x) in enumerate(zip(returned, xs, strict=True))
    ]  # fmt: skip


def checked_gradient(back: Any, shape: tuple[int, ...], kind: ValueType, who: str, place: int) -> Tensor:
    """Return a gradient in the shape and dtype of argument ``place``, summed where that was broadcast.

    Raises ``AutogradError``, which begins with ``who``, for what is no tensor and for another shape.
    """
    if not isinstance(back, Tensor):
        raise AutogradError(
            f"{who} returned {type(back).__name__} for argument {place}; a tensor or None is needed."
        )
    got = back.shape
    lead = len(got) - len(shape)
    if lead or got != shape:  # tuples compare items first: of open lengths that is a condition
        if lead < 0 or any(n not in (1, m) for n, m in zip(shape, got[lead:], strict=True)):
            raise AutogradError(
                f"{who} returned a gradient of shape {got} for argument {place}, which has shape {shape}."
            )
        back = sum_to(back, shape)
    if back.dtype.is_complex and not kind.dtype.is_complex:
        # A real operand cannot move off the real axis: only that part of the slope is its.
        back = real(back)
    return back if back.dtype is kind.dtype else cast(back, kind.dtype)
