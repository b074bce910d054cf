"""Loops as people run them: steps that read numbers, text, eager steps, first steps, guards."""

from __future__ import annotations

from typing import Any

from benchmarks import cold, eager_steps, generation, guards, reading


def run(progress: Any) -> dict[str, list[dict[str, Any]]]:
    """Return a table of each kind, with targets and PyTorch's figures where it is installed."""
    parts = {
        "a step that reads, ms": reading.rows, "text, token by token": generation.rows,
        "eager steps": eager_steps.run, "guards": guards.rows,
    }  # fmt: skip
    task = progress.add_task("loops", total=len(parts) + 1)
    tables: dict[str, list[dict[str, Any]]] = {}
    for name, make in parts.items():
        progress.update(task, description=name)
        tables[name] = make()
        progress.advance(task)
    tables["the first two steps"] = cold.rows(lambda what: progress.update(task, description=what))
    progress.remove_task(task)
    return tables
