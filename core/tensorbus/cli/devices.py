"""``tensorbus devices``: every device type that is installed, and every unit of those that work."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

from rich.table import Table
from rich.text import Text

from .. import plugins
from ..devices.device import Device, initial_type, parse
from ..devices.device import device as find_device
from ..dtypes.definition import BY_NAME
from ..errors import TensorbusError
from ..plugins.plugin_status import PluginStatus
from ..system import env
from .plugin_process import Outcome, Task, run_tasks
from .plugin_report import Smoke, Unit

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


def collect() -> tuple[list[Row], str | None]:
    """Return all devices, and why there is no default; None where there is.

    Each device type is opened in a process of its own: one that does not work, or ends its process, is a row.
    """
    reports = open_all(thorough=False)
    default, problem = find_default(reports)
    rows = []
    for report in reports:
        units = report.units or (Unit(),)
        rows += [_row(report.status, index, unit, default) for index, unit in enumerate(units)]
    return rows, problem if rows else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReport:
    """A device type and its units, as the process says that opened it.

    ``no_default`` says why it cannot be the default, where it is to be; ``smoke`` and ``notes`` are for the
    doctor.
    """

    status: PluginStatus
    units: tuple[Unit, ...] = ()
    no_default: str | None = None
    smoke: tuple[Smoke, ...] = ()
    notes: tuple[str, ...] = ()


def open_all(*, thorough: bool, blocked: Iterable[str] = ()) -> list[DeviceReport]:
    """Open every device type in a process of its own; return what they are. ``blocked`` are left out."""
    statuses = [status for status in plugins.status() if status.kind == "device"]
    opened = [status for status in statuses if status.state == "discovered"]
    tasks = [Task(kind="device", name=status.name, thorough=thorough) for status in opened]
    outcomes = dict(zip(opened, run_tasks(tasks, blocked), strict=True))
    return [
        _report(status, outcomes[status]) if status in outcomes else DeviceReport(status=status)
        for status in statuses
    ]


def status_after(status: PluginStatus, outcome: Outcome) -> PluginStatus:
    """Return what is known of a plugin after a process has opened it."""
    if outcome.report is None:
        return replace(
            status, state="unavailable", reason=outcome.death, traceback=outcome.errors or None, broken=True
        )
    for after in outcome.report["statuses"]:
        if (after["kind"], after["name"], after["dist"]) == (status.kind, status.name, status.dist):
            return PluginStatus(**after)
    return status


def _report(status: PluginStatus, outcome: Outcome) -> DeviceReport:
    after, report = status_after(status, outcome), outcome.report
    if report is None:
        return DeviceReport(
            status=after, no_default=f"device type {status.name!r} cannot be used: {after.reason}."
        )
    return DeviceReport(
        status=after,
        units=tuple(Unit(**{**unit, "dtypes": tuple(unit["dtypes"])}) for unit in report["units"]),
        no_default=report["no_default"],
        smoke=tuple(Smoke(**smoke) for smoke in report.get("smoke", ())),
        notes=tuple(report.get("notes", ())),
    )


def find_default(reports: Iterable[DeviceReport]) -> tuple[Device | None, str | None]:
    """Return the default device, or None and why there is none. Opens no plugin in this process."""
    prefix = "" if (name := env.default_device()) is None else f"TENSORBUS_DEFAULT_DEVICE={name!r}: "
    try:
        default = parse(initial_type())
        for report in reports:
            if report.status.name == default.type and report.status.state in ("ready", "unavailable"):
                problem = report.no_default
                return (default, None) if problem is None else (None, f"{prefix}{problem}")
        find_device(default)  # which says why it cannot be opened
    except TensorbusError as error:
        return None, f"{prefix}{error}"
    return default, None


def _row(status: PluginStatus, index: int, unit: Unit, default: Device | None) -> Row:
    # Only what is ready is known to have a name that a Device may have.
    device = Device(status.name, index) if status.state == "ready" else None
    return Row(
        device=status.name if device is None else str(device),
        dist=status.dist,
        version=status.version,
        state=str(status.state),
        default=device is not None and device == default,
        name=unit.name,
        memory=unit.memory,
        dtypes=unit.dtypes,
        reason=unit.problem or status.reason,
        note=unit.note,
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
