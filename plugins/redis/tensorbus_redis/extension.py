"""The hooks of the package."""

from __future__ import annotations

from tensorbus.backend_api import StoreFactory, hookimpl


@hookimpl
def tensorbus_store(scheme: str) -> StoreFactory | None:
    """Return what opens ``redis://``."""
    from .store import Factory

    return Factory()
