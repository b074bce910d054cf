"""Where the minutes of the suite go: processor seconds of each test, children included, summed by function.

Seconds of the clock depend on who else computes; these hardly do. Setup counts to the test that came first.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

_KEY = "cpu_seconds"


def spent() -> float:
    """Return the processor seconds of this process, its threads and the children that it has waited for."""
    now = os.times()
    return now.user + now.system + now.children_user + now.children_system


class CpuSecondsPlugin:
    """Measures in the process that runs a test, and adds up in the one that reports."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seconds: dict[str, float] = defaultdict(float)
        self.cases: dict[str, int] = defaultdict(int)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Note when a test begins."""
        item.stash[_began] = spent()
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """Note what its setup and call have spent."""
        item.user_properties.append((_KEY, spent() - item.stash[_began]))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add what a test has spent to its function's."""
        if report.when == "teardown":
            name = report.nodeid.partition("[")[0]
            self.cases[name] += 1
            self.seconds[name] += sum(float(v) for k, v in report.user_properties if k == _KEY)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the sums, the largest first."""
        if not hasattr(session.config, "workerinput"):
            order = sorted(self.seconds, key=lambda name: -self.seconds[name])
            lines = {name: [round(self.seconds[name], 2), self.cases[name]] for name in order}
            self.path.write_text(json.dumps(lines, indent=0) + "\n", encoding="utf-8")


_began = pytest.StashKey[float]()
