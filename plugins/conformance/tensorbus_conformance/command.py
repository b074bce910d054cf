"""The command ``tensorbus conformance``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from . import examination, report
from .examination import CHECKS, TIME_LIMIT, Options, cases
from .outcome import Outcome
from .runner import run, with_progress


def conformance(
    devices: Sequence[str], ops: Sequence[str] = (), dtypes: Sequence[str] = (), checks: Sequence[str] = (),
    path: str | None = None, quick: bool = False, jobs: int = 1, shard: str = "",
    in_process: bool = False, time_limit: float = TIME_LIMIT,
) -> int:  # fmt: skip
    """Examine ``devices`` and print the report; write it as JSON to ``path``.

    Cases run in ``jobs`` processes beside this one, or with ``in_process`` in this one. ``time_limit`` is for
    how many seconds such a process may be at one check of one call.

    Returns the exit code: 0 where nothing was found, 1 where something was, 130 where Ctrl-C or SIGTERM
    stopped it; then the report is of what was done by then, and says so. Raises the errors of ``cases``,
    ``DeviceError`` for a device that is not there, and ``ValueError`` for an unknown check, a wrong shard,
    or a report in no folder.
    """
    wrong = [c for c in checks if c not in CHECKS]
    if wrong:
        raise ValueError(f"no check is called {wrong[0]!r}; there are: {', '.join(CHECKS)}.")
    if path is not None and not Path(path).parent.is_dir():
        raise ValueError(f"--report {path}: there is no folder {str(Path(path).parent)!r}; make it first.")
    if path is not None and Path(path).is_dir():
        raise ValueError(f"--report {path}: this is a folder; name a file in it.")
    if jobs < 0:
        raise ValueError(f"--jobs {jobs}: a number of processes is needed; 0: one for each processor.")
    if not time_limit > 0:
        raise ValueError(f"--time-limit {time_limit:g}: a positive number of seconds is needed.")
    todo = examination.shard(cases(devices, ops, dtypes, quick), shard)
    options = Options(checks=tuple(checks) or CHECKS, quick=quick, time_limit=time_limit)
    console, errors = Console(), Console(stderr=True)

    def note(outcome: Outcome) -> None:
        if outcome.findings:
            errors.print(f"[red]{outcome.case}: {len(outcome.findings)} found[/red]", highlight=False)

    outcomes = with_progress(run(todo, options, jobs, in_process), len(todo), note)
    outcomes.sort(key=lambda outcome: todo.index(outcome.case))
    report.show(outcomes, console)
    limits = report.limits(ops, dtypes, checks, quick=quick, shard=shard)
    stopped = len(outcomes) < len(todo)
    if stopped:
        limits.append(f"stopped after {len(outcomes)} of {len(todo)} cases")
        console.print(f"[bold]{limits[-1]}: this report is partial[/bold]", highlight=False)
    if path is not None:
        report.write(outcomes, path, limits)
    return 130 if stopped else 1 if any(o.findings for o in outcomes) else 0
