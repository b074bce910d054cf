"""The hooks of the package."""

from __future__ import annotations

from tensorbus.backend_api import CommunicatorFactory, StoreFactory, hookimpl


@hookimpl
def tensorbus_store(scheme: str) -> StoreFactory | None:
    """Return what opens stores of the scheme."""
    from .client import Factory

    return Factory()


@hookimpl
def tensorbus_communicator(name: str) -> CommunicatorFactory | None:
    """Return what connects processes through the host's memory."""
    from .communicator import Factory

    return Factory()
