"""The cost of importing tensorbus, and of finding the installed devices."""

from __future__ import annotations

import compileall
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import tensorbus

IMPORT_MS, IMPORT_MB, DISCOVERY_MS, DISTRIBUTIONS = 60.0, 30.0, 10.0, 200

_IMPORT = """
import json, os, time
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
before, start = resident(), time.perf_counter()
import tensorbus
seconds = time.perf_counter() - start
print(json.dumps([seconds * 1e3, (resident() - before) / 1e6]))
"""
_DISCOVERY = """
import json, sys, time
import tensorbus
from tensorbus import plugins
sys.path.append(sys.argv[1])
start = time.perf_counter()
found = plugins.known_types()
print(json.dumps([(time.perf_counter() - start) * 1e3, len(found)]))
"""


def _median(program: str, *arguments: str, runs: int = 9) -> list[float]:
    results = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", program, *arguments], capture_output=True, check=True
            ).stdout
        )
        for _ in range(runs)
    ]
    return [statistics.median(column) for column in zip(*results, strict=True)]


def _distributions(folder: Path, count: int) -> None:
    """Lay out the metadata of ``count`` packages as pip leaves it, one in twenty with a device."""
    for k in range(count):
        info = folder / f"package_{k}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: package-{k}\nVersion: 1.0\n")
        (info / "RECORD").write_text("")
        group = (
            f"[tensorbus.devices]\ndevice{k} = package_{k}.extension\n"
            if k % 20 == 0
            else "[console_scripts]\na = b:c\n"
        )
        (info / "entry_points.txt").write_text(group)


def run() -> list[dict[str, Any]]:
    """Measure import time, import memory and discovery; return a row for each."""
    compileall.compile_dir(Path(tensorbus.__file__).parent, quiet=2)
    milliseconds, megabytes = _median(_IMPORT)
    with tempfile.TemporaryDirectory() as name:
        _distributions(Path(name), DISTRIBUTIONS)
        discovery, _ = _median(_DISCOVERY, name)
    return [
        _row("import tensorbus, ms", milliseconds, IMPORT_MS),
        _row("import tensorbus, MB", megabytes, IMPORT_MB),
        _row(f"discovery, {DISTRIBUTIONS} more distributions, ms", discovery, DISCOVERY_MS),
    ]


def _row(what: str, value: float, limit: float) -> dict[str, Any]:
    return {"what": what, "value": round(value, 2), "limit": limit, "met": value < limit}
