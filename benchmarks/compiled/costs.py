"""Costs of compiling: seconds until the first result, cold and warm, and the memory that a step needs.

Each figure comes from a process of its own, with a cache folder of its own: ``python -m
benchmarks.compiled.costs MODULE VARIANT ROW OPTIONS``.
"""

from __future__ import annotations

import compileall
import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from benchmarks.compiled.models import HEADS, LENGTH, VOCABULARY, WIDTH
from benchmarks.compiled.rows import OURS
from benchmarks.compiled.threads import environment

PEERS = {OURS: ("ours", "cpu"), "torch.compile": ("pytorch", "compiled"), "JAX": ("jax_jit", "-")}
WHOLE = {"layers": 12, "width": WIDTH, "heads": HEADS, "length": LENGTH, "vocabulary": VOCABULARY}
SLIM = {"width": 64, "heads": 4, "length": 32, "vocabulary": 256}
"""A model whose steps take no time beside compiling it."""
Found = dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """``measure`` gives a row; ``most`` is the limit."""

    name: str
    unit: str
    asked: str
    values: Callable[[], dict[str, float | None]]
    met: Callable[[dict[str, float | None]], bool]

    def measure(self) -> dict[str, Any]:
        """Return the figures."""
        values = self.values()
        results = {name: "-" if v is None else float(f"{v:.3g}") for name, v in values.items()}
        row = {"row": self.name, "unit": self.unit, **results, "asked": self.asked}
        return row if values.get(OURS) is None else {**row, "met": self.met(values)}


def asked(name: str, row: str, options: dict[str, Any], folder: str) -> dict[str, float] | None:
    """Return what one process finds; None where the peer is not there."""
    module, variant = PEERS[name]
    command = [sys.executable, "-m", "benchmarks.compiled.costs", module, variant, row, json.dumps(options)]
    env = environment(False) | {"TENSORBUS_CACHE_DIR": folder, "TORCHINDUCTOR_CACHE_DIR": folder}
    _as_installed()
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=1200)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode:
        return None
    results: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return results


@cache
def _as_installed() -> None:
    """Compile the Python sources of what is measured, as installing packages does."""
    for name in ("tensorbus", "tensorbus_cpu", "benchmarks"):
        module_spec = importlib.util.find_spec(name)
        for folder in (module_spec.submodule_search_locations or ()) if module_spec is not None else ():
            compileall.compile_dir(folder, quiet=2)


def _cold(row: str, options: dict[str, Any], what: str) -> dict[str, float | None]:
    results: dict[str, float | None] = {}
    for name in PEERS:
        with tempfile.TemporaryDirectory() as folder:
            message = asked(name, row, options, folder)
        results[name] = None if message is None else message[what]
    return results


def _warm(row: str, options: dict[str, Any]) -> dict[str, float | None]:
    """Return milliseconds of the first call in a second process."""
    results: dict[str, float | None] = {}
    for name in PEERS:
        with tempfile.TemporaryDirectory() as folder:
            asked(name, row, options, folder)
            messages = [asked(name, row, options, folder) for _ in range(3)]
        times = [1e3 * s["compile"] for s in messages if s is not None]
        results[name] = statistics.median(times) if times else None
    return results


def _deep() -> dict[str, float | None]:
    """Return the compile time of 24 layers, as a multiple of that of one."""
    one, many = (_cold("gpt", {**SLIM, "layers": n}, "compile") for n in (1, 24))
    results: dict[str, float | None] = {}
    for name in PEERS:
        a, b = one[name], many[name]
        results[name] = None if a is None or b is None else b / a
    return results


def _under(limit: float) -> Callable[[dict[str, float | None]], bool]:
    return lambda values: (values[OURS] or 0.0) <= limit


def _no_more_than_torch(values: dict[str, float | None]) -> bool:
    peer = values["torch.compile"]
    return peer is None or (values[OURS] or 0.0) <= peer


COSTS = (
    Cost(
        name="compiling ten ops, cold", unit="s", asked="0.3 s", met=_under(0.3),
        values=lambda: _cold("ten", {}, "compile"),
    ),
    Cost(
        name="compiling ten ops, second process", unit="ms", asked="10 ms", met=_under(10.0),
        values=lambda: _warm("ten", {}),
    ),
    Cost(
        name="compiling 24 layers / one layer, train step", unit="x", asked="2 x", met=_under(2.0),
        values=_deep,
    ),
    Cost(
        name="compiling a GPT-2-small train step, cold", unit="s", asked="15 s", met=_under(15.0),
        values=lambda: _cold("gpt", WHOLE, "compile"),
    ),
    Cost(
        name="peak memory of a GPT-2-small train step", unit="MB", asked="torch.compile",
        met=_no_more_than_torch, values=lambda: _cold("gpt", WHOLE, "peak"),
    ),
)  # fmt: skip


def main() -> None:
    """Measure the first call and later ones, and the peak of the process."""
    module, variant, row, options = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    peer = importlib.import_module(f"benchmarks.compiled.peers.{module}").Peer(variant)
    call = getattr(peer, row)(**json.loads(options))
    times = []
    context = getattr(peer, "context", None)
    for _ in range(5):
        start = time.perf_counter()
        if context is None:
            call()
        else:
            with context():
                call()
        times.append(time.perf_counter() - start)
    once = statistics.median(times[2:])
    second = max(times[1] - once, 0.0)  # optimizers set up their state in the first step
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"compile": times[0] - once + second, "once": once, "peak": peak}), file=answers)


if __name__ == "__main__":
    main()
