"""The program of each rank; a process by ``python -m tensorbus_conformance.communication FOLDER``."""

from __future__ import annotations

from pathlib import Path

import tensorbus as tb
from tensorbus import distributed as dist

from ..outcome import Finding
from . import collectives
from .faults import FAULTS, everybody
from .progress import cell
from .setting import Report, Setting


def run(setting: Setting, report: Report) -> None:
    """Run the program of the setting as a rank, once all of them are ready for it."""
    (tb.ones((2,), device=setting.device) + 1).tolist()  # whatever a device does at its first use
    everybody(setting, "ready")
    if setting.program in FAULTS:
        with cell(setting, report, setting.program):
            FAULTS[setting.program][0](setting, report)
    else:
        collectives.program(setting, report)


def on_thread(setting: Setting, reports: list[Report | None]) -> None:
    """Be a rank that is a thread."""
    report = Report()
    try:
        run(setting, report)
        report.is_complete = True
    finally:
        reports[dist.get_rank()] = report


def main(folder: str) -> None:
    """Be a rank that is a process, and leave the report in the folder."""
    path = Path(folder)
    setting = Setting.read(path)
    dist.init(timeout=setting.timeout, prefer=setting.communicator)
    report, file = Report(), path / f"rank{dist.get_rank()}.json"
    report.write(file)  # of a rank that ends, or is ended, this is what is left
    try:
        run(setting, report)
    except BaseException as error:
        notes = " ".join(getattr(error, "__notes__", ()))
        text = f"it raised {type(error).__name__}: {error} ({notes})"
        report.findings.append(Finding(check="launch", call=setting.program, problem=text))
        report.write(file)
        raise
    report.is_complete = True
    report.write(file)
    dist.shutdown()
