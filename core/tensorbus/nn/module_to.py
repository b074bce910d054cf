"""Moving the cells of a module: to another device, another floating-point dtype, or both."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..autograd.engine import no_grad
from ..devices.device import device
from ..dtypes import definition as dt
from ..dtypes.definition import DType
from ..errors import DtypeError
from ..ops.call_errors import misfit
from ..ops.creation.creation import empty
from ..tensor.tensor import Tensor
from .parameter import hold
from .uninitialized_parameter import is_lazy


def move(cells: Iterable[Tensor], *args: Any, non_blocking: bool = False, **kwargs: Any) -> None:
    """Make every cell hold its value elsewhere, integers in their own dtype.

    All values are made before the first is held: where one cannot move, none does.
    """
    try:
        where, dtype = _target(*args, **kwargs)
    except TypeError as error:
        raise misfit(_target, "to", error) or error from None
    once = list({id(c): c for c in cells}.values())
    with no_grad():
        values = [
            empty((), device=where or c.device, dtype=dtype or c.dtype) if is_lazy(c)
            else c.to(device=where, dtype=dtype if c.dtype.is_inexact else None, non_blocking=non_blocking)
            for c in once
        ]  # fmt: skip
    for cell, value in zip(once, values, strict=True):
        if value is not cell:
            hold(cell, value)


def _target(*args: Any, device: Any = None, dtype: DType | str | None = None) -> tuple[Any, DType | None]:
    for arg in args:
        if isinstance(arg, Tensor):
            device, dtype = arg.device, arg.dtype
        elif isinstance(arg, DType) or (isinstance(arg, str) and arg in dt.BY_NAME):
            dtype = arg
        elif arg is not None:
            device = arg
    kind = None if dtype is None else dt.dtype(dtype)
    if kind is not None and not kind.is_inexact:
        raise DtypeError(f"a module is moved to a floating-point or complex dtype, got {kind}.")
    return _device(device), kind


def _device(spec: Any) -> Any:
    return None if spec is None else device(spec)
