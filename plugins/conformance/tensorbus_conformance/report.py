"""The report: op x dtype in a table and as JSON, what was found, and what was examined when and where."""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text
from tensorbus import Device, __version__
from tensorbus.errors import TensorbusError

from .outcome import MANIFEST, STATUSES, Outcome

_STYLES = {
    "native": "green",
    "decomposed": "cyan",
    "host": "yellow",
    "missing": "magenta",
    "failed": "bold red",
}


def as_document(outcomes: Sequence[Outcome], limits: Sequence[str] = ()) -> dict[str, Any]:
    """Return the report in a form for JSON, ops by device, then dtype.

    ``limits`` are the options that left some of the kit out, as they were given.
    """
    devices: dict[str, dict[str, dict[str, Any]]] = {}
    for o in outcomes:
        row = devices.setdefault(o.case.device, {}).setdefault(o.case.op, {})
        row[o.case.dtype] = {
            "status": o.status, "route": o.route, "calls": o.calls, "seconds": round(o.seconds, 4),
            "microseconds": None if o.microseconds is None else round(o.microseconds, 1),
            "findings": [{"check": f.check, "call": f.call, "problem": f.problem} for f in o.findings],
        }  # fmt: skip
    counts = {d: dict(Counter(o.status for o in outcomes if o.case.device == d)) for d in devices}
    return {
        "tensorbus": __version__, "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}",
        "limits": list(limits),
        "about": {d: about for d in devices if (about := _about(d))}, "counts": counts, "devices": devices,
    }  # fmt: skip


def limits(
    ops: Sequence[str], dtypes: Sequence[str], checks: Sequence[str] = (), *, quick: bool = False,
    shard: str = "",
) -> list[str]:  # fmt: skip
    """Return the options that leave some of the kit out, as they are given on the command line."""
    lists = {"--ops": ops, "--dtypes": dtypes, "--checks": checks, "--shard": [shard] if shard else []}
    return [*(["--quick"] if quick else []), *(f"{k} {','.join(v)}" for k, v in lists.items() if v)]


def _about(device: str) -> dict[str, str]:
    """Return what was examined: the first unit's name and driver."""
    try:
        properties = Device(device).properties
    except TensorbusError:
        return {}
    return {"name": properties.name, "driver": properties.driver}


def write(outcomes: Sequence[Outcome], path: str | Path, limits: Sequence[str] = ()) -> None:
    """Write the report as JSON."""
    document = as_document(outcomes, limits)
    Path(path).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def tables(outcomes: Sequence[Outcome]) -> Iterator[Table]:
    """Yield a table for each device: a row for each op, a column for each status with its dtypes."""
    for device in dict.fromkeys(o.case.device for o in outcomes):
        own = [o for o in outcomes if o.case.device == device and o.case.op != MANIFEST]
        statuses = [s for s in STATUSES if any(o.status == s for o in own)]
        table = Table(title=device, title_justify="left", show_edge=False, pad_edge=False)
        table.add_column("op", no_wrap=True)
        for status in statuses:
            table.add_column(status, style=_STYLES[status])
        table.add_column("best us", justify="right", no_wrap=True)
        table.add_column("s", justify="right", no_wrap=True)
        for op in dict.fromkeys(o.case.op for o in own):
            row = [o for o in own if o.case.op == op]
            best = min((o.microseconds for o in row if o.microseconds is not None), default=None)
            cells = [_those(row, status) for status in statuses]
            spent = f"{sum(o.seconds for o in row):.1f}"
            table.add_row(op, *cells, "" if best is None else f"{best:.1f}", spent)
        yield table


def _those(row: Sequence[Outcome], status: str) -> str:
    dtypes = [o.case.dtype for o in row if o.status == status]
    return f"all {len(row)}" if len(dtypes) == len(row) else " ".join(dtypes)


def show(outcomes: Sequence[Outcome], console: Console, limit: int = 100) -> None:
    """Print tables, what was found (at most ``limit`` lines of it), and how many of each there are."""
    for table in tables(outcomes):
        console.print(table)
    findings = [(o, f) for o in outcomes for f in o.findings]
    for outcome, finding in findings[:limit]:
        console.print(Text(f"{outcome.case}: {finding}", style="red"))
    if len(findings) > limit:
        console.print(Text(f"... and {len(findings) - limit} more; --report writes all of them", style="red"))
    counts = Counter(o.status for o in outcomes)
    console.print(Text(", ".join(f"{counts[s]} {s}" for s in STATUSES if counts[s]) or "nothing to examine"))
