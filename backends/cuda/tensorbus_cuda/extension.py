"""What the cuda device hands to tensorbus. Imports nothing heavy."""

from __future__ import annotations

from tensorbus.backend_api import DeviceUnavailableError, Runtime, hookimpl


@hookimpl
def tensorbus_device(device_type: str) -> Runtime | None:
    """Raise ``DeviceUnavailableError``, saying what is missing on this machine."""
    if device_type != "cuda":
        return None
    from .device import why_unavailable

    raise DeviceUnavailableError(why_unavailable())
