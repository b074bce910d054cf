"""Trials of every fault with random seeds for a time: ``make soak MINUTES=10 SEED=...``.

They run one after another in a process of their own, so that one that ends or hangs it is a finding too. What
fails is printed with the command that does it again; the exit code is 1 where anything was.
"""

from __future__ import annotations

import argparse
import faulthandler
import itertools
import multiprocessing
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import tensorbus as tb
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

sys.path.insert(0, str(Path(__file__).parent))

from registry import Fault, faults

_LIMIT: Final = 300.0
"""Seconds after which a trial hangs."""
_MOST_FAILURES: Final = 3
"""After how many failures a fault is left out: the others are worth the time more."""


class Runner:
    """A process that does trials, one after another, until it is gone."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, inner = context.Pipe()
        self._process = context.Process(target=_work, args=(inner,))
        self._process.start()
        inner.close()

    def run(self, name: str, seed: int) -> str | None:
        """Do a trial; return what is wrong, or None. One that ended or hung the process leaves it dead."""
        try:
            self._connection.send((name, seed))
            if not self._connection.poll(_LIMIT):
                if hasattr(signal, "SIGUSR1"):  # it prints where its threads are
                    os.kill(self._process.pid or 0, signal.SIGUSR1)
                    time.sleep(1)
                self.stop()
                return f"hangs: nothing after {_LIMIT:.0f} seconds"
            problem: str | None = self._connection.recv()
        except (EOFError, OSError):
            self._process.join()
            return f"ended its process with exit code {self._process.exitcode}"
        return problem

    @property
    def is_alive(self) -> bool:
        """Whether it can do another trial."""
        return self._process.is_alive()

    def stop(self) -> None:
        """End the process, whatever it is at."""
        self._connection.close()
        self._process.terminate()
        self._process.join()


def _work(connection: Connection) -> None:
    # Ctrl-C is for the process that counts. A handler: what is ignored stays so in the children of trials.
    signal.signal(signal.SIGINT, lambda *_: None)
    if hasattr(signal, "SIGUSR1"):
        faulthandler.register(signal.SIGUSR1, all_threads=True)
    known = faults()
    with suppress(EOFError):
        while True:
            name, seed = connection.recv()
            try:
                known[name].run(seed)
            except BaseException as error:
                connection.send("".join(traceback.format_exception(error)))
            else:
                connection.send(None)


@dataclass
class Soak:
    """A run: how many trials of each fault were done, and what was wrong."""

    chosen: list[Fault]
    draw: random.Random
    trials: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[str, int, str]] = field(default_factory=list)
    spent: Counter[str] = field(default_factory=Counter)

    def turns(self) -> Iterator[tuple[str, int]]:
        """Yield faults and seeds without an end: each once, then the one that has had the least time."""
        order = self.draw.sample(self.chosen, len(self.chosen))
        for count in itertools.count():
            failed = Counter(name for name, _, _ in self.failures)
            names = [f.name for f in self.chosen if failed[f.name] < _MOST_FAILURES]
            if not names:
                return
            if count < len(order) and order[count].name in names:
                name = order[count].name
            else:
                name = min(self.draw.sample(names, len(names)), key=self.spent.__getitem__)
            yield name, self.draw.getrandbits(32)

    def run(self, seconds: float, progress: Progress) -> None:
        """Do trials for a time."""
        console, started = progress.console, time.monotonic()
        task = progress.add_task("soak", total=seconds)
        runner = Runner()
        try:
            for name, seed in self.turns():
                begun = time.monotonic()
                if begun - started > seconds:
                    break
                progress.update(
                    task, completed=begun - started,
                    description=f"{self.trials.total()} trials, {len(self.failures)} failed: {name} {seed}",
                )  # fmt: skip
                problem = runner.run(name, seed)
                self.trials[name] += 1
                self.spent[name] += round(1000 * (time.monotonic() - begun))
                if problem is not None:
                    self.failures.append((name, seed, problem))
                    console.print(problem, markup=False, highlight=False)
                    console.print(_again(name, seed), markup=False, highlight=False, style="bold red")
                if not runner.is_alive:
                    runner = Runner()
        finally:
            runner.stop()


def _again(name: str, seed: int) -> str:
    return f"{name} failed with seed {seed}; again: python tests/faults/registry.py {name} {seed}"


def main() -> int:
    """Run for the time that was asked for; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None, help="draws the same faults and seeds again")
    parser.add_argument("--only", default="", help="only faults whose names begin so, by commas")
    asked = parser.parse_args()
    seed = int.from_bytes(os.urandom(4), "little") if asked.seed is None else asked.seed
    usable = [f for f in faults().values() if f.device is None or tb.Device(f.device, 0).is_available()]
    soak = Soak([f for f in usable if f.name.startswith(tuple(asked.only.split(",")))], random.Random(seed))
    console = Console(stderr=True)
    types = ", ".join(dict.fromkeys(unit.type for unit in tb.devices()))
    console.print(f"soak: seed {seed}, {asked.minutes:g} minutes, {len(soak.chosen)} faults, on {types}")
    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with suppress(KeyboardInterrupt), Progress(*columns, console=console) as progress:
        soak.run(60 * asked.minutes, progress)
    for name, count in sorted(soak.trials.items()):
        console.print(f"{count:6} {name}, {soak.spent[name] / 1000:.0f} s", highlight=False)
    for name, failed, problem in soak.failures:
        last = problem.strip().rpartition("\n")[2]
        console.print(f"{_again(name, failed)}\n    {last}", markup=False, highlight=False)
    verdict = f"{len(soak.failures)} failed" if soak.failures else "nothing is wrong"
    console.print(f"soak: {soak.trials.total()} trials with seed {seed}: {verdict}", highlight=False)
    return 1 if soak.failures else 0


if __name__ == "__main__":
    sys.exit(main())
