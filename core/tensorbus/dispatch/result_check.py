"""Results of kernels and programs, held to what ops promise: once for each signature, at the first result.

A value's shape is known to core. Its dtype is the device's own affair: what ``from_host`` makes of a dtype is
what kernels must make of it, where its values have a ``dtype`` at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ..backend_interface.strided_array import StridedArray
from ..devices.device import Device
from ..dtypes.definition import DType
from ..ops.definition import Spec
from ..plugins import on_change

_natives: dict[tuple[Device, DType], Any] = {}
on_change(_natives.clear)
_NONE: Final = object()


def mismatch(result: Any, specs: Sequence[Spec], device: Device, *, several: bool) -> str | None:
    """Say what was returned and what must be, where the two differ; ``several``: a sequence is due."""
    if not several:
        return _differs(result, specs[0], device)
    if not isinstance(result, (tuple, list)):
        return f"returned {describe(result)}, and must return a tuple of {len(specs)}"
    if len(result) != len(specs):
        return f"returned {len(result)} values, and must return {len(specs)}"
    texts = (_differs(value, spec, device) for value, spec in zip(result, specs, strict=True))
    return next((f"{text}, as result {k} of {len(specs)}" for k, text in enumerate(texts) if text), None)


def _differs(value: Any, spec: Spec, device: Device) -> str | None:
    if getattr(value, "shape", None) != spec.shape:
        return f"returned {describe(value)}, and must return a value of shape {spec.shape}"
    native: Any = spec.dtype if type(value) is StridedArray else _native(spec.dtype, device)
    own = getattr(value, "dtype", _NONE)
    if native is _NONE or own == native:
        return None
    kind = f"{native}, which is what from_host of this device makes of {spec.dtype}"
    if own is _NONE:
        return f"returned a {type(value).__name__}, which has no dtype, and must return one of dtype {kind}"
    return f"returned {describe(value)} and dtype {own}, and must return one of dtype {kind}"


def describe(value: Any) -> str:
    """Say what a function returned in the place of a value."""
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"a value of shape {shape!r}"
    return repr(value) if value is None else f"a {type(value).__name__}, which has no shape"


def _native(dtype: DType, device: Device) -> Any:
    key = device, dtype
    if key not in _natives:
        empty = device.runtime.from_host(memoryview(b""), (0,), dtype, device.index)
        _natives[key] = getattr(empty, "dtype", _NONE)
    return _natives[key]
