"""The report of a process on one plugin, for the command line; see ``plugin_process``."""

from __future__ import annotations

import traceback
import warnings
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from .. import plugins
from ..devices.device import Device, initial_type, parse
from ..devices.device import device as find_device
from ..dispatch.kernel_tables import unmet
from ..eager import plugin_ops
from ..errors import TensorbusError
from ..ops import lazy_families
from ..ops.definition import table
from ..plugins.foreign_text import error_text, kind_of, printable
from ..plugins.plugin_code import on_plugin_code
from ..plugins.probe import Probe
from ..system import env
from .plugin_process import Messages


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A unit of a device as it describes itself. ``problem`` is None where it could."""

    name: str = ""
    memory: int | None = None
    dtypes: tuple[str, ...] = ()
    note: str = ""
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Smoke:
    """One op run on one device, eager or compiled. ``problem`` is None where its result was right."""

    device: str
    how: str = "eager"
    problem: str | None = None
    traceback: str | None = None


def main(kind: str, name: str, thorough: bool) -> None:
    """Report on a plugin, or on the ops of all: the program of a process that ``run_tasks`` starts."""
    messages = Messages()
    on_plugin_code(messages.on_plugin_code)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # what they say is in the report
        if kind == "ops":
            report = _ops()
        elif kind == "device":
            report = _device(name, thorough, messages)
        else:
            plugins.load_plugin(name, kind)
            report = {}
    statuses = [asdict(status) for status in plugins.status()]
    messages.send({"report": {**report, "statuses": statuses}})


def _ops() -> dict[str, Any]:
    """Return what is wrong with the ops of plugins, by owner: a sentence, and a traceback or None."""
    for name in plugins.known_types():
        with suppress(TensorbusError):
            plugins.backend(name)
    lazy_families.load_all()
    plugin_ops.refresh()
    faults: dict[str, tuple[str, str | None]] = {}
    for owner, fault in plugin_ops.faults().items():
        cause = fault.__cause__
        text = "".join(traceback.format_exception(cause)) if cause is not None else None
        faults[owner] = (str(fault), text)
    return {"faults": faults}


def _device(name: str, thorough: bool, messages: Messages) -> dict[str, Any]:
    """Return what a device's units say, why it cannot be the default, and with ``thorough`` what they do."""
    with suppress(TensorbusError):
        plugins.backend(name)
    ready = [s for s in plugins.status() if (s.kind, s.name, s.state) == ("device", name, "ready")]
    devices = [Device(name, index) for status in ready for index in range(status.device_count)]
    report: dict[str, Any] = {"no_default": _why_no_default(name)}
    if thorough and devices:
        lazy_families.load_all()
        plugin_ops.refresh()
        report["smoke"] = [asdict(smoke) for device in devices for smoke in _smoke(device, messages)]
        messages.allow(env.probe_timeout())
        report["notes"] = unmet(name, table)
    report["units"] = [asdict(_unit(device)) for device in devices]  # last: what failed has become a note
    return report


def _why_no_default(name: str) -> str | None:
    """Return why a unit of a device type that is to be the default cannot be; None where it can."""
    with suppress(TensorbusError):
        spec = parse(initial_type())
        if spec.type == name:
            try:
                find_device(spec)
            except TensorbusError as error:
                return str(error)
    return None


def _unit(device: Device) -> Unit:
    try:
        properties = device.properties
        return Unit(
            name=printable(properties.name, 200),
            memory=properties.memory,
            dtypes=tuple(sorted(dtype.name for dtype in properties.dtypes)),
            note=printable(properties.extra.get("note", ""), 1000),
        )
    except TensorbusError as error:
        return Unit(problem=str(error))
    except Exception as error:
        return Unit(problem=f"describing it failed: {kind_of(error)}: {error_text(error)}")


def _smoke(device: Device, messages: Messages) -> list[Smoke]:
    """Add two tensors on ``device``, eager and compiled, and check the results, with a time limit each."""
    eager = _checked(device, "eager", env.probe_timeout(), messages)
    if eager.problem is not None:
        return [eager]
    return [eager, _checked(device, "compiled", max(env.probe_timeout(), env.compiler_timeout()), messages)]


def _checked(device: Device, how: str, seconds: float, messages: Messages) -> Smoke:
    messages.allow(seconds)
    try:
        result = Probe(lambda: _add(device, how == "compiled"), f"tensorbus-smoke-{device}").wait(seconds)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        text = "".join(traceback.format_exception(error))
        return Smoke(
            device=str(device), how=how, problem=f"{kind_of(error)}: {error_text(error)}", traceback=text
        )
    expected = [2.0, 4.0, 6.0]
    problem = f"add([1, 2, 3], [1, 2, 3]) gave {result!r}; it should give {expected!r}"
    return Smoke(device=str(device), how=how, problem=None if result == expected else problem)


def _add(device: Device, compiled: bool) -> object:
    import tensorbus

    x = tensorbus.asarray([1.0, 2.0, 3.0], device=device)
    add = tensorbus.compile(tensorbus.add) if compiled else tensorbus.add
    for _ in range(2):  # a program is compiled at its second call
        total = add(x, x).tolist()
    device.synchronize()
    return total
