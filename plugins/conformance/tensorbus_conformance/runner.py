"""Running many cases, in this process or in several, with a progress bar."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import partial

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from .examination import Options, examine
from .outcome import Case, Finding, Outcome


def run(cases: Sequence[Case], options: Options, jobs: int = 1) -> Iterator[Outcome]:
    """Yield the outcome of each case, in order; 0 jobs are as many as there are processors.

    With several, a case that takes its process down is a finding like any other.
    """
    jobs = jobs or os.cpu_count() or 1
    if jobs == 1 or len(cases) < 2:
        yield from map(partial(examine, options=options), cases)
        return
    left = list(cases)
    while left:
        done = 0
        with _pool(jobs) as pool, suppress(BrokenProcessPool):
            for outcome in [pool.submit(examine, case, options) for case in left]:
                yield outcome.result()
                done += 1
        if done < len(left):  # a process is gone: those that ran are examined one by one, each in its own
            for case in left[done : done + jobs]:
                yield _alone(case, options)
            done += jobs
        left = left[done:]


def _pool(jobs: int) -> ProcessPoolExecutor:
    """Fresh interpreters: a device may not survive a fork."""
    return ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"))


def _alone(case: Case, options: Options) -> Outcome:
    with _pool(1) as pool:
        try:
            return pool.submit(examine, case, options).result()
        except BrokenProcessPool:
            crash = Finding(check="value", call=case.op, problem="the process crashed")
            return Outcome(case=case, route="missing", findings=(crash,))


def with_progress(outcomes: Iterable[Outcome], total: int, note: Callable[[Outcome], None]) -> list[Outcome]:
    """Collect outcomes behind a progress bar on the error stream; ``note`` hears of each."""
    from rich.console import Console

    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TimeRemainingColumn(),
    )  # fmt: skip
    found = []
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("conformance", total=total)
        for outcome in outcomes:
            found.append(outcome)
            note(outcome)
            progress.update(task, advance=1, description=outcome.case.op)
    return found
