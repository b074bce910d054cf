"""``tensorbus doctor``: what is known of each plugin, and whether each device computes what it should."""

from __future__ import annotations

import traceback
import warnings
from dataclasses import asdict, dataclass, replace

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .. import plugins
from ..devices.device import Device
from ..dispatch.kernel_tables import unmet
from ..eager import plugin_ops
from ..errors import TensorbusError
from ..ops import lazy_families
from ..ops.definition import table
from ..plugins.api_version import API_VERSION
from ..plugins.plugin_status import PluginStatus
from ..plugins.probe import Probe
from ..system import env
from .devices import STYLES, default_device, open_quietly, why_no_default


@dataclass(frozen=True, slots=True, kw_only=True)
class Smoke:
    """One op run on one device. ``problem`` is None where its result was right."""

    device: str
    problem: str | None
    traceback: str | None = None


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
    """All findings. ``default`` is the default device, None where there is none, for the ``reason`` given."""

    default: str | None
    reason: str | None
    findings: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        """True where every device that should work does."""
        return self.default is not None and not any(finding.failed for finding in self.findings)

    def as_dict(self) -> dict[str, object]:
        """Return it in a form for JSON."""
        return {"healthy": self.healthy, "backend_api": API_VERSION, **asdict(self)}


def examine() -> Diagnosis:
    """Open every plugin and run one op on every device. Never raises for a plugin that does not work."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # what they say is in the report
        for name in plugins.known_types():
            open_quietly(name)
        lazy_families.load_all()
        plugin_ops.refresh()
    default = default_device()
    needed = {(env.default_device() or "").partition(":")[0], default.type if default else ""}
    if default is None and env.default_device() is None:
        needed |= {_host_type()}
    findings = tuple(_finding(_with_ops(status), needed) for status in plugins.status())
    return Diagnosis(
        default=str(default) if default else None,
        reason=None if default else why_no_default() or "it can be used now",
        findings=findings,
    )


def _with_ops(status: PluginStatus) -> PluginStatus:
    """Return the status with what is wrong with the ops that the package defines."""
    fault = plugin_ops.faults().get(f"{status.dist} {status.version}".rstrip())
    if fault is None or status.broken:
        return status
    text = "".join(traceback.format_exception(fault.__cause__)) if fault.__cause__ is not None else None
    return replace(status, reason=str(fault), traceback=text, broken=True)


def _finding(status: PluginStatus, needed: set[str]) -> Finding:
    smoke = tuple(run_one_op(Device(status.name, index)) for index in range(status.device_count))
    missed = status.kind == "device" and status.state != "ready" and status.name in needed
    return Finding(
        status=status,
        smoke=smoke,
        select=_how_to_select(status),
        failed=status.broken or missed or any(run.problem for run in smoke),
        notes=tuple(unmet(status.name, {*table.names()}))
        if status.kind == "device" and status.state == "ready"
        else (),
    )


def run_one_op(device: Device) -> Smoke:
    """Add two tensors on ``device`` and check the result, within the time limit of probes."""
    try:
        got = Probe(lambda: _add(device), f"tensorbus-smoke-{device}").wait(env.probe_timeout())
    except Exception as error:
        text = "".join(traceback.format_exception(error))
        return Smoke(device=str(device), problem=f"{type(error).__name__}: {error}", traceback=text)
    expected = [2.0, 4.0, 6.0]
    right = got == expected
    problem = None if right else f"add([1, 2, 3], [1, 2, 3]) gave {got!r}; it should give {expected!r}"
    return Smoke(device=str(device), problem=problem)


def _add(device: Device) -> object:
    import tensorbus

    x = tensorbus.asarray([1.0, 2.0, 3.0], device=device)
    total = tensorbus.add(x, x).tolist()
    device.synchronize()
    return total


def _host_type() -> str:
    try:
        return plugins.host_type() or ""
    except TensorbusError:
        return ""


def _how_to_select(status: PluginStatus) -> str:
    if status.kind == "plugin":
        return f"loads by itself; TENSORBUS_BLOCK={status.name} leaves it out"
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
    for finding in diagnosis.findings:
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
            shown.add_row(f"add on {run.device}", result)
        for note in finding.notes:
            shown.add_row("note", Text(note, style="yellow"))
        shown.add_row("select", Text(finding.select))
        for trace in [
            status.traceback if finding.failed else None,
            *(run.traceback for run in finding.smoke),
        ]:
            if trace:
                shown.add_row("traceback", Text(trace.rstrip()))
        console.print(shown)
    failed = [
        f"{finding.status.kind} {finding.status.name}" for finding in diagnosis.findings if finding.failed
    ]
    if failed:
        console.print(Text(f"Should work and does not: {', '.join(failed)}.", style="bold red"))
    elif diagnosis.healthy:
        console.print(Text("All that should work does.", style="bold green"))
