"""``autocast``, a mode: products in a narrow dtype, what needs range in float32; the model stays as it is.

Micikevicius et al.: "Mixed precision training", 2018. Ops of the first kind get their float operands cast to
the narrow dtype, ops of the second to float32; all others take what comes, by the rules of promotion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from types import TracebackType
from typing import Any, Final, ParamSpec, TypeVar

from ..devices.device import Device
from ..dispatch.modes import Mode, inner_device, is_value_mode
from ..dtypes import definition as dt
from ..dtypes.definition import DType
from ..errors import DeviceError, DtypeError, suggest
from ..ops.definition import Op, table
from ..plugins import known_types
from ..system.context_decorator import decorated
from ..tensor.tensor import Tensor
from ..tracing.active_modes import mode_stack
from ..tracing.autocast_state import autocast_dtype

P = ParamSpec("P")
R = TypeVar("R")
_FLOATS: Final = frozenset({dt.float16, dt.bfloat16, dt.float32})


@dataclass(frozen=True, slots=True)
class Within:
    """A narrow dtype for tensors on one type of device; there is one object for each."""

    device_type: str
    dtype: DType


@cache
def _within(device_type: str, dtype: DType) -> Within:
    return Within(device_type, dtype)


def _lies_on(device: Device | None, device_type: str) -> bool:
    """Return whether a device, or one that it stands for, as a mesh does for that of parts, is of a type."""
    while device is not None and device.type != device_type:
        device = inner_device(device)
    return device is not None


class autocast(Mode):  # noqa: N801 - a function to its users
    """Compute products in ``dtype`` inside a ``with`` block or a decorated function, for this thread or task.

    Matrix products, convolutions and attention take float32 operands as ``dtype`` (bfloat16 or float16);
    softmax, losses, norms and long sums take narrow ones as float32. ``enabled=False`` turns it off within.
    Gradients have the dtypes of what they belong to. ``autocast("cpu", tb.bfloat16)`` concerns tensors
    on devices of that type only, distributed ones by their parts or, as ``x.device.type``, by the mesh.
    Raises ``DtypeError`` for another dtype, ``DeviceError`` for a type that is not installed.

    >>> import tensorbus as tb
    >>> x = tb.ones((2, 2))
    >>> with tb.autocast(tb.bfloat16):
    ...     y = x @ x
    ...     z = y.sum()
    >>> y.dtype, z.dtype
    (tensorbus.bfloat16, tensorbus.float32)
    """

    reentrant = True  # the casts that it calls are asked for nothing
    guarded = True

    def __init__(
        self, device_type: DType | str | None = None, dtype: DType | str | None = None, *,
        enabled: bool = True,
    ) -> None:  # fmt: skip
        if dtype is None and (isinstance(device_type, DType) or device_type in dt.BY_NAME):
            device_type, dtype = None, device_type
        if device_type is not None and (not isinstance(device_type, str) or ":" in device_type):
            raise DeviceError(f"autocast: a type of device is needed, as 'cpu', got {device_type!r}.")
        if not (device_type is None or device_type in known_types() or is_value_mode(device_type)):
            suggestion = suggest(device_type, (*known_types(), "bfloat16", "float16"))
            raise DeviceError(f"autocast: no device of type {device_type!r} is installed.{suggestion}")
        kind = dt.bfloat16 if dtype is None else dt.dtype(dtype)
        if kind not in (dt.float16, dt.bfloat16):
            raise DtypeError(f"autocast: the dtype is float16 or bfloat16, got {kind}.")
        self._kind = None if not enabled else kind if device_type is None else _within(device_type, kind)
        self._entries = []

    def __enter__(self) -> None:
        super().__enter__()
        autocast_dtype.set(self._kind)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        outer = [mode._kind for mode in mode_stack.get() if isinstance(mode, autocast)]
        autocast_dtype.set(outer[-1] if outer else None)

    def rewrite(self, op: Op[...], operands: Sequence[Any], attrs: dict[str, Any]) -> Sequence[Any]:
        """Return the operands in the dtypes that this asks for, where no autocast further in asks."""
        setting = self._kind
        if setting is None or op.autocast is None or setting is not autocast_dtype.get():
            return operands
        only = None
        if isinstance(setting, Within):
            only, setting = setting.device_type, setting.dtype
        kinds: dict[Any, DType] = {"narrow": setting, "wide": dt.float32}
        target = kinds.get(op.autocast) or op.autocast
        cast = table.function("cast")

        def fits(x: Any) -> bool:
            return not isinstance(x, Tensor) or x.dtype is target or x.dtype not in _FLOATS

        return [
            x if fits(x) or not (only is None or _lies_on(x.device, only)) else cast(x, target)
            for x in operands
        ]

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return ``function`` as it runs inside; of a generator function, each step does."""
        return decorated(self._again, function)

    def _again(self) -> autocast:
        again = autocast()
        again._kind = self._kind
        return again
