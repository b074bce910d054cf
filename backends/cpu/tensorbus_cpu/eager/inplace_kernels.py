"""Changes in place: what writes over an array that nobody else refers to, where its memory is its own.

NumPy's views, exports and buffers refer to the array whose memory it is, so counting who refers to that one
finds them all.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from tensorbus.backend_api import Call, IndexingError


def _references(array: Any) -> int:
    return sys.getrefcount(array.base)


_UNSHARED = _references(np.empty(2)[:1])


def is_own(array: Any) -> bool:
    """Return whether nothing else refers to the packed memory of an array that nobody else refers to."""
    flags = array.flags
    if not (flags.c_contiguous and flags.writeable and flags.aligned):
        return False
    if flags.owndata:
        return True
    base = array.base
    if type(base) is not np.ndarray or not base.flags.owndata or not base.flags.writeable:
        return False
    del base
    return _references(array) == _UNSHARED


def slice_update(call: Call, place: int) -> Callable[..., bool] | None:
    """Return what writes a box."""
    assert call.shapes is not None
    size, step = call.shapes[1], call.attrs["step"]

    def write(x: Any, value: Any, start: tuple[int, ...]) -> bool:
        if not is_own(x):
            return False
        ends = [b + n * s for b, n, s in zip(start, size, step, strict=True)]
        box = [slice(b, e if e >= 0 else None, s) for b, e, s in zip(start, ends, step, strict=True)]
        x[tuple(box)] = value
        return True

    return write if place == 0 else None


def scatter(call: Call, place: int) -> Callable[..., bool] | None:
    """Return what puts a few values at the places that indices name, which are looked at before."""
    assert call.shapes is not None
    if place or call.attrs["mode"] != "set":
        return None

    def write(x: Any, value: Any, *indices: Any) -> bool:
        if not is_own(x):
            return False
        for axis, index in enumerate(indices):
            if index.size:
                low, high = int(index.min()), int(index.max())
                if low < 0 or high >= x.shape[axis]:
                    wrong = high if high >= x.shape[axis] else low
                    raise IndexingError(
                        f"scatter: index {wrong} is out of range for axis {axis} of length {x.shape[axis]}."
                    )
        # In memory order, or NumPy may store the values of one place in another order.
        x[tuple(map(np.ascontiguousarray, indices))] = np.ascontiguousarray(value)
        return True

    return write
