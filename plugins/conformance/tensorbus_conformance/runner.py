"""Running many cases, in processes beside this one, with a progress bar, until somebody stops it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache, partial
from multiprocessing.connection import wait
from typing import Any

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from tensorbus import plugins

from .examination import Options, examine
from .outcome import Case, Outcome
from .worker import PATIENCE, Worker


def run(
    cases: Sequence[Case], options: Options, jobs: int = 1, in_process: bool = False
) -> Generator[Outcome, None, None]:
    """Yield the outcome of each case, as they are done, by ``jobs`` processes; 0 are as many as processors.

    A case that takes its process down, or takes too long, is a finding like any other, and a fresh process
    goes on. With ``in_process`` cases run here, as do those of a device that a call registered: no other
    process has it.
    """
    here = [case for case in cases if in_process or not is_installed(case.device)]
    others = [case for case in cases if case not in here] if here else list(cases)
    if others:
        yield from _by_workers(others, options, min(jobs or os.cpu_count() or 1, len(others)))
    yield from map(partial(examine, options=options), here)


@cache
def is_installed(device: str) -> bool:
    """Return whether a device type comes from an installed package, so that every process has it."""
    return plugins.backend(device).entry_point is not None


def _by_workers(cases: Sequence[Case], options: Options, jobs: int) -> Generator[Outcome, None, None]:
    left = list(reversed(cases))
    workers: list[Worker] = []
    try:
        while left or workers:
            while left and len(workers) < jobs:
                workers.append(Worker(options))
                workers[-1].begin(left.pop())
            wait([worker.connection for worker in workers], PATIENCE)
            for worker in tuple(workers):
                outcome = worker.receive(0)
                if outcome is None:
                    continue
                yield outcome
                if left and worker.is_alive:
                    worker.begin(left.pop())
                else:
                    workers.remove(worker)
                    worker.stop()
    finally:
        for worker in workers:
            worker.stop()


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
    listed: list[Outcome] = []
    progress = Progress(*columns, console=Console(stderr=True))
    with suppress(KeyboardInterrupt), _terminated_as_interrupted(), progress, closing(outcomes):
        task = progress.add_task("conformance", total=total)
        for outcome in outcomes:
            listed.append(outcome)
            note(outcome)
            progress.update(task, advance=1, description=outcome.case.op)
    return listed


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
