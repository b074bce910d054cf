"""The runs of ``tensorbus conformance --communicator`` and of the tests: every program on every device."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Final

import tensorbus as tb
from rich.console import Console
from rich.table import Table
from rich.text import Text
from tensorbus import __version__, plugins
from tensorbus import dtypes as dt

from ..examination import few
from ..outcome import Finding
from .faults import FAULTS
from .launch import connects_threads, disagreements, launch
from .setting import CELL_SECONDS, Setting

VALUES = "values"
"""The program that calls every collective."""
_SHOWN: Final = 45
"""How many lines of what ranks said are printed, of each finding."""
PROGRAMS = (VALUES, *FAULTS)


def settings(
    communicator: str,
    devices: Sequence[str] = (),
    dtypes: Sequence[str] = (),
    ranks: int = 4,
    quick: bool = False,
    programs: Sequence[str] = (),
    time_limit: float = CELL_SECONDS,
) -> list[Setting]:
    """Return what there is to launch. Without ``devices``: the host's; without ``programs``: all.

    ``quick`` takes one dtype of each kind and fewer layouts. ``time_limit``: of one group, dtype and layout
    in a process. Raises ``ValueError`` for a communicator that is not installed, an unknown program, a limit
    that is none or fewer than 2 ranks, ``DtypeError`` for an unknown dtype.
    """
    unknown = [program for program in programs if program not in PROGRAMS]
    if unknown:
        raise ValueError(f"no program is called {unknown[0]!r}; there are: {', '.join(PROGRAMS)}.")
    if not time_limit > 0:
        raise ValueError(f"--time-limit {time_limit:g}: a positive number of seconds is needed.")
    if ranks < 2:
        raise ValueError(f"--ranks {ranks}: 2 are needed at least.")
    listed = []
    for device in devices or [str(plugins.host_type())]:
        here = [d for d in dt.ALL if d in tb.Device(device).properties.dtypes]
        wanted = [dt.dtype(name) for name in dtypes] or (few(here) if quick else here)
        threads = connects_threads(communicator, device)
        listed += [
            Setting(
                communicator=communicator, device=device, program=program, ranks=ranks, quick=quick,
                dtypes=tuple(d.name for d in wanted), threads=threads,
                timeout=FAULTS[program][1] if program in FAULTS else 60.0, cell_seconds=time_limit,
            )
            for program in programs or PROGRAMS
        ]  # fmt: skip
    return listed


def examine(setting: Setting, command: str = "") -> tuple[int, list[Finding]]:
    """Run one launch; return how many calls its ranks made, and what is wrong."""
    says = Console(stderr=True).status(f"{setting.program} on {setting.device}")
    with says if setting.threads else nullcontext():  # processes say where they are
        reports, findings = launch(setting, command)
    problems = [*findings, *disagreements(setting, reports)]
    seen = {str(finding) for finding in problems}
    for rank, report in enumerate(reports):
        for finding in report.findings if report else ():
            if str(finding) not in seen:  # most are the same on each rank
                seen.add(str(finding))
                problems.append(
                    Finding(check=finding.check, call=f"rank {rank}: {finding.call}", problem=finding.problem)
                )
    return sum(report.calls for report in reports if report), problems


def communication(
    communicator: str, devices: Sequence[str] = (), dtypes: Sequence[str] = (), ranks: int = 4,
    command: str = "", path: str | None = None, quick: bool = False, programs: Sequence[str] = (),
    time_limit: float = CELL_SECONDS,
) -> int:  # fmt: skip
    """Examine a communicator and print a table of its programs; write the report as JSON to ``path``.

    ``command`` starts processes, with ``{ranks}`` in the place of their number. Returns the exit code: 0
    where nothing was found, 1 where something was. Raises as ``settings`` does.
    """
    if path is not None and not Path(path).parent.is_dir():
        raise ValueError(f"--report {path}: there is no folder {str(Path(path).parent)!r}; make it first.")
    rows = [
        (setting, *examine(setting, command))
        for setting in settings(communicator, devices, dtypes, ranks, quick, programs, time_limit)
    ]
    console = Console()
    table = Table(
        title=f"{communicator}, {ranks} ranks", title_justify="left", show_edge=False, pad_edge=False
    )
    for name in ("device", "program", "calls", "found"):
        table.add_column(name, no_wrap=True)
    for setting, calls, findings in rows:
        table.add_row(
            setting.device, setting.program, str(calls), str(len(findings)), style="red" if findings else ""
        )
    console.print(table)
    for _, _, findings in rows:
        for finding in findings[:50]:
            console.print(Text(_shortened(str(finding)), style="red"))
        if len(findings) > 50:
            console.print(
                Text(f"... and {len(findings) - 50} more; --report writes all of them", style="red")
            )
    if path is not None:
        document = {
            "tensorbus": __version__, "communicator": communicator, "ranks": ranks, "quick": quick,
            "programs": [
                {
                    "device": setting.device, "program": setting.program, "calls": calls,
                    "dtypes": list(setting.dtypes),
                    "findings": [{"check": f.check, "call": f.call, "problem": f.problem} for f in findings],
                }
                for setting, calls, findings in rows
            ],
        }  # fmt: skip
        Path(path).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 1 if any(findings for _, _, findings in rows) else 0


def _shortened(text: str) -> str:
    """Return the first line and the last ones of what ranks said; all of it is in the report."""
    first, *rest = text.rstrip().splitlines()
    if len(rest) <= _SHOWN:
        return text.rstrip()
    return "\n".join(
        [first, f"... ({len(rest) - _SHOWN} lines; --report writes all of them)", *rest[-_SHOWN:]]
    )
