"""Run the benchmarks, print a table of each and keep the figures: ``python -m benchmarks``."""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

SUITES = (
    "startup",
    "store",
    "overhead",
    "distributed_tensors",
    "eager_steps",
    "memory",
    "kernels",
    "opencl",
    "compiled",
    "loops",
    "corpus",
    "padding",
)
WIDE = 16
"""From how many columns on a table is shown with the figures of peers in one."""
STEPWISE = ("compiled", "corpus", "loops", "store")
"""Suites that take long and show how far they are themselves."""
HERE = Path(__file__).parent


def main() -> int:
    """Run the suites that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("suites", nargs="*", help=f"of {', '.join(SUITES)}; none: all")
    parser.add_argument(
        "--output", type=Path, default=HERE / "results.json", help="where the figures are kept"
    )
    options = parser.parse_args()
    unknown = set(options.suites) - set(SUITES)
    if unknown:
        parser.error(f"no suite is called {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}")
    console = Console()
    results: dict[str, Any] = {"machine": _machine(), "date": time.strftime("%Y-%m-%d")}
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("measuring", total=len(options.suites or SUITES))
        for name in options.suites or SUITES:
            progress.update(task, description=name)
            suite = importlib.import_module(f"benchmarks.{name}")
            results[name] = suite.run(progress) if name in STEPWISE else suite.run()
            progress.advance(task)
    for name in options.suites or SUITES:
        tables = results[name] if isinstance(results[name], dict) else {"": results[name]}
        for title, rows in tables.items():
            if rows:
                console.print(_table(f"{name}: {title}" if title else name, rows))
    if options.output.exists():
        results = {**json.loads(options.output.read_text()), **results}
    options.output.write_text(json.dumps(results, indent=2) + "\n")
    console.print(f"figures kept in {options.output}")
    return 0


def _machine() -> dict[str, str]:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return {
        "processor": model or platform.processor(),
        "system": platform.system(),
        "python": sys.version.split()[0],
    }


def _table(name: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(title=name)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    if len(columns) > WIDE:
        columns, rows = _folded(rows)
    for column in columns:
        table.add_column(column, justify="right" if isinstance(rows[0].get(column), float) else "left")
    for row in rows:
        table.add_row(*[_cell(row.get(column)) for column in columns])
    return table


def _folded(rows: list[dict[str, Any]]) -> tuple[list[str], list[dict[str, Any]]]:
    """Return rows with the figures of all others in one column: first and last ones stay."""
    folded = []
    for row in rows:
        selected = {key: row.get(key) for key in ("row", "unit", "tensorbus", "asked", "met")}
        others = [f"{key} {value}" for key, value in row.items() if key not in selected and value != "-"]
        folded.append({**selected, "others": ", ".join(others)})
    return list(folded[0]), folded


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "[green]yes[/]" if value else "[red]no[/]"
    return "" if value is None else str(value)


if __name__ == "__main__":
    sys.exit(main())
