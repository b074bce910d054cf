"""The question whether two values of a device lie in the same memory, as far as their library tells."""

from __future__ import annotations

from typing import Any

from ..backend_interface.strided_array import StridedArray


def may_be_view(value: Any) -> bool:
    """Return whether a value may lie in memory that another one has: quickly, for what mostly does not."""
    return type(value) is StridedArray or getattr(value, "base", None) is not None


def shares_memory(a: Any, b: Any) -> bool:
    """Return whether two values are one, or overlap: strided arrays by buffer, others by address."""
    if a is b:
        return True
    if type(a) is StridedArray or type(b) is StridedArray:
        return type(a) is type(b) and a.buffer is b.buffer
    first, second = _span(a), _span(b)
    if first is None or second is None:
        return False
    return max(first[0], second[0]) < min(first[1], second[1])


def _span(value: Any) -> tuple[int, int] | None:
    """Return the first address of a value and that after its last; None where that is not known."""
    about = getattr(value, "__array_interface__", None) or getattr(value, "__cuda_array_interface__", None)
    if about is None or 0 in about["shape"]:
        return None
    size = int(about["typestr"][2:])
    lengths, strides, start = about["shape"], about.get("strides"), int(about["data"][0])
    if strides is None:
        strides, step = [], size
        for n in reversed(lengths):
            strides.insert(0, step)
            step *= n
    reach = [(n - 1) * s for n, s in zip(lengths, strides, strict=True)]
    return start + sum(min(r, 0) for r in reach), start + sum(max(r, 0) for r in reach) + size
