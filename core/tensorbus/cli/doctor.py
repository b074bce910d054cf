"""``tensorbus doctor``: what is known of each plugin, and whether each device computes what it should."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .. import plugins
from ..errors import TensorbusError
from ..plugins.api_version import API_VERSION
from ..plugins.foreign_text import printable_lines
from ..plugins.plugin_status import PluginStatus
from ..system import env
from .devices import STYLES, DeviceReport, find_default, open_all, status_after
from .plugin_process import Task, run_tasks
from .plugin_report import Smoke

_LONGEST_TRACEBACK: Final = 20_000
"""How many characters of a traceback, or of what a process wrote before it died, are printed: the last."""


_CHOSEN_BY: Final = {
    "plugin": "loads by itself; TENSORBUS_BLOCK={name} leaves it out",
    "communicator": "prefer='{name}'",
    "store": "store='{name}://...'",
    "launcher": "--launcher {name}",
}
"""How a plugin of each kind is chosen."""

_CONNECTORS: Final = {
    "communicator": "connects ranks",
    "store": "where ranks meet",
    "launcher": "starts ranks",
}
"""Plugins of many devices, which are told in one table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A plugin, its smoke runs (one for each unit of a device), and whether it counts as a failure.

    ``notes`` say what its kernel tables name and nobody has: a slip of the pen, or what is not installed.
    """

    status: PluginStatus
    smoke: tuple[Smoke, ...]
    select: str
    failed: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """All findings. ``default`` is the default device, None where there is none, for the ``reason`` given.

    ``whole`` is False where the ops of all plugins together could not be examined.
    """

    default: str | None
    reason: str | None
    findings: tuple[Finding, ...]
    whole: bool = True

    @property
    def healthy(self) -> bool:
        """True where every device that should work does."""
        return (
            self.whole and self.default is not None and not any(finding.failed for finding in self.findings)
        )

    def as_dict(self) -> dict[str, object]:
        """Return it in a form for JSON."""
        return {"healthy": self.healthy, "backend_api": API_VERSION, **asdict(self)}


def examine() -> Diagnosis:
    """Open every plugin and run one op on every device, each in a process of its own.

    Never raises for a plugin that does not work. One that ends its process is named, and left out of others.
    """
    addons = [status for status in plugins.status() if status.kind != "device"]
    loaded = [status for status in addons if status.state == "discovered"]
    outcomes = dict(zip(loaded, run_tasks([Task(kind=s.kind, name=s.name) for s in loaded]), strict=True))
    dead = {s.name for s, outcome in outcomes.items() if outcome.report is None and s.kind == "plugin"}
    dead -= {*plugins.known_types()}  # a device of the same name would be left out too
    reports = open_all(thorough=True, blocked=dead)
    gone = {report.status.name for report in reports if report.status.state != "ready"}
    (ops,) = run_tasks([Task(kind="ops")], dead | gone)
    default, problem = find_default(reports)
    needed = {(env.default_device() or "").partition(":")[0], default.type if default else ""}
    if default is None and env.default_device() is None:
        needed |= {_host_type()}
    faults = ops.report["faults"] if ops.report is not None else {}
    addons = [status_after(status, outcomes[status]) if status in outcomes else status for status in addons]
    findings = [_finding(report, faults, needed) for report in reports]
    findings += [_finding(DeviceReport(status=status), faults, needed) for status in addons]
    return Diagnosis(
        default=str(default) if default else None,
        reason=problem or (None if ops.report is not None else f"the ops of plugins: {ops.death}"),
        findings=tuple(findings),
        whole=ops.report is not None,
    )


def _with_ops(status: PluginStatus, faults: Mapping[str, tuple[str, str | None]]) -> PluginStatus:
    """Return the status with what is wrong with the ops that the package defines."""
    fault = faults.get(f"{status.dist} {status.version}".rstrip())
    if fault is None or status.broken:
        return status
    return replace(status, reason=fault[0], traceback=fault[1], broken=True)


def _finding(report: DeviceReport, faults: Mapping[str, tuple[str, str | None]], needed: set[str]) -> Finding:
    status = _with_ops(report.status, faults)
    missed = status.kind == "device" and status.state != "ready" and status.name in needed
    problems = [unit.problem for unit in report.units if unit.problem]
    notes = [*report.notes, *problems, *dict.fromkeys(unit.note for unit in report.units if unit.note)]
    return Finding(
        status=status,
        smoke=report.smoke,
        select=_how_to_select(status),
        failed=status.broken or missed or bool(problems) or any(run.problem for run in report.smoke),
        notes=tuple(notes),
    )


def _host_type() -> str:
    try:
        return plugins.host_type() or ""
    except TensorbusError:
        return ""


def _how_to_select(status: PluginStatus) -> str:
    if status.kind in _CHOSEN_BY:
        return _CHOSEN_BY[status.kind].format(name=status.name)
    if status.state == "conflict":
        return f"TENSORBUS_BLOCK=... with the other distribution's name chooses {status.dist}"
    if status.state == "blocked":
        return "change TENSORBUS_PLUGINS or TENSORBUS_BLOCK"
    return f"tensorbus.set_default_device({status.name!r}) or TENSORBUS_DEFAULT_DEVICE={status.name}"


def render(diagnosis: Diagnosis, console: Console) -> None:
    """Print the report for people."""
    console.print(Text(f"backend API {API_VERSION}; default device: {diagnosis.default or 'none'}"))
    if diagnosis.reason is not None:
        console.print(Text(diagnosis.reason, style="red"))
    connectors = [finding for finding in diagnosis.findings if finding.status.kind in _CONNECTORS]
    whole = [finding for finding in diagnosis.findings if finding not in connectors or finding.failed]
    for finding in whole:
        status = finding.status
        state = Text(status.state, style=STYLES.get(status.state, ""))
        if status.reason:
            state.append(f": {status.reason}", style="default")
        seconds = (
            "not imported" if status.import_seconds is None else f"{1000 * status.import_seconds:.1f} ms"
        )
        shown = Table(show_header=False, title_justify="left", title=f"{status.kind} {status.name}")
        shown.add_column(style="dim")
        shown.add_column(overflow="fold")
        shown.add_row("package", Text(f"{status.dist} {status.version}".rstrip()))
        shown.add_row("entry point", Text(f"{status.entry_point}  {status.location}".rstrip()))
        shown.add_row("API range", Text(status.api or "unknown"))
        shown.add_row("import", seconds)
        shown.add_row("state", state)
        for run in finding.smoke:
            result = Text("right", style="green") if run.problem is None else Text(run.problem, style="red")
            shown.add_row(f"add on {run.device}{', compiled' if run.how == 'compiled' else ''}", result)
        for note in finding.notes:
            shown.add_row("note", Text(note, style="yellow"))
        shown.add_row("select", Text(finding.select))
        for trace in [
            status.traceback if finding.failed else None,
            *(run.traceback for run in finding.smoke),
        ]:
            if trace:
                shown.add_row("traceback", Text(printable_lines(trace[-_LONGEST_TRACEBACK:]).rstrip()))
        console.print(shown)
    if connectors:
        console.print(_connectors(connectors))
    failed = [
        f"{finding.status.kind} {finding.status.name}" for finding in diagnosis.findings if finding.failed
    ]
    if failed:
        console.print(Text(f"Should work and does not: {', '.join(failed)}.", style="bold red"))
    elif diagnosis.healthy:
        console.print(Text("All that should work does.", style="bold green"))


def _connectors(findings: Sequence[Finding]) -> Table:
    shown = Table(
        title="many devices: arguments of distributed.init, options of tensorbus run",
        title_justify="left",
        show_edge=False,
    )
    for column in ("name", "what", "package", "state", "chosen by"):
        shown.add_column(column, overflow="fold")
    for finding in findings:
        status = finding.status
        state = Text(status.state, style=STYLES.get(status.state, ""))
        shown.add_row(
            Text(status.name), _CONNECTORS[status.kind],
            Text(f"{status.dist} {status.version}".rstrip()), state, Text(finding.select),
        )  # fmt: skip
    return shown
