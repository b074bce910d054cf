"""Padding layers over the last one, two or three axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ...errors import ArgumentError
from ...tensor.tensor import Tensor
from .. import functional
from ..module import Module


class _Pad(Module):
    rank: ClassVar[int]
    mode: ClassVar[str] = "constant"

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__()
        count = 2 * self.rank
        widths = (padding,) * count if isinstance(padding, int) else tuple(padding)
        if len(widths) != count or not all(isinstance(n, int) for n in widths):
            raise ArgumentError(
                f"{type(self).__name__}: padding must be an integer or {count} of them, got {padding!r}."
            )
        self.padding = widths

    def forward(self, input: Tensor) -> Tensor:
        """Return ``input`` padded. Raises ``ShapeError`` where it is too small for it."""
        return functional.pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        """Return the lengths."""
        return f"{self.padding}"


class _ConstantPad(_Pad):
    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        """Return ``input`` padded with the value."""
        return functional.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        """Return the lengths and the value."""
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad):
    """A number around the last axis: ``padding`` is one length, or ``(left, right)``.

    >>> import tensorbus as tb
    >>> tb.nn.ConstantPad1d((1, 0), 7.0)(tb.asarray([[1.0]])).tolist()
    [[7.0, 1.0]]
    """

    rank = 1


class ConstantPad2d(_ConstantPad):
    """A number around the last two axes: one length, or ``(left, right, top, bottom)``."""

    rank = 2


class ConstantPad3d(_ConstantPad):
    """A number around the last three axes: one length, or six."""

    rank = 3


class ZeroPad1d(_Pad):
    """Zeros around the last axis."""

    rank = 1


class ZeroPad2d(_Pad):
    """Zeros around the last two axes: one length, or ``(left, right, top, bottom)``."""

    rank = 2


class ZeroPad3d(_Pad):
    """Zeros around the last three axes."""

    rank = 3


class ReflectionPad1d(_Pad):
    """A mirror image at the ends of the last axis, the edge not repeated."""

    rank = 1
    mode = "reflect"


class ReflectionPad2d(_Pad):
    """A mirror image at the ends of the last two axes, the edge not repeated."""

    rank = 2
    mode = "reflect"


class ReflectionPad3d(_Pad):
    """A mirror image at the ends of the last three axes, the edge not repeated."""

    rank = 3
    mode = "reflect"


class ReplicationPad1d(_Pad):
    """The outermost elements of the last axis, repeated."""

    rank = 1
    mode = "replicate"


class ReplicationPad2d(_Pad):
    """The outermost elements of the last two axes, repeated."""

    rank = 2
    mode = "replicate"


class ReplicationPad3d(_Pad):
    """The outermost elements of the last three axes, repeated."""

    rank = 3
    mode = "replicate"


class CircularPad1d(_Pad):
    """Pads with the values at the other end of the last axis."""

    rank = 1
    mode = "circular"


class CircularPad2d(_Pad):
    """Pads with the values at the other end of the last two axes."""

    rank = 2
    mode = "circular"


class CircularPad3d(_Pad):
    """Pads with the values at the other end of the last three axes."""

    rank = 3
    mode = "circular"
