"""``x.size``: the number of elements, which may be called as PyTorch's method that gives the lengths."""

from __future__ import annotations

from math import prod
from operator import index
from typing import Any

from ..errors import AxisError
from ..tracing.sym_int import SymInt

Shape = tuple[int, ...]


class ElementCount(int):
    """A number of elements. Called, it gives the shape they have, or the length of one axis.

    >>> import tensorbus as tb
    >>> x = tb.ones((2, 3))
    >>> x.size, x.size(), x.size(-1), x.size(dim=0)
    (6, (2, 3), 3, 2)
    """

    _lengths: Shape

    def __call__(self, dim: int | None = None) -> Any:
        """Return the shape, or the length of axis ``dim``. Raises ``AxisError`` for one that is not there."""
        if dim is None:
            return self._lengths
        try:
            return self._lengths[index(dim)]
        except (IndexError, TypeError):
            raise AxisError(
                f"size: axis {dim!r} is none of a tensor of {len(self._lengths)} axes, shape {self._lengths}."
            ) from None

    def __reduce__(self) -> tuple[Any, ...]:
        return int, (int(self),)


def element_count(shape: Shape) -> Any:
    """Return the number of elements of a shape; one with open lengths gives an expression of them."""
    count: Any = prod(shape)
    if type(count) is SymInt:
        return count.with_shape(shape)
    count = ElementCount(count)
    count._lengths = shape
    return count
