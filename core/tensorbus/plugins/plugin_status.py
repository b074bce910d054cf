"""The status of each plugin at one moment, as data for the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..errors import PluginError
from .backend import Failure, State
from .extension import Extension

Kind = Literal["device", "plugin", "communicator", "store", "launcher"]
Stopped = Literal["blocked", "conflict"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginStatus:
    """A snapshot of one plugin. ``broken`` says that it should work and does not: it is itself wrong."""

    name: str
    kind: Kind
    dist: str
    version: str
    entry_point: str
    location: str
    api: str
    state: State | Stopped
    reason: str | None
    traceback: str | None
    broken: bool
    import_seconds: float | None
    device_count: int


def snapshot(
    name: str,
    kind: Kind,
    extension: Extension,
    state: State | Stopped,
    failure: Failure | None,
    device_count: int = 0,
    *,
    refused: str | None = None,
) -> PluginStatus:
    """Return the status of one extension; ``refused`` says why the user's switches leave it out."""
    broken = failure is not None and failure.broken
    reason = failure.reason if failure else refused
    try:
        api = extension.manifest.api
    except PluginError as error:
        api, reason = "", reason or str(error)
        broken = broken or refused is None
    return PluginStatus(
        name=name,
        kind=kind,
        dist=extension.dist,
        version=extension.version,
        entry_point=extension.entry_point.value if extension.entry_point else extension.module_name,
        location=extension.entry_point.location if extension.entry_point else "",
        api=api,
        state=state,
        reason=reason,
        traceback=failure.traceback if failure else None,
        broken=broken,
        import_seconds=extension.import_seconds,
        device_count=device_count if state == "ready" else 0,
    )
