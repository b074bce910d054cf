"""Reports of the conformance kit, kept short in a folder, and the section of ``docs/coverage.md`` they make.

The kit writes down a row with times for each op and dtype. What is kept of it says which run it was, how
every op ran in every dtype, and what was found.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from ..ops import lazy_families
from ..ops.definition import table

STATUSES: Final = ("native", "decomposed", "host", "missing", "failed")
_SHOWN: Final = {"native": "kernel"}
_SHARD: Final = "--shard "
_STOPPED: Final = "stopped after "
_PARTS: Final = ("--ops ", "--dtypes ", _SHARD, _STOPPED)
"""The limits of a report of some cases, all of whose checks were run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConformanceReport:
    """One run of the kit on one device. ``ops`` has the dtypes of each op by how it ran, between spaces.

    ``again`` names ops and dtypes that were run once more by themselves, with the date, and of which that is
    kept. ``each`` has the sample calls of each op in each dtype; it is not kept itself.
    """

    device: str
    name: str
    driver: str
    date: str
    system: str
    python: str
    tensorbus: str
    limits: Sequence[str]
    calls: int
    ops: Mapping[str, Mapping[str, str]]
    findings: Sequence[str]
    again: str = ""
    each: Mapping[str, Mapping[str, int]] = field(default_factory=dict, compare=False)

    @property
    def file(self) -> str:
        """The name of its file: a later run on the same machine takes its place."""
        text = f"{self.device} {self.name}".lower()
        return re.sub(r"[^a-z0-9]+", "-", text).strip("-") + ".json"

    def counts(self, ops: Sequence[str]) -> Counter[str]:
        """Return how many cases of ``ops`` there are of each status."""
        return Counter(
            {s: n for s in STATUSES if (n := sum(len(self.ops[op].get(s, "").split()) for op in ops))}
        )


def read_reports(file: Path) -> list[ConformanceReport]:
    """Return the reports in a file that the kit wrote, one for each of its devices.

    Raises ``ValueError`` for another file, and for a report of a part of the checks.
    """
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        limits = [limit for limit in data.get("limits", ()) if limit != "--quick"]
        part = [limit for limit in limits if not limit.startswith(_PARTS)]
        reports = [_device_report(data, device, rows) for device, rows in data["devices"].items()]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{file}: this is no report of `tensorbus conformance --report` ({error!r})."
        ) from None
    if part:
        raise ValueError(f"{file}: made with {' '.join(part)}; what is kept are reports on all checks.")
    return reports


def _device_report(data: Mapping[str, Any], device: str, rows: Mapping[str, Any]) -> ConformanceReport:
    about = data.get("about", {}).get(device, {})
    ops: dict[str, dict[str, str]] = {}
    calls, findings = 0, []
    for op, row in sorted(rows.items()):
        by_status: dict[str, list[str]] = {}
        for dtype, case in row.items():
            by_status.setdefault(case["status"], []).append(dtype)
            calls += case["calls"]
            findings += [f"{op} {dtype}: {f['check']}: {f['call']}: {f['problem']}" for f in case["findings"]]
        ops[op] = {status: " ".join(by_status[status]) for status in STATUSES if status in by_status}
    return ConformanceReport(
        device=device, name=about.get("name", ""), driver=about.get("driver", ""), calls=calls, ops=ops,
        findings=findings, limits=data.get("limits", []),
        each={op: {dtype: case["calls"] for dtype, case in row.items()} for op, row in rows.items()},
        **{key: data.get(key, "") for key in ("date", "system", "python", "tensorbus")},
    )  # fmt: skip


def merge_shards(reports: Sequence[ConformanceReport]) -> list[ConformanceReport]:
    """Return ``reports`` with the shards of each complete run merged; incomplete runs stay in shards.

    Shards may be of several counts: 1/2, 2/4 and 4/4 are a whole run.
    """
    shards: dict[tuple[Any, ...], dict[str, ConformanceReport]] = {}
    merged = []
    for report in reports:
        which = next((x.removeprefix(_SHARD) for x in report.limits if x.startswith(_SHARD)), "")
        if not which or any(x.startswith(_STOPPED) for x in report.limits):
            merged.append(report)
            continue
        limits = [x for x in report.limits if not x.startswith(_SHARD)]
        shards.setdefault((report.file, report.tensorbus, *limits), {})[which] = report
    for parts in shards.values():
        run = list(parts.values())
        merged += [_merged(run)] if _covers_all(parts) else run
    return merged


def _covers_all(shards: Iterable[str]) -> bool:
    """Return whether shards, such as ``["1/2", "2/4", "4/4"]``, have each op exactly once."""
    parts = [(int(one), int(count)) for one, _, count in (shard.partition("/") for shard in shards)]
    every = math.lcm(*(count for _, count in parts))
    return sorted(op for one, count in parts for op in range(one - 1, every, count)) == list(range(every))


def _merged(parts: Sequence[ConformanceReport]) -> ConformanceReport:
    """Return the report of a run that was made in parts, which have no op in common."""
    return replace(
        parts[0], limits=[x for x in parts[0].limits if not x.startswith(_SHARD)],
        date=max(part.date for part in parts), calls=sum(part.calls for part in parts),
        ops=dict(sorted(row for part in parts for row in part.ops.items())),
        findings=[f for part in parts for f in part.findings],
        each={op: row for part in parts for op, row in part.each.items()},
    )  # fmt: skip


def save(report: ConformanceReport, folder: Path) -> Path:
    """Write a report into the folder; return its path.

    A report of some cases takes their place in what the folder has of the same device. Raises
    ``ValueError`` where it has nothing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / report.file
    if any(limit.startswith(_PARTS) for limit in report.limits):
        whole = next((r for r in saved_reports(folder) if r.file == report.file), None)
        if whole is None or ("--quick" in report.limits and "--quick" not in whole.limits):
            raise ValueError(f"{folder} has no such report on all ops of {report.device} on {report.name}.")
        report = _within(whole, report)
    fields = {name: value for name, value in asdict(report).items() if name != "each"}
    path.write_text(json.dumps(fields, indent=1) + "\n", encoding="utf-8")
    return path


def _cases(report: ConformanceReport) -> dict[tuple[str, str], str]:
    return {
        (op, dtype): status
        for op, row in report.ops.items()
        for status, dtypes in row.items()
        for dtype in dtypes.split()
    }


def _within(whole: ConformanceReport, part: ConformanceReport) -> ConformanceReport:
    """Return a report with some cases, and what was found of them, taken from a later one."""
    cases, later = _cases(whole), _cases(part)
    limits = [limit for limit in part.limits if limit != "--quick"]
    new = sum(part.each.get(op, {}).get(d, 0) for op, d in later if (op, d) not in cases)
    if not any(limit.startswith(("--dtypes ", _STOPPED)) for limit in limits):
        cases = {(op, d): status for (op, d), status in cases.items() if op not in part.ops}
    ops: dict[str, dict[str, str]] = {}
    for (op, d), status in sorted((cases | later).items(), key=lambda case: case[0][0]):
        row = ops.setdefault(op, {})
        row[status] = f"{row[status]} {d}" if status in row else d
    others = [f for f in whole.findings if tuple(f.split(":", 1)[0].split(" ", 1)) not in later]
    options = [x.removeprefix(_STOPPED) if x.startswith(_STOPPED) else x for x in limits]
    options = [x.removeprefix("--") if x.startswith(_SHARD) else x.removeprefix("--ops ") for x in options]
    parts = [x.removeprefix("--dtypes ").replace(",", ", ") for x in options]
    again = "; ".join(filter(None, (whole.again, f"{' in '.join(parts)} again on {part.date}")))
    return replace(
        whole, ops=ops, calls=whole.calls + new, findings=[*others, *part.findings], again=again
    )  # fmt: skip


def saved_reports(folder: Path) -> list[ConformanceReport]:
    """Return the reports of a folder, by the names of their files."""
    return [
        ConformanceReport(**json.loads(f.read_text(encoding="utf-8"))) for f in sorted(folder.glob("*.json"))
    ]


def section(reports: Sequence[ConformanceReport]) -> list[str]:
    """Return the lines of the document: the runs, how the ops of each family ran, and what was found."""
    lazy_families.load_all()
    lines = [
        "## Conformance", "",
        "Runs of the [conformance kit](../plugins/conformance/README.md). A case is an op in a dtype, or what"
        " the manifest says of the device; the files in [reports](reports) name each.", "",
        "| device | on | date | cases | sample calls | failed |", "| --- | --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    for report in reports:
        counts = report.counts(list(report.ops))
        lines.append(
            f"| {report.device} | {_where(report)} | {report.date} | {counts.total():,} | {report.calls:,} |"
            f" {counts['failed'] or 'none'} |"
        )
    families: dict[str, list[str]] = {}
    for op in sorted({op for report in reports for op in report.ops}):
        families.setdefault(table[op].family if op in table else "manifest", []).append(op)
    heads = [f"{r.device} on {r.name}" if r.name else r.device for r in reports]
    lines += ["", "| family | " + " | ".join(heads) + " |", "|" + " --- |" * (len(reports) + 1)]
    for family, ops in sorted(families.items()):
        lines.append(f"| {family} | " + " | ".join(_cell(report, ops) for report in reports) + " |")
    for report in reports:
        if report.findings:
            lines += ["", f"Found on {report.device}, {report.name}:", ""]
            lines += [f"- {finding}" for finding in report.findings]
    return [*lines, ""]


def _where(report: ConformanceReport) -> str:
    machine = ", ".join(filter(None, (report.name, report.driver, report.system)))
    versions = ", ".join(
        filter(None, (f"Python {report.python}" if report.python else "", *report.limits, report.again))
    )
    return "; ".join(filter(None, (machine, versions)))


def _cell(report: ConformanceReport, ops: Sequence[str]) -> str:
    counts = report.counts([op for op in ops if op in report.ops])
    return ", ".join(f"{n} {_SHOWN.get(status, status)}" for status, n in counts.items())
