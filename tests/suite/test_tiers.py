"""The fast tier tries every value of every parameter, on devices in turn."""

from __future__ import annotations

import os
import runpy
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tiers import fast_cases


def grid(**values: Any) -> list[dict[str, Any]]:
    return [dict(zip(values, case, strict=True)) for case in product(*values.values())]


GRIDS = {
    "one parameter": grid(op=range(7)),
    "two parameters": grid(op=range(20), dtype=range(4)),
    "three parameters": grid(shape=range(3), op=range(20), dtype=range(4)),
    "with devices": grid(device=["cpu", "opencl", "refdev"], op=range(20), dtype=range(4)),
    "with gaps": [case for case in grid(op=range(20), dtype=range(4)) if (case["op"] + case["dtype"]) % 3],
}


@pytest.mark.parametrize("cases", GRIDS.values(), ids=GRIDS)
def test_every_value_occurs(cases: list[dict[str, Any]]) -> None:
    chosen = [cases[place] for place in fast_cases("test", cases)]
    for name in cases[0]:
        assert {case[name] for case in chosen} == {case[name] for case in cases}


def test_few_cases_are_enough() -> None:
    assert len(fast_cases("test", GRIDS["three parameters"])) == 20
    assert len(fast_cases("test", GRIDS["with devices"])) == 20


def test_where_compilers_work_few_of_them_run_evenly_spread() -> None:
    cases = GRIDS["three parameters"]
    every, some = fast_cases("test", cases), fast_cases("test", cases, 8)
    assert len(some) == 8
    assert set(some) < set(every)
    assert every.index(some[-1]) >= len(every) - 3


def test_devices_take_turns() -> None:
    cases = GRIDS["with devices"]
    devices = [cases[place]["device"] for place in fast_cases("test", cases)]
    assert min(devices.count("cpu"), devices.count("refdev")) >= 8
    assert devices.count("opencl") in (1, 2, 3)


def test_a_test_of_every_device_runs_on_one_which_its_name_decides() -> None:
    cases = grid(device=["cpu", "opencl", "refdev"])
    chosen = [fast_cases(f"test_{k}", cases) for k in range(300)]
    assert all(len(places) == 1 for places in chosen)
    assert min(chosen.count([0]), chosen.count([2])) > 100
    assert 20 < chosen.count([1]) < 60


def test_the_choice_depends_on_nothing_else() -> None:
    cases = GRIDS["with devices"]
    assert fast_cases("test", cases) == fast_cases("test", [dict(case) for case in cases])
    assert fast_cases("test", []) == []
    assert fast_cases("test", [{}]) == [0]


def test_runs_of_pytest_within_tests_take_no_options_of_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no_such_plugin")
    runpy.run_path(str(Path(__file__).parents[1] / "conftest.py"))
    assert "PYTEST_ADDOPTS" not in os.environ
