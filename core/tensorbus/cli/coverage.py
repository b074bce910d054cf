"""``tensorbus coverage``: which ops a device has kernels for: a table, its manifest, a matrix of devices.

The table of one device comes from what is registered. The matrix of all devices comes from their manifests,
and from reports of the conformance kit that are kept, so that it is the same on every machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from .. import plugins
from ..devices.device import device as parse_device
from ..dtypes.definition import ALL
from ..errors import TensorbusError
from ..ops import lazy_families
from ..ops.definition import Op, table
from ..plugins.discovery import manifest_path
from ..plugins.manifest import Manifest
from ..testing.coverage import TRANSFER, Coverage, survey
from . import conformance_reports as reports
from .conformance_reports import ConformanceReport

_STYLES: Final = {"native": "green", "decomposed": "cyan", "host": "yellow", "missing": "red"}
_WIDTH: Final = 110
_SECTION: Final = re.compile(
    r"(?:^#[^\n]*`tensorbus coverage[^\n]*\n)?^\[ops\]\n.*?(?=^\[|\Z)", re.DOTALL | re.MULTILINE
)


def of(spec: str, own: bool = False) -> Coverage:
    """Survey a device, or what its ``own`` package supplies. Raises ``DeviceError`` where it is not there."""
    return survey(parse_device(spec), own=own)


def as_dict(survey: Coverage) -> dict[str, Any]:
    """Return a survey in a form for JSON."""
    routes = {op: {d.name: r for d, r in row.items()} for op, row in survey.routes.items()}
    return {"device": str(survey.device), "dtypes": [d.name for d in survey.dtypes], "ops": routes}


def render(survey: Coverage) -> Table:
    """Return the table for people: a row for each op, a column for each way with the dtypes that take it."""
    shown = Table(title=str(survey.device), title_justify="left", show_edge=False, pad_edge=False)
    shown.add_column("op", no_wrap=True)
    for way, style in _STYLES.items():
        shown.add_column(way, style=style)
    for op, row in survey.routes.items():
        names = {way: [d.name for d in row if row[d] == way] for way in _STYLES}
        shown.add_row(op, *("all" if row and len(n) == len(row) else " ".join(n) for n in names.values()))
    return shown


def section(survey: Coverage) -> str:
    """Return the ``[ops]`` table of the manifest: core's ops that have kernels; through the host first."""
    own = [op for op in sorted(survey.routes) if table.owner(op) == "tensorbus"]
    lines = [f"# Written by `tensorbus coverage --device {survey.device.type} --write`.", "[ops]"]
    host = [op for op in own if survey.on_host(op)]
    if host:
        lines += _listed("host", host)
    native = {op: survey.native(op) for op in own}
    whole = [op for op in own if native[op] and len(native[op]) == len(survey.routes[op])]
    if whole:
        lines += _listed("native", whole)
    for op in own:
        if native[op] and op not in whole:
            lines += _listed(op, [d.name for d in native[op]])
    return "\n".join(lines) + "\n"


def _listed(key: str, names: Sequence[str]) -> list[str]:
    flat = f"{key} = [{', '.join(map(_quoted, names))}]"
    if len(flat) <= _WIDTH:
        return [flat]
    lines, row = [f"{key} = ["], ""
    for name in map(_quoted, names):
        if len(row) + len(name) + 6 > _WIDTH:
            lines.append(f"    {row.rstrip()}")
            row = ""
        row += f"{name}, "
    return [*lines, f"    {row.rstrip()}", "]"]


def _quoted(name: str) -> str:
    return f'"{name}"'


def path(device_type: str) -> Path:
    """Return where the manifest of an installed device lies."""
    extension = plugins.backend(device_type).extension
    return Path(manifest_path(extension.module_name, extension.owner))


def replaced(text: str, new: str) -> str:
    """Return the text of a manifest with ``new`` in the place of its ``[ops]`` table, or behind it all."""
    if _SECTION.search(text):
        return _SECTION.sub(lambda _: new, text).rstrip() + "\n"
    return f"{text.rstrip()}\n\n{new}"


def write(survey: Coverage) -> Path:
    """Write the ``[ops]`` table of the device's manifest; return its path."""
    file = path(survey.device.type)
    file.write_text(replaced(file.read_text(encoding="utf-8"), section(survey)), encoding="utf-8")
    return file


def manifests() -> list[Manifest]:
    """Return the manifests of all installed device types that can be read."""
    known = []
    for status in plugins.status():
        if status.kind == "device" and status.state != "conflict":
            module = status.entry_point.partition(":")[0]
            with suppress(TensorbusError):
                known.append(Manifest.read(manifest_path(module, status.dist), status.dist))
    return sorted(known, key=lambda m: str(m.type))


def markdown(devices: Sequence[Manifest], runs: Sequence[ConformanceReport] = ()) -> str:
    """Return what ``runs`` of the kit found, and the matrix of ops and devices, by their manifests."""
    from ..version import __version__

    lazy_families.load_all()
    covered = [m for m in devices if m.ops]
    others = [str(m.type) for m in devices if not m.ops]
    lines = [
        "# Coverage", "",
        f"What each device of tensorbus {__version__} has kernels for, from the manifests, and what the"
        " conformance kit found on it. Written by `tensorbus coverage --all --markdown --reports"
        " docs/reports`; do not edit.", "",
        *(reports.section(runs) if runs else ()),
        "## Kernels", "",
        "- **kernel**: the device's own kernel, in every dtype that op and device have, or in those named",
        "- decomposed: into other ops, on the device; also in the dtypes that a kernel does not name",
        "- host: copied to the host, computed there, copied back",
        "- gap: not there, for the reason in the manifest", "",
        "A kernel for some calls of an op only is used for these and not listed; `tensorbus.explain` shows"
        " it.", "",
    ]  # fmt: skip
    if others:
        lines += [f"Without kernels in this release: {', '.join(others)}.", ""]
    for family in dict.fromkeys(op.family for op in _own()):
        lines += [
            f"### {family.capitalize()}",
            "",
            "| op | " + " | ".join(str(m.type) for m in covered) + " |",
        ]
        lines.append("|" + " --- |" * (len(covered) + 1))
        for op in _own():
            if op.family == family:
                lines.append("| " + " | ".join([f"`{op.name}`", *(_cell(op, m) for m in covered)]) + " |")
        lines.append("")
    return "\n".join(lines)


def document(folder: Path | None, new: Sequence[Path] = ()) -> str:
    """Return the matrix with the reports that ``folder`` keeps, the ``new`` ones of the kit among them.

    Raises ``ValueError`` for a folder that is not there, but for one that new reports begin, and for a new
    file that is no report of the kit on all checks, or one of some cases where no whole one is kept.
    """
    if folder is None:
        return markdown(manifests())
    if not folder.is_dir() and (folder.exists() or not new):
        raise ValueError(f"--reports {folder}: there is no such folder with reports.")
    for report in reports.merge_shards([report for file in new for report in reports.read_reports(file)]):
        reports.save(report, folder)
    return markdown(manifests(), reports.saved_reports(folder))


def _own() -> Iterator[Op[...]]:
    """Yield core's ops by family and name: the table's own order is that of the imports."""
    own = [op for op in table if table.owner(op.name) == "tensorbus" and op.family != TRANSFER]
    return iter(sorted(own, key=lambda op: (op.family, op.name)))


def _cell(op: Op[...], manifest: Manifest) -> str:
    native = manifest.ops.get(op.name)
    if not any(d.name in manifest.dtypes for d in op.dtypes):
        return "no dtype in common"
    if op.name in manifest.gaps:
        return f"gap: {manifest.gaps[op.name]}"
    if native is not None:
        return "**kernel**" if native == "all" else f"**kernel**: {_names(native)}"
    return "host" if op.name in manifest.host_ops else "decomposed"


def _names(dtypes: Sequence[str]) -> str:
    return ", ".join(d.name for d in ALL if d.name in dtypes)
