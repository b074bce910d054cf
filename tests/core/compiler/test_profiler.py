"""Capture beside a profiler: Python has one hook for both."""

from __future__ import annotations

import cProfile

import tensorbus as tb


def test_a_profiled_program_compiles_and_goes_on_being_profiled() -> None:
    def late(x: tb.Tensor) -> tb.Tensor:
        return x + 1

    @tb.compile
    def run(x: tb.Tensor) -> tb.Tensor:
        return tb.exp(x) * 2 if float(x.sum()) > 0 else x

    profile = cProfile.Profile()
    profile.enable()
    try:
        results = [tb.compile(late)(tb.ones(3)).tolist(), run(tb.zeros(3)).tolist()]
        late(tb.ones(3))
    finally:
        profile.disable()
    assert results == [[2.0] * 3, [0.0] * 3]
    assert any(entry.code is late.__code__ for entry in profile.getstats())
