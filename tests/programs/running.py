"""Running a program: all its calls, with everything that can be seen from outside."""

from __future__ import annotations

import contextlib
import io
import itertools
import logging
import random
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import tensorbus as tb

from frozen import Freezer, differences
from program import CallArguments, Program

Wrap = Callable[[Any], Callable[..., Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What was seen: a frozen outcome for each call, and what the program wrote and used up meanwhile."""

    outcomes: tuple[Any, ...]
    printed: str
    logged: tuple[Any, ...]
    warned: tuple[Any, ...]
    settings: tuple[Any, ...]
    drawn: Any


class _Log(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.seen: list[tuple[str, str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append((record.name, record.levelname, record.getMessage()))


def drive(calls: Iterable[Any], act: Callable[[CallArguments], Any]) -> None:
    """Hand the arguments of each call to ``act``; a generator is told what that returned."""
    steps = iter(calls)
    result: Any = None
    first = True
    while True:
        try:
            step = steps.send(result) if hasattr(steps, "send") and not first else next(steps)
        except StopIteration:
            return
        first = False
        result = act(step if isinstance(step, CallArguments) else CallArguments(tuple(step), {}))


def both_rounds(calls: Iterable[Any]) -> Iterable[Any]:
    """Make a list of calls a second time with other values: whoever kept the first results is found out."""
    if isinstance(calls, Generator):
        return calls
    return itertools.chain(calls, (changed(step) for step in calls))


def changed(x: Any) -> Any:
    """Return arguments with other values in their tensors, of which functions make as much sense.

    What has an order or range keeps it, a positive number stays positive, a definite matrix definite.
    """
    if isinstance(x, tb.Tensor):
        old = x.detach()
        new = old * 0.5 + 0.25 if x.dtype.is_inexact else tb.flip(old) if x.ndim else old
        return new.requires_grad_() if x.requires_grad else new
    if isinstance(x, (tuple, list)):
        return type(x)(*map(changed, x)) if hasattr(x, "_fields") else type(x)(map(changed, x))
    if is_dataclass(x) and not isinstance(x, type):
        return replace(x, **{f.name: changed(getattr(x, f.name)) for f in fields(x)})
    return {k: changed(v) for k, v in x.items()} if type(x) is dict else x


@contextlib.contextmanager
def surroundings(device: str) -> Iterator[None]:
    """Make ``device`` the default, start all streams of random numbers, and put settings back afterwards."""
    dtype, generator = tb.get_default_dtype(), random.getstate()
    tb.manual_seed(20)
    random.seed(20)
    try:
        with tb.device(device):
            yield
    finally:
        random.setstate(generator)
        tb.set_default_dtype(dtype)


def run(program: Program, device: str, wrap: Wrap) -> Run:
    """Build the program and make its calls through what ``wrap`` makes of its function."""
    out, log = io.StringIO(), _Log()
    outcomes: list[Any] = []
    root = logging.getLogger()
    with (
        surroundings(device),
        contextlib.redirect_stdout(out),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        root.addHandler(log)
        try:
            fn, calls, state = program.instance()
            wrapped = wrap(fn)

            def act(step: CallArguments) -> Any:
                result, error = None, None
                try:
                    result = wrapped(*step.args, **step.kwargs)
                except Exception as raised:
                    error = raised
                freeze = Freezer(device)
                parts = {"error": error, "result": result, "arguments": [step.args, step.kwargs]}
                outcomes.append(tuple((k, freeze(v)) for k, v in (parts | {"state": state}).items()))
                return result

            drive(both_rounds(calls), act)
            settings = (tb.is_grad_enabled(), tb.get_default_dtype(), str(tb.get_default_device()))
        finally:
            root.removeHandler(log)
        drawn = (tb.random.default_generator.get_state(), random.random())
    # The compiler may warn of its own troubles: they are no part of what the program does.
    theirs = [w for w in caught if not w.category.__module__.startswith("tensorbus")]
    warned = tuple((w.category.__name__, str(w.message)) for w in theirs)
    freeze = Freezer(device)
    return Run(
        outcomes=tuple(outcomes), printed=freeze(out.getvalue()), logged=freeze(tuple(log.seen)),
        warned=freeze(warned), settings=freeze(settings), drawn=freeze(drawn),
    )  # fmt: skip


def compare(want: Run, got: Run, ulps: int) -> list[str]:
    """Return what differs between two runs, a line each."""
    return [
        line
        for f in fields(Run)
        for line in differences(getattr(want, f.name), getattr(got, f.name), ulps, f.name)
    ]
