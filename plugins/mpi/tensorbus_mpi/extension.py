"""The hooks of the package."""

from __future__ import annotations

from tensorbus.backend_api import CommunicatorFactory, StoreFactory, hookimpl


@hookimpl
def tensorbus_communicator(name: str) -> CommunicatorFactory | None:
    """Return what connects the processes of an MPI program."""
    from .communicator import Factory

    return Factory()


@hookimpl
def tensorbus_store(scheme: str) -> StoreFactory | None:
    """Return what opens the store of an MPI program."""
    from .store import Factory

    return Factory()
