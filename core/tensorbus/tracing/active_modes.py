"""The state of the stack of modes: which are entered in this thread or task, and whether any is at all.

It lies this low because ops, tensors and the hot path ask. What a mode does: see ``dispatch.modes``.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Final

active_modes: Final[dict[object, Any]] = {}
"""The modes that are entered, in any thread or task. The hot path only asks whether there is any."""

mode_stack: Final[ContextVar[tuple[Any, ...]]] = ContextVar("tensorbus_modes", default=())
"""The modes of this thread or task, the innermost last. Some may have ended where they were entered."""


def are_here() -> bool:
    """Return whether modes are entered in this thread or task, whatever others do meanwhile.

    Who calls other ops then, not only in another way, asks this: ranks that are threads call the same.
    """
    return bool(active_modes) and bool(mode_stack.get())
