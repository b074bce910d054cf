"""Checks of kernels that nobody examined: of what they return at each call, not at the first alone.

A kernel may return the right shape a thousand times and then another. Its results are compared as they
come: with operands and expected shapes at hand that is one comparison of tuples and one of dtypes by
identity, and whatever does not pass goes to the full check. Kernels of packages whose manifest says
``examined = true``, because the conformance kit examines them before each release, pay nothing.
``TENSORBUS_DEBUG=1`` has the results of all kernels compared, and their operands before and after each call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from zlib import crc32

from ..devices.device import Device, ValueType
from ..errors import PluginError
from ..ops.definition import Shape
from ..plugins import is_examined
from ..system import env

Run = Callable[..., Any]
Verify = Callable[[Sequence[Any], Any], None]
"""Raises what is wrong with the result of a kernel that was called with these values."""


def is_foreign(owner: str) -> bool:
    """Return whether each result of a package's kernels is compared: nobody examined them, or all are."""
    return env.debugging() or not is_examined(owner)


def checked(run: Run, verify: Verify, result: Any, shape: Shape | None, operands: Sequence[object]) -> Run:
    """Return ``run`` with a check of each result; the right ``result`` of its first call is at hand.

    ``shape`` is that of all results, None where it is the operands' common one; ``operands`` are their
    types. A result that passes has the shape of all operands and the first one's
    dtype, the same object; any other is given to ``verify``.
    """
    if isinstance(result, (tuple, list)):
        return _verified(run, verify)
    dtype = getattr(result, "dtype", None)
    if shape is not None:
        return _sized(run, verify, shape, dtype, len(operands))
    tensors = [k for k, o in enumerate(operands) if isinstance(o, ValueType)]
    if tensors == [0, 1] and len(operands) == 2:
        return _binary(run, verify, dtype)
    if len(tensors) == 1:
        return _unary(run, verify, tensors[0], dtype)
    return _verified(run, verify)


def _verified(run: Run, verify: Verify) -> Run:
    def call(*values: Any) -> Any:
        out = run(*values)
        verify(values, out)
        return out

    return call


def _sized(run: Run, verify: Verify, shape: Shape, dtype: Any, count: int) -> Run:
    def call(*values: Any) -> Any:
        out = run(*values)
        try:
            if out.shape == shape and (dtype is None or out.dtype is dtype):
                return out
        except AttributeError:
            pass
        verify(values, out)
        return out

    def call_one(x: Any) -> Any:  # most are of one operand or two, and need no tuple of them
        out = run(x)
        try:
            if out.shape == shape and (dtype is None or out.dtype is dtype):
                return out
        except AttributeError:
            pass
        verify((x,), out)
        return out

    def call_two(x: Any, y: Any) -> Any:
        out = run(x, y)
        try:
            if out.shape == shape and (dtype is None or out.dtype is dtype):
                return out
        except AttributeError:
            pass
        verify((x, y), out)
        return out

    by_count: dict[int, Run] = {1: call_one, 2: call_two}
    return by_count.get(count, call)


def _unary(run: Run, verify: Verify, place: int, dtype: Any) -> Run:
    def call(*values: Any) -> Any:
        out = run(*values)
        try:
            if out.shape == values[place].shape and (dtype is None or out.dtype is dtype):
                return out
        except AttributeError:
            pass
        verify(values, out)
        return out

    return call


def _binary(run: Run, verify: Verify, dtype: Any) -> Run:
    def call(x: Any, y: Any) -> Any:
        out = run(x, y)
        try:
            if out.shape == x.shape == y.shape and (dtype is None or out.dtype is dtype):
                return out
        except AttributeError:
            pass
        verify((x, y), out)
        return out

    return call


def with_fingerprints(run: Run, operands: Sequence[object], device: Device, where: str) -> Run:
    """Return ``run`` with a comparison of its operands' bytes before and after each call.

    ``operands`` are their types; ``where`` names the op, the device and the kernel. The call raises
    ``PluginError`` naming the operand that the kernel wrote into.
    """
    kinds = [o if isinstance(o, ValueType) else None for o in operands]

    to_host, index = device.runtime.to_host, device.index

    def prints(values: Sequence[Any]) -> list[int]:
        pairs = zip(kinds, values, strict=True)
        return [0 if kind is None else crc32(to_host(value, kind.dtype, index)) for kind, value in pairs]

    def call(*values: Any) -> Any:
        before = prints(values)
        out = run(*values)
        changed = [k for k, (old, new) in enumerate(zip(before, prints(values), strict=True)) if old != new]
        if changed:
            raise PluginError(
                f"{where} wrote into its operand {changed[0]}, and must leave operands as they are, which"
                f" others hold too. Have it write to a copy."
            )
        return out

    return call
