"""Whole programs do the same on every device, eager and compiled, and are captured whole."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import tensorbus as tb
from tensorbus.compiler import divided_comparison
from tensorbus.compiler.replay import eager_comparison
from tensorbus_conformance.plugin import chosen

from collection import PROGRAMS
from program import Program
from running import Run, compare, run

QUICK = "refdev"
"""The device of the fast tier: it runs programs kernel by kernel, and nothing waits for a C compiler."""
QUICK_EVERY = 3
"""Of how many programs the fast tier runs one on it."""
FAST_EVERY = 90
"""Of how many programs the fast tier runs one on the other devices too."""
READS = ("tolist", "numpy", "__array__", "__repr__")
"""The methods by which Python reads values of tensors."""


def skip_unless_fit(program: Program, device: str) -> None:
    """Skip where the program needs a dtype that the device lacks."""
    names = {dtype.name for dtype in tb.device(device).properties.dtypes}
    lacking = sorted(set(program.dtypes) - names)
    if lacking:
        pytest.skip(f"{device} has no {', '.join(lacking)}")


def eager(program: Program, device: str, reads: list[str] | None = None) -> Run:
    """Run the program as it is; put the methods into ``reads`` by which it reads values."""
    if reads is None:
        return run(program, device, lambda fn: fn)
    inside = False

    def watched(name: str) -> Any:
        read = getattr(tb.Tensor, name)

        def call(*args: Any) -> Any:
            if inside:
                reads.append(name)
            return read(*args)

        return call

    def wrap(fn: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal inside
            inside = True
            try:
                return fn(*args, **kwargs)
            finally:
                inside = False

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in READS:
            patch.setattr(tb.Tensor, name, watched(name))
        return run(program, device, wrap)


def compiled(program: Program, device: str, breaks: list[str]) -> Run:
    """Run the program compiled; put the places into ``breaks`` where its graph breaks."""

    def wrap(fn: Any) -> Any:
        compiled = tb.compile(fn)

        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return compiled(*args, **kwargs)
            finally:
                breaks.extend(str(b) for b in compiled.breaks)

        return call

    return run(program, device, wrap)


def assert_same(want: Run, got: Run, program: Program, what: str) -> None:
    """Fail with the first differences."""
    lines = compare(want, got, program.ulps)
    if lines:
        pytest.fail("\n".join([f"{what}: {len(lines)} differences:", *lines[:10]]), pytrace=False)


def test_there_are_enough_programs_and_each_is_called_again() -> None:
    assert len(PROGRAMS) >= 550
    assert len({str(p) for p in PROGRAMS}) == len(PROGRAMS)


def _fast_every(device: str) -> int:
    return QUICK_EVERY if device == QUICK else FAST_EVERY


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Hand out programs and devices, most of those that compile kernels to the full tier."""
    if "program" in metafunc.fixturenames:
        cases = [
            pytest.param(
                program, device, id=f"{program}-{device}",
                marks=pytest.mark.full if place % _fast_every(device) else pytest.mark.fast,
            )
            for device in chosen(metafunc.config)
            for place, program in enumerate(PROGRAMS)
        ]  # fmt: skip
        metafunc.parametrize(("program", "device"), cases)


def test_program(program: Program, device: str) -> None:
    """Eager once, with what reads values watched; the reference device, compiled, open lengths beside it."""
    skip_unless_fit(program, device)
    reads: list[str] = []
    want = eager(program, device, reads)
    assert len(want.outcomes) >= 2, "one call alone tests no replay"
    errors = [dict(outcome)["error"] for outcome in want.outcomes]
    assert None in errors
    assert sorted({e[0] for e in errors if e is not None}) == sorted(program.raises), errors
    assert bool(reads) == program.data_dependent, f"reads values by {reads}"
    reference = tb.get_default_device().type
    if device != reference:
        assert_same(eager(program, reference), want, program, f"{device}, beside {reference}")
    breaks: list[str] = []
    assert_same(want, compiled(program, device, breaks), program, "compiled")
    assert program.divided == any("what repeats here" in line for line in breaks), breaks
    assert program.data_dependent or program.divided or not breaks, breaks
    # Where every length is left open there is a second run, whose effects must not be seen.
    leave_open = run(program, device, lambda fn: tb.compile(fn, dynamic=True))
    assert_same(want, leave_open, program, "compiled with open lengths")


@pytest.mark.full
@pytest.mark.parametrize("part", range(8))
def test_calls_that_python_takes_in_turns_do_the_same(monkeypatch: pytest.MonkeyPatch, part: int) -> None:
    """Every second call of a guard set goes Python's way, for ever: results, effects and gradients agree.

    So does every second call of a divided function, beginning with the third in all.
    """
    for name in ("CLEAR", "FEW_PAIRS", "PAIRS", "PAIRS_OF_SHORT_CALLS"):
        monkeypatch.setattr(eager_comparison, name, sys.maxsize)
    monkeypatch.setattr(eager_comparison, "WARM_UP", ())
    monkeypatch.setattr(divided_comparison, "PATIENCE", 0)
    comparison = eager_comparison.EagerComparison
    monkeypatch.setattr(comparison, "_is_eager_turn", lambda c: (c._turn + c._arguments_vary) % 2 == 1)
    monkeypatch.setattr(eager_comparison, "MAX_CALLS", 1)
    known = {dtype.name for dtype in tb.device(QUICK).properties.dtypes}
    for program in PROGRAMS[part::8]:
        if set(program.dtypes) <= known:
            turns = run(program, QUICK, lambda fn: tb.compile(fn, compare_eager=True))
            assert_same(eager(program, QUICK), turns, program, "compiled and in Python, in turns")
