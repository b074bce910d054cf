"""The tracer that takes the ops of a thread while a function is captured, as the lower layers see it.

This module knows no tensors, so that ops, tensors and random generators can ask for the tracer.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from .active_modes import active_modes, mode_stack


class CaptureTracer(Protocol):
    """Takes the ops of its thread while it is active.

    ``prologue``: see ``host_prologue``. ``grads`` says that gradients kept by tensors were read;
    ``gradients`` of which leaves, and whether such a gradient was written before it was read. Histories
    of an order below ``began`` were there before. ``fullgraph``: the user allows no graph break.
    ``at_breaks`` are called behind the next one, in order; ``sites`` has the places of breaks.
    """

    prologue: Any
    sites: Any
    fullgraph: bool
    grads: bool
    gradients: dict[Any, bool]
    began: int
    at_breaks: list[Callable[[], None]]

    def apply(self, op: Any, operands: Sequence[Any], attrs: dict[str, Any]) -> Any:
        """Record an op; return its result (of several results, a tuple), or ``NotImplemented``: run it."""
        ...

    def materialize(self, reason: str) -> None:
        """Run what was recorded, because of ``reason``: a graph break."""
        ...

    def recomputed(self) -> AbstractContextManager[None]:
        """Return a context in which what is recorded counts as recomputed."""
        ...

    def untraced(self, function: Callable[[], Any]) -> Any:
        """Call ``function`` as if nothing were being captured."""
        ...

    def is_one_program(self) -> bool:
        """Return whether all that is recorded is to become one program."""
        ...

    def transfer(self, x: Any, there: Any) -> Any:
        """Record that a tensor is copied to another device; return it, or ``NotImplemented``: copy it."""
        ...

    def made_each_run(self, owner: Any, function: Callable[..., Any], sizes: tuple[Any, ...]) -> Any:
        """Return the tensor ``function(*sizes)``, made untraced; each run makes it anew."""
        ...

    def trace_symbolic(self, known: Callable[[], Any], make: Callable[[], Any]) -> Any:
        """Return the tensor that ``make`` computes from numbers that vary from run to run.

        ``known`` makes what it is in this run.
        """
        ...

    def is_varying_key(self, key: Any) -> bool:
        """Return whether a key of ``x[key]`` varies from run to run."""
        ...

    def indexed(self, function: Callable[..., Any], x: Any, key: Any, *value: Any) -> Any:
        """Return what ``function``, which indexes ``x``, makes of a key that varies from run to run."""
        ...


def active_tracer() -> CaptureTracer | None:
    """Return the innermost tracer of this thread or task, if one is active."""
    if active_modes:
        for mode in reversed(mode_stack.get()):
            if mode.captures and mode._entries:
                tracer: CaptureTracer = mode
                return tracer
    return None


def untraced(function: Callable[[], Any]) -> Any:
    """Call ``function`` as if nothing were being captured in this thread."""
    active = active_tracer()
    return function() if active is None else active.untraced(function)


def unprofiled(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function that runs no code of the user's; a capture need not observe it, which takes long."""
    profile = sys.getprofile() if active_modes else None
    if not callable(profile):
        return function(*args)
    sys.setprofile(None)
    try:
        return function(*args)
    finally:
        sys.setprofile(profile)


DEFERRED_CODE: Final = "_deferred_code"
"""The attribute of a function of ours that holds functions of the user's which run later than it does."""
