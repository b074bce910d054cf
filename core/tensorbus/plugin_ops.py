"""Ops that plugins define: added to the table when a name is asked for that core does not have.

``tensorbus.<name>`` and ``Tensor.<name>`` then work as for core's own ops, on every device, with gradients.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from . import plugins
from .operators import attach_op, detach_op
from .ops import lazy
from .ops.op import table

_lock = threading.RLock()
_added: dict[str, str] = {}
_stale = True


def find(name: str) -> Callable[..., Any] | None:
    """Return the function of the plugin op called ``name``, or None where no plugin defines it."""
    if _stale or name not in _added:
        refresh()
    return table.function(name) if name in _added else None


def refresh() -> None:
    """Make the table hold the ops of the plugins that are installed now, and of no others."""
    global _stale
    with _lock:
        _stale = False
        offered = {op.name: (owner, op) for owner, op in plugins.ops()}
        for name in [n for n, owner in _added.items() if n not in offered or offered[n][0] != owner]:
            detach_op(table[name])
            table.discard(name)
            del _added[name]
        for name, (owner, op) in offered.items():
            if name not in _added:
                table.add(op, owner)
                _added[name] = owner
                attach_op(op)


def _mark_stale() -> None:
    global _stale
    _stale = True


def _look() -> None:
    lazy.load_all()
    refresh()


plugins.on_change(_mark_stale)
table.on_miss(_look)
