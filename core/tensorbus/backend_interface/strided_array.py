"""``StridedArray``: the value of a device that has memory but no array library.

It is a buffer of the device with a shape, strides and an offset, all counted in elements. It is immutable:
movement ops make another view of the same buffer, every other op makes a new buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

from ..dtypes.definition import DType

Shape = tuple[int, ...]


def row_major(shape: Shape) -> Shape:
    """Return the strides, in elements, of a C-ordered array.

    >>> row_major((2, 3, 4))
    (12, 4, 1)
    """
    strides = []
    step = 1
    for length in reversed(shape):
        strides.append(step)
        step *= max(length, 1)
    return tuple(reversed(strides))


class StridedArray:
    """A view of ``buffer``: element ``i`` lies at ``offset + sum(i[k] * strides[k])``.

    The fields are final for the type checker only: each result of each call is such an object, and a frozen
    dataclass takes four times as long to make.
    """

    __slots__ = ("buffer", "dtype", "offset", "shape", "strides")

    def __init__(self, buffer: Any, shape: Shape, strides: Shape, offset: int, dtype: DType) -> None:
        self.buffer: Final = buffer
        self.shape: Final = shape
        self.strides: Final = strides
        self.offset: Final = offset
        self.dtype: Final = dtype

    def __repr__(self) -> str:
        return f"StridedArray({self.buffer!r}, {self.shape}, {self.strides}, {self.offset}, {self.dtype})"

    @classmethod
    def contiguous(cls, buffer: Any, shape: Shape, dtype: DType) -> StridedArray:
        """Return the C-ordered array that fills ``buffer``."""
        return cls(buffer, shape, row_major(shape), 0, dtype)

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The number of bytes of the elements, were they packed."""
        return self.size * self.dtype.itemsize

    @property
    def is_contiguous(self) -> bool:
        """True where the elements lie packed in C order (axes of length 0 and 1 never matter)."""
        if 0 in self.shape:
            return True
        step = 1
        for length, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if length != 1 and stride != step:
                return False
            step *= length
        return True

    def view(self, shape: Shape, strides: Sequence[int], offset: int = 0) -> StridedArray:
        """Return another view of the buffer, ``offset`` elements further on; an empty one points nowhere."""
        if 0 in shape:
            return StridedArray(self.buffer, shape, row_major(shape), 0, self.dtype)
        return StridedArray(self.buffer, shape, tuple(strides), self.offset + offset, self.dtype)


def broadcast_to(x: StridedArray, shape: Shape) -> StridedArray:
    """Return the view in which axes of length 1 repeat (stride 0)."""
    lead = len(shape) - len(x.shape)
    strides = [
        0 if length == 1 and want != 1 else stride
        for length, stride, want in zip(x.shape, x.strides, shape[lead:], strict=True)
    ]
    return x.view(shape, [0] * lead + strides)


def permute_dims(x: StridedArray, axes: Sequence[int]) -> StridedArray:
    """Return the view with axis ``axes[k]`` at place ``k``."""
    return x.view(tuple(x.shape[a] for a in axes), [x.strides[a] for a in axes])


def slice_(x: StridedArray, start: Sequence[int], size: Shape, step: Sequence[int]) -> StridedArray:
    """Return the view of ``size`` elements an axis, from ``start`` on, ``step`` (maybe negative) apart."""
    offset = sum(b * s for b, s in zip(start, x.strides, strict=True)) if 0 not in size else 0
    return x.view(tuple(size), [s * t for s, t in zip(x.strides, step, strict=True)], offset)


def flip(x: StridedArray, axis: Sequence[int]) -> StridedArray:
    """Return the view that runs backwards along ``axis``."""
    backwards = [k in axis and length > 0 for k, length in enumerate(x.shape)]
    offset = sum((n - 1) * s for n, s, back in zip(x.shape, x.strides, backwards, strict=True) if back)
    return x.view(x.shape, [-s if back else s for s, back in zip(x.strides, backwards, strict=True)], offset)


def diagonal(x: StridedArray, offset: int) -> StridedArray:
    """Return the view of the elements ``(k, k + offset)`` of the matrices of the last two axes."""
    (*lead, rows, columns), (*steps, down, right) = x.shape, x.strides
    length = min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns)
    start = offset * right if offset >= 0 else -offset * down
    return x.view((*lead, max(length, 0)), (*steps, down + right), start)


def windows(
    x: StridedArray, size: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> StridedArray:
    """Return the view of all windows over the last axes: ``lead + counts + size``."""
    rank = len(size)
    lead, space = x.shape[: len(x.shape) - rank], x.shape[len(x.shape) - rank :]
    steps = x.strides[len(lead) :]
    counts = tuple(
        (n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(space, size, stride, dilation, strict=True)
    )
    return x.view(
        (*lead, *counts, *size),
        [
            *x.strides[: len(lead)],
            *(a * s for a, s in zip(steps, stride, strict=True)),
            *(a * d for a, d in zip(steps, dilation, strict=True)),
        ],
    )


def reshape(x: StridedArray, shape: Shape) -> StridedArray | None:
    """Return the reshaped view, or None where the elements must be packed first."""
    return x.view(shape, row_major(shape)) if x.is_contiguous else None
