"""Compiled programs beside all peers, and what compiling costs: ``python -m benchmarks compiled``.

Each peer runs in a process of its own, in the same number of threads, and they are timed in turn: one peer's
threads, caches and memory are none of another's, and drift hits all alike. A peer that is not installed, or
has no such row, is shown as "-". The environment variable ``ROWS`` picks rows by a part of their names.
"""

from __future__ import annotations

import os
from typing import Any

from rich.progress import Progress

from benchmarks.compiled.costs import COSTS
from benchmarks.compiled.measuring import Measuring
from benchmarks.compiled.memory import MEMORY
from benchmarks.compiled.rows import ROWS


def run(progress: Progress) -> list[dict[str, Any]]:
    """Measure every row that is asked for; return them. Medians."""
    wanted = os.environ.get("ROWS", "")
    rows = [row for row in ROWS if wanted in row.name]
    costs = [cost for cost in (*COSTS, *MEMORY) if wanted in cost.name]
    actual: list[dict[str, Any]] = []
    task = progress.add_task("compiled", total=len(rows) + len(costs))
    if rows:
        with Measuring() as measuring:
            for row in rows:
                progress.update(task, description=row.name)
                actual += measuring.measure(row)
                progress.advance(task)
    for cost in costs:
        progress.update(task, description=cost.name)
        actual.append(cost.measure())
        progress.advance(task)
    progress.remove_task(task)
    return actual
