"""Tiers, shards and hypothesis profiles of all tests: see docs/testing.md. The kit hands out devices."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Generator, Hashable, Mapping
from pathlib import Path
from typing import Any

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import HealthCheck, settings

# pytest may read this file without the settings of pyproject.toml, as where --report names a file elsewhere.
sys.path.insert(0, str(Path(__file__).parent / "suite"))

from cpu_seconds import CpuSecondsPlugin
from shards import Shard
from tiers import fast_cases, kit_is_fast, most_cases

os.environ.setdefault("TENSORBUS_COMPARE_EAGER", "0")  # which way a call goes must not depend on the time
# It was read. What tests run pytest on is no part of this run: a plugin would count its failures too.
os.environ.pop("PYTEST_ADDOPTS", None)

_QUIET = (
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
    HealthCheck.filter_too_much,
    HealthCheck.differing_executors,
)
_COMMON = {"deadline": None, "suppress_health_check": _QUIET, "print_blob": True}
settings.register_profile("fast", max_examples=5, derandomize=True, database=None, **_COMMON)
settings.register_profile("full", max_examples=15, database=None, **_COMMON)
settings.register_profile("thorough", max_examples=300, **_COMMON)
settings.load_profile(os.environ.get("TENSORBUS_TEST_PROFILE", "fast"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the suite."""
    group = parser.getgroup("tensorbus suite")
    group.addoption("--suite-shard", metavar="I/N", default="", help="only the I-th of N parts of the tests")
    group.addoption("--cpu-seconds", metavar="FILE", help="write the processor seconds of each test as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Start to measure, where that was asked for."""
    if path := config.getoption("--cpu-seconds"):
        config.pluginmanager.register(CpuSecondsPlugin(Path(path)), "cpu_seconds")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Let each test draw the same random numbers, whichever tests its process has run before."""
    if (tensorbus := sys.modules.get("tensorbus")) is not None:
        tensorbus.manual_seed(0)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[Any], list[Any]]:
    """Look for examples in docstrings of the packages only: in those of the tests that takes seconds."""
    result = yield
    return [one for one in result if not isinstance(one, DoctestModule)]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what only the full tier runs, and drop what is in another shard."""
    tests: dict[str, list[pytest.Item]] = defaultdict(list)
    firsts: dict[tuple[str, str], str] = {}
    places: dict[str, int] = {}
    for item in items:
        case = _kit_case(item)
        if case is not None:
            first = firsts.setdefault((case.device, case.op), case.dtype)
            place = places.setdefault(case.op, len(places))
            if not kit_is_fast(case.device, case.op, case.dtype, first, place):
                item.add_marker(pytest.mark.full)
        elif not any(item.get_closest_marker(name) for name in ("fast", "full")):
            tests[item.nodeid.partition("[")[0]].append(item)
    for name, cases in tests.items():
        if len(cases) > 1:
            fast = set(fast_cases(name, [_values(item) for item in cases], most_cases(name)))
            for place, item in enumerate(cases):
                if place not in fast:
                    item.add_marker(pytest.mark.full)
    if text := config.getoption("--suite-shard"):
        try:
            shard = Shard.parse(text)
        except ValueError as error:
            raise pytest.UsageError(f"--suite-shard: {error}") from None
        inside = [item for item in items if shard.holds(shard_name(item))]
        names = set(map(id, inside))
        config.hook.pytest_deselected(items=[item for item in items if id(item) not in names])
        items[:] = inside


def shard_name(item: pytest.Item) -> str:
    """Return the name that decides on an item's shard: its own, or that of a folder that shares something."""
    shared = (folder for folder in ("tests/packaging/", "tests/addons/") if item.nodeid.startswith(folder))
    return next(shared, item.nodeid)


def _values(item: pytest.Item) -> Mapping[str, Hashable]:
    """Return what stands for the values of an item's parameters."""
    spec = getattr(item, "callspec", None)
    return {} if spec is None else {name: _stand_in(value) for name, value in spec.params.items()}


def _stand_in(value: object) -> Hashable:
    """Return what is equal for the same value of a parameter only; cases share the objects."""
    plain = isinstance(value, (str, bytes, int, float, complex, tuple, type(None)))
    try:
        hash(value)
    except TypeError:
        plain = False
    return (type(value), value if plain else id(value))


def _kit_case(item: pytest.Item) -> Any:
    """Return the case of the conformance kit that an item examines, if it does."""
    spec = getattr(item, "callspec", None)
    return None if spec is None else spec.params.get("conformance_case")
