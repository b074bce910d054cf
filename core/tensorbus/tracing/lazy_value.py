"""Lazy values: what stands in a tensor until a captured program has run, or a copy has arrived.

A lazy value is materialized when its tracer runs what it has recorded: at the end of the captured function,
or as soon as Python asks for numbers.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Final

from ..errors import TensorbusError
from ..system.weak_tables import WeakSet
from .active_tracer import CaptureTracer, active_tracer

Shape = tuple[int, ...]


class LazyValue:
    """A value of shape ``shape`` that is number ``place`` in what ``tracer`` recorded.

    ``value`` is the device's own value once the program has run. Of a value that no tracer records but that
    is being copied, ``wait`` waits for it and returns it.
    """

    __slots__ = ("__weakref__", "place", "shape", "tensors", "tracer", "value", "wait")

    def __init__(
        self, tracer: CaptureTracer | None, place: int, shape: Shape, wait: Callable[[], Any] | None = None
    ) -> None:
        self.tracer = tracer
        self.place = place
        self.shape = shape
        self.value: Any = None
        self.tensors: list[weakref.ref[Any]] = []
        self.wait = wait

    def fill(self, value: Any) -> None:
        """Put the device's value in its place, in all tensors that hold this one."""
        self.value = value
        for reference in self.tensors:
            x = reference()
            if x is not None and x._value is self:
                x._value, x._vtype = value, x._vtype.materialized

    def materialize(self) -> Any:
        """Return the device's value, running the program so far or waiting for a copy if need be."""
        wait = self.wait
        if wait is not None:
            self.fill(wait())
            self.wait = None
        if self.tracer is not None and self.tracer is active_tracer():
            self.tracer.materialize("Python asks for a value")
        if self.value is None:
            raise TensorbusError(
                "this tensor was made inside a compiled function whose program failed before it was computed."
            )
        return self.value


_pending_copies: Final[WeakSet[LazyValue]] = WeakSet()


def pending_copy(shape: Shape, wait: Callable[[], Any]) -> LazyValue:
    """Return a value that is being copied: whoever needs it calls ``wait``, which returns it once there."""
    copied = LazyValue(None, 0, shape, wait)
    _pending_copies.add(copied)
    return copied


def wait_for_copies() -> None:
    """Wait for all values that are being copied."""
    for value in _pending_copies:
        _pending_copies.discard(value)
        value.materialize()
