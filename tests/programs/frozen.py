"""Snapshots of a program's results: values, types, aliasing; and how two of them differ."""

from __future__ import annotations

import dataclasses
import enum
import math
import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorbus as tb
from tensorbus.dtypes.definition import DType

EPSILON = {
    "float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52,
    "complex64": 2.0**-23, "complex128": 2.0**-52,
}  # fmt: skip
_PLAIN = (type(None), bool, int, float, complex, str, bytes, range, slice, type(...), DType)


@dataclasses.dataclass(frozen=True, slots=True)
class Value:
    """A tensor's outside: type, shape, dtype, device, history, elements, gradient."""

    kind: tuple[Any, ...]
    dtype: str
    elements: tuple[Any, ...]
    grad: Any


class Freezer:
    """Freezes objects one after another; one that was seen before becomes its number."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._seen: dict[int, tuple[int, Any]] = {}

    def __call__(self, x: Any) -> Any:
        """Return ``x`` as nested tuples of plain values and tensors' ``Value``."""
        if isinstance(x, str):
            return x.replace(f"{self._device}:0", "DEVICE")
        if isinstance(x, _PLAIN):
            return x
        if isinstance(x, tuple):
            return (type(x).__name__, *map(self, x))
        if isinstance(x, (tb.Device, type, types.FunctionType, types.BuiltinFunctionType)):
            return self(getattr(x, "__qualname__", None) or str(x))
        known = self._seen.get(id(x))
        if known is not None:
            return ("seen before", known[0])
        self._seen[id(x)] = (len(self._seen), x)
        return self._inside(x)

    def _inside(self, x: Any) -> Any:
        name = type(x).__name__
        if isinstance(x, tb.Tensor):
            return self._tensor(x)
        if isinstance(x, tb.nn.Module):
            return (name, *[(path, *self._module(m)) for path, m in x.named_modules()])
        if isinstance(x, np.ndarray):
            return (name, str(x.dtype), self(x.tolist()))
        if isinstance(x, enum.Enum):
            return (name, x.name)
        if isinstance(x, dict):
            return (name, *[(self(k), self(v)) for k, v in x.items()])
        if isinstance(x, (set, frozenset)):
            return (name, *sorted(map(self, x), key=repr))
        if isinstance(x, BaseException):
            return (name, self(str(x)))
        if hasattr(x, "state_dict"):
            return (name, self(x.state_dict()))
        if isinstance(x, Iterator) or (hasattr(x, "__len__") and not isinstance(x, Mapping)):
            return (name, *map(self, x))
        slots = [s for kind in type(x).__mro__ for s in getattr(kind, "__slots__", ()) if hasattr(x, s)]
        return (name, self({s: getattr(x, s) for s in slots} | getattr(x, "__dict__", {})))

    def _tensor(self, x: tb.Tensor) -> Value:
        kind = (type(x).__name__, x.shape, self(str(x.device)), x.requires_grad, x.is_leaf)
        flat = x.detach().reshape(-1).tolist()
        grad = None if x.grad is None else Freezer(self._device)(x.grad)
        return Value(kind, x.dtype.name, tuple(flat), grad)

    def _module(self, module: tb.nn.Module) -> tuple[Any, ...]:
        plain = {k: v for k, v in vars(module).items() if not k.startswith("_")}
        own = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
        return self(plain), *[(k, self(v)) for k, v in own]


def differences(want: Any, got: Any, ulps: int, at: str) -> Iterator[str]:
    """Yield what differs between two frozen things, with its place."""
    if type(want) is not type(got):
        yield f"{at}: {got!r} instead of {want!r}"
    elif isinstance(want, Value):
        yield from _tensors(want, got, ulps, at)
    elif isinstance(want, tuple):
        if len(want) != len(got):
            yield f"{at}: {len(got)} parts instead of {len(want)}: {got!r} instead of {want!r}"
        else:
            for place, (a, b) in enumerate(zip(want, got, strict=True)):
                yield from differences(a, b, ulps, f"{at}[{place}]")
    elif isinstance(want, (float, complex)):
        if not _close(want, got, ulps * EPSILON["float32"]):
            yield f"{at}: {got!r} instead of {want!r}"
    elif want != got:
        yield f"{at}: {got!r} instead of {want!r}"


def _tensors(want: Value, got: Value, ulps: int, at: str) -> Iterator[str]:
    if (want.kind, want.dtype) != (got.kind, got.dtype):
        yield f"{at}: a tensor {got.kind} {got.dtype} instead of {want.kind} {want.dtype}"
        return
    unit = ulps * EPSILON.get(want.dtype, 0.0)
    for place, (a, b) in enumerate(zip(want.elements, got.elements, strict=True)):
        if not _close(a, b, unit):
            yield f"{at}, element {place} of {want.kind[1]} {want.dtype}: {b!r} instead of {a!r}"
            break
    yield from differences(want.grad, got.grad, ulps, f"{at}.grad")


def _close(want: Any, got: Any, unit: float) -> bool:
    if isinstance(want, complex):
        return _close(want.real, got.real, unit) and _close(want.imag, got.imag, unit)
    if isinstance(want, float) and math.isfinite(want):
        return bool(abs(got - want) <= unit * max(1.0, abs(want)))
    return bool(want == got or (want != want and got != got))
