"""Numbers that a statement which runs late shows: read where they are written, or behind their program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ...interchange.nested_sequence import arranged
from ...tensor.tensor import Tensor

NOT_READ: Final = object()


class ReadValue:
    """The result of a read; or a ``copy`` of what is to be read.

    In a capture it has both: the call that captures shows what was computed aside, later ones a copy of
    theirs. ``is_array``: it is read as one.
    """

    __slots__ = ("_value", "copy", "is_array")

    def __init__(self, value: Any = NOT_READ, copy: Tensor | None = None, is_array: bool = False) -> None:
        self._value, self.copy, self.is_array = value, copy, is_array

    @property
    def shown(self) -> Any:
        """The part that an entry has: the copy, or what was read."""
        return self._value if self.copy is None else self.copy

    def _read(self, name: str) -> Any:
        return getattr(self.copy, name)() if self._value is NOT_READ else self._value

    def item(self) -> Any:
        """Return what was read, or the only number of the copy."""
        return self._read("item")

    def tolist(self) -> Any:
        """Return what was read, or the numbers of the copy as nested lists."""
        return self._read("tolist")

    def numpy(self) -> Any:
        """Return what was read, or the copy as an array."""
        return self._read("numpy")

    def __float__(self) -> float:
        return float(self._read("item"))

    def __int__(self) -> int:
        return int(self._read("item"))


class HostNumbers:
    """The numbers of an output of a program that was read."""

    __slots__ = ("_flat", "_shape")

    def __init__(self, flat: Sequence[Any], shape: tuple[int, ...]) -> None:
        self._flat, self._shape = flat, shape

    def item(self) -> Any:
        """Return the only one."""
        return self._flat[0]

    def tolist(self) -> Any:
        """Return them as nested lists."""
        return arranged([*self._flat], self._shape)

    def __float__(self) -> float:
        return float(self._flat[0])

    def __int__(self) -> int:
        return int(self._flat[0])
