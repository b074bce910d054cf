"""Running many cases, in this process or in several, with a progress bar, until somebody stops it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Any

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


def run(cases: Sequence[Case], options: Options, jobs: int = 1) -> Generator[Outcome, None, None]:
    """Yield the outcome of each case, as they are done; 0 jobs are as many as there are processors.

    With several, a case that takes its process down is a finding like any other.
    """
    jobs = jobs or os.cpu_count() or 1
    if jobs == 1 or len(cases) < 2:
        yield from map(partial(examine, options=options), cases)
        return
    left = list(cases)
    while left:
        with _pool(jobs) as pool, suppress(BrokenProcessPool):
            for future in as_completed([pool.submit(examine, case, options) for case in left]):
                outcome = future.result()
                left.remove(outcome.case)
                yield outcome
        at_work, left = left[:jobs], left[jobs:]  # a process is gone: those that ran, each in one of its own
        for case in at_work:
            yield _alone(case, options)


@contextmanager
def _pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Fresh interpreters: a device may not survive a fork. Whoever stops the run stops what they are at."""
    before = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_leave_stopping_to_us) as pool:
        try:
            yield pool
        except (KeyboardInterrupt, GeneratorExit):
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in set(multiprocessing.active_children()) - before:
                worker.terminate()
            raise


def _leave_stopping_to_us() -> None:
    """Ctrl-C reaches every process of a terminal; only the one that holds the outcomes may answer it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _alone(case: Case, options: Options) -> Outcome:
    with _pool(1) as pool:
        try:
            return pool.submit(examine, case, options).result()
        except BrokenProcessPool:
            crash = Finding(check="value", call=case.op, problem="the process crashed")
            return Outcome(case=case, route="missing", findings=(crash,))


def with_progress(
    outcomes: Generator[Outcome, None, None], total: int, note: Callable[[Outcome], None]
) -> list[Outcome]:
    """Collect outcomes behind a progress bar on the error stream; ``note`` hears of each.

    Ctrl-C and SIGTERM end it early: what is there by then is returned, fewer than ``total``.
    """
    from rich.console import Console

    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TimeRemainingColumn(),
    )  # fmt: skip
    found: list[Outcome] = []
    progress = Progress(*columns, console=Console(stderr=True))
    with suppress(KeyboardInterrupt), _terminated_as_interrupted(), progress, closing(outcomes):
        task = progress.add_task("conformance", total=total)
        for outcome in outcomes:
            found.append(outcome)
            note(outcome)
            progress.update(task, advance=1, description=outcome.case.op)
    return found


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Make SIGTERM what Ctrl-C is, where this thread may."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    replaced = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, replaced)
