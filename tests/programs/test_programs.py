"""Whole programs do the same on every device, eager and compiled; and most are captured whole."""

from __future__ import annotations

import io
import warnings
from contextlib import redirect_stdout, suppress
from typing import Any

import pytest
import tensorbus as tb

from collection import PROGRAMS
from program import Given, Program
from running import Run, compare, drive, run, surroundings

WHOLE = 0.93
"""The share of programs without a data-dependent branch that must be captured without a break."""


def missing(program: Program, device: str) -> list[str]:
    """Return the dtypes that the program needs and the device lacks."""
    names = {dtype.name for dtype in tb.device(device).properties.dtypes}
    return sorted(set(program.dtypes) - names)


def skip_unless_fit(program: Program, device: str) -> None:
    lacking = missing(program, device)
    if lacking:
        pytest.skip(f"{device} has no {', '.join(lacking)}")


def eager(program: Program, device: str) -> Run:
    return run(program, device, lambda fn: fn)


def assert_same(want: Run, got: Run, program: Program) -> None:
    lines = compare(want, got, program.ulps)
    if lines:
        pytest.fail("\n".join([f"{len(lines)} differences:", *lines[:10]]), pytrace=False)


def explained(program: Program, device: str) -> list[Any]:
    """Return what ``explain`` says of each call that does not raise."""
    reports: list[Any] = []
    with surroundings(device), redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fn, calls, _ = program.made()
        explain = tb.compile.explain(fn)

        def act(step: Given) -> Any:
            with suppress(Exception):
                reports.append(explain(*step.args, **step.kwargs))
                return reports[-1].result
            return None

        drive(calls, act)
    return reports


def test_there_are_enough_programs_and_each_is_called_again() -> None:
    assert len(PROGRAMS) >= 550
    assert len({str(p) for p in PROGRAMS}) == len(PROGRAMS)


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_eager_is_the_same_on_every_device(program: Program, device: str) -> None:
    skip_unless_fit(program, device)
    found = eager(program, device)
    assert len(found.outcomes) >= 2, "one call alone tests no replay"
    errors = [dict(outcome)["error"] for outcome in found.outcomes]
    assert None in errors
    assert sorted({e[0] for e in errors if e is not None}) == sorted(program.raises), errors
    reference = tb.get_default_device().type
    assert_same(eager(program, reference), found, program)


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_reading_values_is_declared(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that nobody reaches the share below by calling a program data-dependent."""
    device = tb.get_default_device().type
    skip_unless_fit(program, device)
    inside, reads = False, []

    def watch(name: str) -> None:
        read = getattr(tb.Tensor, name)

        def watched(*args: Any) -> Any:
            if inside:
                reads.append(name)
            return read(*args)

        monkeypatch.setattr(tb.Tensor, name, watched)

    def wrap(fn: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal inside
            inside = True
            try:
                return fn(*args, **kwargs)
            finally:
                inside = False

        return call

    for name in ("tolist", "numpy", "__array__", "__repr__"):
        watch(name)
    run(program, device, wrap)
    assert bool(reads) == program.data_dependent, reads


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_compiled_equals_eager(program: Program, device: str) -> None:
    skip_unless_fit(program, device)
    assert_same(eager(program, device), run(program, device, tb.compile), program)


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_open_lengths_change_nothing(program: Program) -> None:
    """Where every length is left open there is a second run, whose effects must not be seen."""
    device = tb.get_default_device().type
    skip_unless_fit(program, device)
    found = run(program, device, lambda fn: tb.compile(fn, dynamic=True))
    assert_same(eager(program, device), found, program)


def test_captured_whole(device: str) -> None:
    whole, broken = [], []
    for program in PROGRAMS:
        if program.data_dependent or missing(program, device):
            continue
        reports = explained(program, device)
        reasons = [str(b) for report in reports for b in report.breaks]
        if reports and not reasons:
            whole.append(program)
        else:
            broken.append(f"{program}: {'; '.join(reasons) or 'no call could be explained'}")
    share = len(whole) / (len(whole) + len(broken))
    lines = "\n".join(broken)
    assert share >= WHOLE, f"{share:.1%} are captured whole; these are not:\n{lines}"
