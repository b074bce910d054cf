"""Sample calls of ops, and coverage of devices.

An op comes in; calls to try, and how a device runs each, leave: what manifests and the conformance kit are
made from. In order: ``sample``, ``samples``, ``coverage``.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """Say what to write where PyTorch's module of this name would be asked."""
    raise AttributeError(
        f"module {__name__!r} has no attribute {name!r}; values are compared by tensorbus.allclose(x, y)",
        name=name,
    )
