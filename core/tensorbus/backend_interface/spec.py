"""``Spec``: the shape and dtype of a value, which is all that the rules of ops know of it."""

from __future__ import annotations

from dataclasses import dataclass

from ..dtypes.definition import DType

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Spec:
    """The shape and dtype of an operand or a result."""

    shape: Shape
    dtype: DType

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"
