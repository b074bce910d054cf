"""Loops as people run them: steps that read numbers, text, eager steps, first steps, guards.

``python -m benchmarks.loops PART ...`` measures some of the parts, and prints each row once it is known.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from benchmarks import cold, eager_steps, generation, guards, reading

PARTS: Final[dict[str, tuple[str, Callable[[], Iterable[dict[str, Any]]]]]] = {
    "reading": ("a step that reads, ms", reading.rows),
    "generation": ("text, token by token", generation.rows),
    "eager_steps": ("eager steps", eager_steps.rows),
    "guards": ("guards", guards.rows),
    "cold": ("the first two steps", cold.rows),
}  # fmt: skip
"""The title of a part's table, and its rows, each measured when it is asked for."""


def run(progress: Any) -> dict[str, list[dict[str, Any]]]:
    """Return a table of each kind, with targets and PyTorch's figures where it is installed."""
    task = progress.add_task("loops", total=len(PARTS))

    def show(line: str) -> None:
        progress.console.print(line, markup=False, highlight=False)

    tables: dict[str, list[dict[str, Any]]] = {}
    for part, (title, _) in PARTS.items():
        progress.update(task, description=title)
        tables |= measured([part], show)
        progress.advance(task)
    progress.remove_task(task)
    return tables


def measured(parts: Collection[str], show: Callable[[str], None]) -> dict[str, list[dict[str, Any]]]:
    """Return the tables of these parts; ``show`` is told each row."""
    tables: dict[str, list[dict[str, Any]]] = {}
    for part in parts:
        title, rows = PARTS[part]
        tables[title] = []
        for row in rows():
            tables[title].append(row)
            show(f"{part}: " + ", ".join(f"{key} {value}" for key, value in row.items()))
    return tables


def main() -> None:
    """Measure the parts that are named."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loops", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS], help="none: all")
    measured(parser.parse_args().parts or [*PARTS], lambda line: print(line, flush=True))


if __name__ == "__main__":
    main()
