"""Sample calls of ops, and coverage of devices: what the conformance kit and manifests are made from."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """Say what to write where PyTorch's module of this name would be asked."""
    raise AttributeError(
        f"module {__name__!r} has no attribute {name!r}; values are compared by tensorbus.allclose(x, y)",
        name=name,
    )
