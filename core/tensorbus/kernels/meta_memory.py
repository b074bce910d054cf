"""Memory that values of the device ``meta`` would take on a device that has some, while somebody counts.

A view takes nothing: it lives in the memory of its base, by the op's view rule and the strides. What a device
takes besides the values, such as workspaces of its kernels, is not known here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from weakref import ref

from ..backend_interface.strided_array import row_major
from ..errors import ArgumentError
from ..ops.definition import ViewRule

Shape = tuple[int, ...]


class Storage:
    """The memory that a value and the views of it would share."""

    __slots__ = ("__weakref__",)


class MetaMemory:
    """Bytes of the values that are alive, ``allocated`` now and at the ``peak``; each storage once."""

    def __init__(self) -> None:
        self._live: dict[ref[Storage], int] = {}
        self._peak = self._bound = 0

    @property
    def allocated(self) -> int:
        """Bytes of the values that are alive."""
        return sum([*self._live.values()])

    @property
    def peak(self) -> int:
        """The most bytes that were alive at once since ``reset_peak``."""
        return self._peak

    def reset_peak(self) -> None:
        """Begin a new peak with what is alive."""
        self._peak = self._bound = self.allocated

    def allocate(self, size: int) -> Storage:
        """Return the storage of a new value of ``size`` bytes."""
        storage = Storage()
        # The callback is a method of a dict: no interrupt is lost in it.
        self._live[ref(storage, self._live.pop)] = size
        self._bound += size  # at least what is alive: frees are subtracted when it would be a new peak
        if self._bound > self._peak:
            self._bound = self.allocated
            self._peak = max(self._peak, self._bound)
        return storage

    def note(
        self, value: Any, itemsize: int, base: Any = None, view: ViewRule | None = None, attrs: Any = None
    ) -> None:
        """Count a value, new or, with the rule of a ``view``, in the storage of ``base``."""
        if view is not None and base is not None:
            strides = base.strides
            if view.copies is None or not view.copies(strides, base.shape, **attrs):
                value.storage = base.storage
                if strides is not None and view.strides is not None:
                    value.strides = view.strides(strides, base.shape, **attrs)
                return
        value.storage = self.allocate(math.prod(value.shape) * itemsize)
        value.strides = row_major(value.shape)


class _Counting:
    memory: MetaMemory | None = None


counting: Final = _Counting()
"""Who counts, in all threads."""


@contextmanager
def count_memory() -> Iterator[MetaMemory]:
    """Count the values that are made on ``meta`` inside the block, in all threads.

    Raises ``ArgumentError`` where somebody counts already.

    >>> import tensorbus as tb
    >>> with count_memory() as memory:
    ...     x = tb.ones((2, 3), device="meta")
    ...     y = x[1:] + 1.0
    ...     memory.allocated
    36
    """
    if counting.memory is not None:
        raise ArgumentError("meta: the memory of its values is being counted already.")
    counting.memory = memory = MetaMemory()
    try:
        yield memory
    finally:
        counting.memory = None
