"""``tensorbus devices``: every device type that is installed, and every unit of those that work."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass

from rich.table import Table
from rich.text import Text

from .. import plugins
from ..devices.device import Device, get_default_device
from ..dtypes.definition import BY_NAME
from ..errors import TensorbusError
from ..plugins.plugin_status import PluginStatus

STYLES = {"ready": "green", "unavailable": "red", "conflict": "red", "blocked": "yellow"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A unit of a device type; or a device type that does not work, with ``device`` lacking its index.

    ``note`` is what its properties say that a user should know: what it does without, say.
    """

    device: str
    dist: str
    version: str
    state: str
    default: bool
    name: str
    memory: int | None
    dtypes: tuple[str, ...]
    reason: str | None
    note: str

    def as_dict(self) -> dict[str, object]:
        """Return it in a form for JSON; ``memory`` is in bytes."""
        return asdict(self)


def collect() -> list[Row]:
    """Open every device type and describe what is there. Never raises for a device that does not work."""
    default = default_device()
    for name in plugins.known_types():
        open_quietly(name)
    rows = []
    for status in plugins.status():
        if status.kind == "device":
            units = range(max(status.device_count, 1))
            rows += [_row(status, index, default) for index in units]
    return rows


def open_quietly(name: str) -> None:
    """Open a device type; what goes wrong is kept in its status."""
    with suppress(TensorbusError):
        plugins.backend(name)


def default_device() -> Device | None:
    """Return the default device; None where there is none that works."""
    try:
        return get_default_device()
    except TensorbusError:
        return None


def why_no_default() -> str | None:
    """Return why the default device cannot be used; None where it can."""
    try:
        get_default_device()
    except TensorbusError as error:
        return str(error)
    return None


def _row(status: PluginStatus, index: int, default: Device | None) -> Row:
    name, memory, state, reason, note = "", None, str(status.state), status.reason, ""
    dtypes: tuple[str, ...] = ()
    # Only what is ready is known to have a name that a Device may have.
    device = Device(status.name, index) if state == "ready" else None
    if device is not None:
        try:
            properties = device.properties
            name, memory, note = properties.name, properties.memory, str(properties.extra.get("note", ""))
            dtypes = tuple(sorted(dtype.name for dtype in properties.dtypes))
        except TensorbusError as error:
            reason = str(error)
        except Exception as error:
            reason = f"describing it failed: {type(error).__name__}: {error}"
    return Row(
        device=status.name if device is None else str(device),
        dist=status.dist,
        version=status.version,
        state=state,
        default=device is not None and device == default,
        name=name,
        memory=memory,
        dtypes=dtypes,
        reason=reason,
        note=note,
    )


def render(rows: list[Row]) -> Table | str:
    """Return the table for people."""
    if not rows:
        return "No device is installed. Install one: pip install tensorbus"
    table = Table("device", "package", "state", show_edge=False)
    table.add_column("what it is, or why it does not work", ratio=1)
    for row in rows:
        table.add_row(
            Text(row.device + (" (default)" if row.default else ""), style="bold" if row.default else ""),
            Text(f"{row.dist} {row.version}".rstrip(), no_wrap=True),
            Text(row.state, style=STYLES.get(row.state, "")),
            Text(row.reason or _described(row)),
        )
    return table


def _described(row: Row) -> str:
    lacking = [name for name in BY_NAME if name not in row.dtypes]
    parts = [row.name, f"{row.memory / 2**30:.1f} GiB" if row.memory else ""]
    parts += [f"no {', '.join(lacking)}" if lacking else "every dtype", row.note]
    return "; ".join(part for part in parts if part)
