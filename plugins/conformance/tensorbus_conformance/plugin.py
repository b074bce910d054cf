"""The pytest plugin: options, a test for each case, and the report at the end, also with pytest-xdist.

It is loaded into every pytest run where the kit is installed, so it imports nothing before it is needed.
"""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .examination import Options
    from .outcome import Case, Outcome
    from .worker import Worker

_KEY = "tensorbus_conformance"
_QUICK = "tensorbus_conformance_quick"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("tensorbus conformance")
    many = {"action": "append", "default": None}
    group.addoption(
        "--device", metavar="TYPE", help="test this device type; may be repeated (default: all)", **many
    )
    group.addoption("--ops", metavar="NAMES", help="only these ops, by commas", **many)
    group.addoption("--dtypes", metavar="NAMES", help="only these dtypes, by commas", **many)
    group.addoption("--report", metavar="FILE", default=None, help="write the conformance report as JSON")
    group.addoption("--shard", metavar="I/N", default="", help="only the I-th of N parts of the cases")
    group.addoption("--in-process", action="store_true", help="run cases here, where a crash ends the run")
    group.addoption(
        "--time-limit", type=float, default=None, help="seconds for one check of one call (default: 600)"
    )
    group.addoption("--quick", action="store_true", help="one dtype of each kind, fewer derivatives")
    group.addoption("--communicator", metavar="NAME", default="", help="examine what connects ranks instead")
    group.addoption("--ranks", type=int, default=4, help="how many ranks it connects (default: 4)")
    group.addoption(
        "--launch", metavar="COMMAND", default="", help="what starts them, such as 'mpiexec -n {ranks}'"
    )


def names(config: pytest.Config, option: str) -> list[str]:
    """Return what an option lists."""
    return [name for listed in config.getoption(option) or () for name in listed.split(",") if name]


def options(config: pytest.Config) -> Options:
    """Return what the options ask for."""
    from .examination import TIME_LIMIT, Options

    limit = config.getoption("--time-limit")
    if limit is not None and not limit > 0:
        raise pytest.UsageError(f"--time-limit {limit:g}: a positive number of seconds is needed.")
    return Options(quick=bool(config.getoption("--quick")), time_limit=limit or TIME_LIMIT)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Hand out the cases to tests that have a ``conformance_case``, or a ``communication_setting``."""
    if "communication_setting" in metafunc.fixturenames:
        _generate_communication(metafunc)
    if "conformance_case" not in metafunc.fixturenames:
        return
    from .examination import cases, shard

    config = metafunc.config
    marker = metafunc.definition.get_closest_marker("conformance")
    quick = bool(config.getoption("--quick")) or bool(marker and marker.kwargs.get("quick"))
    listed = cases(chosen(config), names(config, "--ops"), names(config, "--dtypes"), quick)
    try:
        metafunc.parametrize("conformance_case", shard(listed, config.getoption("--shard")), ids=str)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None


def _generate_communication(metafunc: pytest.Metafunc) -> None:
    from tensorbus.errors import TensorbusError

    from .communication.command import settings

    config = metafunc.config
    devices, dtypes = names(config, "--device"), names(config, "--dtypes")
    name, ranks = config.getoption("--communicator"), config.getoption("--ranks")
    try:
        listed = settings(name, devices, dtypes, ranks, bool(config.getoption("--quick")))
    except (TensorbusError, ValueError) as error:
        raise pytest.UsageError(str(error)) from None
    metafunc.parametrize("communication_setting", listed, ids=str)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Take the tests of communicators where one is named, those of devices where none is."""
    if collection_path.parent != Path(__file__).parent:
        return None
    other = "test_conformance.py" if config.getoption("--communicator") else "test_communication.py"
    return True if collection_path.name == other else None


def chosen(config: pytest.Config) -> list[str]:
    """Return the device types to test. Raises ``UsageError`` where one that was asked for is not there."""
    from tensorbus import plugins
    from tensorbus.errors import TensorbusError

    asked, devices = names(config, "--device"), []
    for name in asked or plugins.known_types():
        try:
            plugins.backend(name)
        except TensorbusError as error:
            if asked:
                raise pytest.UsageError(f"--device {name}: {error}") from None
        else:
            devices.append(name)
    return devices


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker and what collects the outcomes; refuse a device that is not there."""
    config.addinivalue_line("markers", "conformance(quick): how the conformance kit runs a test's cases")
    config.pluginmanager.register(_Collector(config), _KEY)
    if config.getoption("--report") and not hasattr(config, "workerinput"):
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # a run that is stopped reports what it did
    if config.getoption("--device"):
        chosen(config)


class _Collector:
    """Gathers outcomes: workers send them with their reports, the controller writes them down."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.outcomes: list[Outcome] = []
        self.quick = False
        self.worker: Worker | None = None

    def examine(self, case: Case, options: Options) -> Outcome:
        """Examine a case in a process of its own, which may crash, where pytest-xdist has made none."""
        from .examination import examine
        from .runner import is_installed
        from .worker import Worker, limited

        if self.config.getoption("--in-process") or not is_installed(case.device):
            return examine(case, options)
        if hasattr(self.config, "workerinput"):
            return limited(case, options)
        if self.worker is None or not self.worker.is_alive or self.worker.options != options:
            self.pytest_sessionfinish()
            self.worker = Worker(options)
        self.worker.begin(case)
        while (outcome := self.worker.receive()) is None:
            pass
        return outcome

    def pytest_sessionfinish(self) -> None:
        """End the process that examines."""
        if self.worker is not None:
            self.worker.stop()
        self.worker = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the outcome from the report of a case."""
        from .outcome import Case, Finding, Outcome

        when: str | None = report.when
        if when == "???":  # pytest-xdist says so of what one of its processes was at as it crashed
            at = re.search(r"test_conformance\[(.+)-(\w+)-([\w-]+)\]$", report.nodeid)
            if at is not None:
                case = Case(op=at[1], dtype=at[2], device=at[3])
                crash = Finding(check="value", call=case.op, problem="the process crashed")
                self.outcomes.append(Outcome(case=case, route="missing", findings=(crash,)))
        for name, value in report.user_properties if report.when == "call" else ():
            if name == _KEY and isinstance(value, dict):
                self.outcomes.append(Outcome.from_dict(value))
            self.quick = self.quick or name == _QUICK

    def pytest_terminal_summary(self, terminalreporter: Any, exitstatus: int) -> None:
        """Write the report, and say how many of each there are; of several processes, the first does."""
        if not self.outcomes or hasattr(self.config, "workerinput"):
            return
        from collections import Counter

        from . import report

        path = self.config.getoption("--report")
        if path:
            selection = names(self.config, "--ops"), names(self.config, "--dtypes")
            limits = report.limits(*selection, quick=self.quick, shard=self.config.getoption("--shard"))
            session = terminalreporter._session
            if session is not None and (session.shouldstop or session.shouldfail or exitstatus > 1):
                limits.append(f"stopped after {len(self.outcomes)} cases")
            if left := len(terminalreporter.stats.get("deselected", ())):
                limits.append(f"{left} cases deselected")
            report.write(self.outcomes, path, limits)
        for device in dict.fromkeys(o.case.device for o in self.outcomes):
            counts = Counter(o.status for o in self.outcomes if o.case.device == device)
            text = ", ".join(f"{n} {status}" for status, n in sorted(counts.items()))
            terminalreporter.write_line(f"conformance of {device}: {text}")


@pytest.fixture
def conformance(request: pytest.FixtureRequest) -> Any:
    """Return what examines a case and fails the test for what is found."""
    from dataclasses import replace

    marker = request.node.get_closest_marker("conformance")

    def run(case: Case) -> None:
        asked = options(request.config)
        asked = replace(asked, quick=asked.quick or bool(marker and marker.kwargs.get("quick")))
        collector: _Collector = request.config.pluginmanager.getplugin(_KEY)
        outcome = collector.examine(case, asked)
        request.node.user_properties.append((_KEY, outcome.as_dict()))
        if asked.quick:
            request.node.user_properties.append((_QUICK, True))
        if outcome.findings:
            pytest.fail("\n".join(map(str, outcome.findings)), pytrace=False)

    return run
