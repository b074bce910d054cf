"""The hooks of the package."""

from __future__ import annotations

from tensorbus.backend_api import LauncherFactory, hookimpl


@hookimpl
def tensorbus_launcher(name: str) -> LauncherFactory | None:
    """Return what starts ranks on a Ray cluster."""
    from .launcher import Factory

    return Factory()
