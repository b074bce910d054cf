"""Compiled calls beside Python's over the whole corpus of programs, and the models of the tables.

Each program of ``tests/programs`` is built twice; its calls are made over and over, in turns of Python and of
``tb.compile``, once the compiled one is steady: what is captured is captured, and compared with Python
where ``tb.compile`` does that. A round is all calls of a program, with the arguments of the first time,
whether they raise or not; figures are microseconds of a call, of the processor, on one thread, and the median
of the ratios of turns. ``python -m benchmarks.corpus NAME ...`` measures the programs whose names contain one
of these.

A process measures some of the programs, and one that hangs ends it: it is left out, and the next one goes on.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median, quantiles
from time import process_time
from typing import Any

import tensorbus as tb
from tensorbus.compiler.programs import one_time_work
from tensorbus.compiler.replay import eager_comparison

from benchmarks import eager_steps, isolated, reading

TARGET = 1.05
"""How many times as long as Python's a compiled call may take."""
LONG_CALL_US = 200.0
"""Microseconds of a call, either way, from which on the target holds."""
SETTLED_ROUNDS = 4
"""Rounds in a row in which nothing is captured, compiled or compared any more: then a way is steady."""
MAX_ROUNDS, MAX_SECONDS = 192, 20.0
"""Rounds, and seconds, after which a way counts as steady that is not."""
ROUNDS, SECONDS = 11, 0.6
"""At most so many rounds of each way, and seconds of both."""
AGAIN = 3
"""How many times long calls that lose are measured again."""
CLEAR, CLEAR_TURNS = 0.7, 3
"""Where the ratios of so many turns are all below this, they are enough."""
WORST = 10
TOGETHER, LIMIT, WALL = 40, 60.0, 1800.0
"""Programs of one process; seconds of the processor that each may take, and of the wall that all may."""
PROGRAMS = Path(__file__).parents[1] / "tests" / "programs"

Round = Callable[[], object]
Step = tuple[tuple[Any, ...], dict[str, Any]]


def run(progress: Any) -> dict[str, list[dict[str, Any]]]:
    """Return the distribution, and the programs that lose most."""
    names = [*_programs(), *_models()]
    task = progress.add_task("corpus", total=len(names))
    rows: list[dict[str, Any]] = []
    stopped: list[dict[str, Any]] = []
    left = names
    while left:
        figures = isolated.measured(
            "benchmarks.corpus", "--exactly", *left[:TOGETHER], limit=LIMIT, wall=WALL,
            show=lambda line: progress.update(task, description=line),
        )  # fmt: skip
        why = figures.pop("stopped", None)
        measured = [{"program": name, **row} for name, row in figures.items() if row is not None]
        for row in _long(measured):
            if row["ratio"] > TARGET:
                progress.console.print(str(row), markup=False, highlight=False)
        rows += measured
        count = len(figures)
        if why is not None and count < len(left[:TOGETHER]):
            stopped.append({"program": left[count], "why": why})
            count += 1
        left = left[count:]
        progress.advance(task, count)
    progress.remove_task(task)
    without = len(names) - len(rows) - len(stopped)
    long = _long(rows)
    return {
        f"compiled over eager ({without} programs of {len(names)} are left out)": [
            _distribution("all", rows),
            _distribution(f"over {LONG_CALL_US:g} us", long),
        ],
        f"the worst {WORST} over {LONG_CALL_US:g} us": sorted(long, key=lambda row: -row["ratio"])[:WORST],
        f"the worst {WORST} of all": sorted(rows, key=lambda row: -row["ratio"])[:WORST],
        "stopped": stopped,
    }


def _long(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if max(row["eager us"], row["compiled us"]) > LONG_CALL_US]


def _distribution(what: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    ratios = sorted(row["ratio"] for row in rows)
    if len(ratios) < 2:
        return {"calls": what, "programs": len(ratios)}
    cuts = quantiles(ratios, n=100, method="inclusive")
    met = sum(ratio <= TARGET for ratio in ratios)
    return {
        "calls": what, "programs": len(ratios), "least": ratios[0],
        **{f"{k} %": round(cuts[k - 1], 3) for k in (5, 25, 50, 75, 95, 99)}, "most": ratios[-1],
        f"at most {TARGET}": f"{met} of {len(ratios)}",
    }  # fmt: skip


def measure(make: Callable[[bool], Round | None]) -> dict[str, Any] | None:
    """Return the microseconds of a call both ways; None where there are none to be measured."""
    with _quietly():
        try:
            eager, compiled = make(False), make(True)
        except Exception:
            return None
        if eager is None or compiled is None:
            return None
        if not _settled(eager, compiled):
            return None
        gc.collect()
        gc.freeze()  # what is there is looked at in no turn
        try:
            turns: list[tuple[float, float]] = []
            row = _row(turns, eager, compiled)
            for _ in range(AGAIN):
                if row["ratio"] <= TARGET or not _long([row]):
                    break
                row = _row(turns, eager, compiled)
        finally:
            gc.unfreeze()
    return row


def _row(turns: list[tuple[float, float]], eager: Round, compiled: Round) -> dict[str, Any]:
    """Return the figures of these turns, to which more are added: the seconds of a round, both ways."""
    each = max(int(2e-3 / max(min(_seconds(eager), _seconds(compiled)), 1e-6)), 1)
    before, end = len(turns), process_time() + SECONDS
    while len(turns) - before < ROUNDS and (process_time() < end or len(turns) - before < 3):
        ways = (eager, compiled) if len(turns) % 2 else (compiled, eager)
        gc.collect()
        seconds = {way: _seconds(way, each) for way in ways}
        turns.append((seconds[eager], seconds[compiled]))
        if len(turns) == CLEAR_TURNS and max(c / e for e, c in turns) < CLEAR:
            break
    calls = getattr(eager, "calls", 1)
    us = [median(column) / calls * 1e6 for column in zip(*turns, strict=True)]
    return {
        "eager us": round(us[0], 1), "compiled us": round(us[1], 1),
        "ratio": round(median(c / e for e, c in turns), 3),
    }  # fmt: skip


def _settled(eager: Round, compiled: Round) -> bool:
    """Run rounds of both until nothing more is captured or compared; return whether they raise nothing.

    Both run as often: an optimizer that is further on has other work to do.
    """
    end, calm = process_time() + MAX_SECONDS, 0
    try:
        for _ in range(MAX_ROUNDS):
            eager()
            before = one_time_work.count()
            compiled()
            calm = calm + 1 if one_time_work.count() == before else 0
            if calm == SETTLED_ROUNDS or process_time() > end:
                break
    except Exception:
        return False
    return True


def _seconds(way: Round, rounds: int = 1) -> float:
    """Return the seconds of a round, without collections of cycles, which may fall to one way only."""
    gc.disable()
    try:
        start = process_time()
        for _ in range(rounds):
            way()
        return (process_time() - start) / rounds
    finally:
        gc.enable()


class _Calls:
    """A round of a program: all of its calls."""

    def __init__(self, function: Callable[..., Any], steps: list[Step]) -> None:
        self._function, self._steps, self.calls = function, steps, max(len(steps), 1)

    def __call__(self) -> None:
        """Make all calls."""
        for args, kwargs in self._steps:
            with contextlib.suppress(Exception):
                self._function(*args, **kwargs)


def _programs() -> dict[str, Callable[[bool], Round | None]]:
    for folder in (PROGRAMS, PROGRAMS.parent / "suite"):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    collection: Any = importlib.import_module("collection")
    running: Any = importlib.import_module("running")
    return {str(program): _maker(program, running) for program in collection.PROGRAMS}


def _maker(program: Any, running: Any) -> Callable[[bool], Round | None]:
    def make(is_compiled: bool) -> Round | None:
        tb.manual_seed(20)
        function, calls, _ = program.instance()
        way = tb.compile(function) if is_compiled else function
        steps: list[Step] = []

        def act(step: Any) -> Any:
            steps.append((step.args, step.kwargs))
            with contextlib.suppress(Exception):
                return way(*step.args, **step.kwargs)

        running.drive(calls, act)
        return _Calls(way, steps) if steps else None

    return make


def _models() -> dict[str, Callable[[bool], Round | None]]:
    """Return the steps of the tables: loops that read numbers, and the models of the eager steps."""

    def read(group: Callable[[Any], reading.Calls], step: str) -> Callable[[bool], Round | None]:
        return _step_of(lambda: group(tb)[step])

    def trained(case: eager_steps.Case) -> Callable[[bool], Round | None]:
        return _step_of(lambda: eager_steps.step_of(tb, case, tb.asarray))

    steps = {f"step: {step}": read(group, step) for group in reading.ROWS for step in group(tb)}
    return steps | {f"model: {name}": trained(case) for name, case in eager_steps.CASES.items()}


def _step_of(build: Callable[[], Callable[[], Any]]) -> Callable[[bool], Round | None]:
    def make(is_compiled: bool) -> Round | None:
        tb.manual_seed(0)
        step = build()
        return tb.compile(step) if is_compiled else step

    return make


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Keep what programs print, log and warn of from the terminal, on the cpu."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            tb.device("cpu"),
            contextlib.redirect_stdout(io.StringIO()),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def main() -> None:
    """Report the figures of programs by their names, each as soon as it is measured."""
    tb.set_num_threads(1)
    eager_comparison.clock = process_time  # as here: on a busy machine the wall would decide at random
    exactly, names = sys.argv[1:2] == ["--exactly"], sys.argv[1:]
    for name, make in {**_programs(), **_models()}.items():
        if name in names if exactly else any(part in name for part in names):
            print(name, flush=True)
            isolated.report({name: measure(make)})


if __name__ == "__main__":
    main()
