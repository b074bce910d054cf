"""Values that a program being captured will have: what stands in a tensor until the program runs.

While a recorder is active in a thread, every op of that thread goes to it instead of a kernel. A pending
value settles when the recorder runs what it has recorded: at the end of the captured function, or as soon as
Python asks for numbers. This module knows no tensors, so that the ground floors can look for recorders.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from threading import get_ident
from typing import Any, Final, Protocol

from ..errors import TensorbusError

Shape = tuple[int, ...]


class Recorder(Protocol):
    """What takes the ops of its thread while it is active.

    ``script``: see ``symbolic``. ``grads`` says that gradients kept by tensors were looked at; ``gradients``
    of which leaves, and whether such a gradient was written before it was read. Histories of an order below
    ``began`` were there before.
    """

    script: Any
    grads: bool
    gradients: dict[Any, bool]
    began: int

    def apply(self, op: Any, operands: Sequence[Any], attrs: dict[str, Any]) -> Any:
        """Record an op; return its result (of several results, a tuple), or ``NotImplemented``: run it."""
        ...

    def settle(self, reason: str) -> None:
        """Run what was recorded, because of ``reason``."""
        ...

    def again(self) -> AbstractContextManager[None]:
        """Return a context in which what is done counts as computed again."""
        ...

    def aside(self, function: Callable[[], Any]) -> Any:
        """Call ``function`` as if nothing were being captured."""
        ...

    def whole(self) -> bool:
        """Return whether all that is recorded is to become one program."""
        ...

    def transfer(self, x: Any, there: Any) -> Any:
        """Record that a tensor is brought to another device; return it, or ``NotImplemented``: bring it."""
        ...

    def made(self, owner: Any, function: Callable[..., Any], sizes: tuple[Any, ...]) -> Any:
        """Return the tensor ``function(*sizes)``, made aside; it is made anew at each run."""
        ...

    def moving(self, known: Callable[[], Any], make: Callable[[], Any]) -> Any:
        """Return the tensor that ``make`` computes from numbers which are others at each run.

        ``known`` makes what it is in this run.
        """
        ...

    def moves(self, key: Any) -> bool:
        """Return whether a key of ``x[key]`` is another at each run."""
        ...

    def indexed(self, function: Callable[..., Any], x: Any, key: Any, *value: Any) -> Any:
        """Return what ``function``, which indexes ``x``, makes of a key that is another at each run."""
        ...


class Pending:
    """A value of shape ``shape`` that is number ``place`` in what ``recorder`` recorded.

    ``value`` is the device's own value once the program has run. Of a value that nobody records but that is
    being copied, ``arrival`` waits for it and returns it.
    """

    __slots__ = ("__weakref__", "arrival", "cells", "place", "recorder", "shape", "value")

    def __init__(
        self, recorder: Recorder | None, place: int, shape: Shape, arrival: Callable[[], Any] | None = None
    ) -> None:
        self.recorder = recorder
        self.place = place
        self.shape = shape
        self.value: Any = None
        self.cells: list[weakref.ref[Any]] = []
        self.arrival = arrival

    def fill(self, value: Any) -> None:
        """Put the device's value in its place, in all tensors that hold this one."""
        self.value = value
        for reference in self.cells:
            x = reference()
            if x is not None and x._value is self:
                x._value, x._vtype = value, x._vtype.settled

    def settle(self) -> Any:
        """Return the device's value, running the program so far or waiting for a copy if need be."""
        arrival = self.arrival
        if arrival is not None:
            self.fill(arrival())
            self.arrival = None
        if self.recorder is not None and self.recorder is recorder():
            self.recorder.settle("Python asks for a value")
        if self.value is None:
            raise TensorbusError(
                "this tensor was made inside a compiled function whose program failed before it was computed."
            )
        return self.value


_arriving: Final[weakref.WeakSet[Pending]] = weakref.WeakSet()


def arriving(shape: Shape, arrival: Callable[[], Any]) -> Pending:
    """Return a value that is being copied: whoever needs it calls ``arrival``, which waits and returns it."""
    made = Pending(None, 0, shape, arrival)
    _arriving.add(made)
    return made


def land() -> None:
    """Wait for all values that are being copied."""
    for value in list(_arriving):
        _arriving.discard(value)
        value.settle()


narrow: Final[ContextVar[Any]] = ContextVar("tensorbus_autocast", default=None)
"""The dtype that products compute in here (see ``autocasting``); None: that of their operands."""

GIVEN: Final = "_given"
"""The attribute of a function of ours that has functions of the user's which run later than it does."""

structure: Final = [0]
"""Counts changes to what programs are made of: parts of modules, and which tensors ask for gradients."""


def restructured() -> None:
    """Say that such a change happened: guards that rely on the count look again."""
    structure[0] += 1


recorders: Final[dict[int, Recorder]] = {}
"""The active recorder of each thread, and others who look at ops before kernels do.

The hot path only asks whether there is any.
"""


def aside(function: Callable[[], Any]) -> Any:
    """Call ``function`` as if nothing were being captured in this thread."""
    active = recorder()
    return function() if active is None else active.aside(function)


def unwatched(function: Callable[..., Any], *given: Any) -> Any:
    """Call a function that runs nothing of the user's; a capture need not watch it, which takes long."""
    watching = sys.getprofile() if recorders else None
    if not callable(watching):
        return function(*given)
    sys.setprofile(None)
    try:
        return function(*given)
    finally:
        sys.setprofile(watching)


def recorder() -> Recorder | None:
    """Return the recorder of this thread, if one is active."""
    return recorders.get(get_ident()) if recorders else None
