"""Every program of a communicator, as a test: ``pytest --pyargs tensorbus_conformance --communicator X``."""

from __future__ import annotations

import pytest

from .communication.command import examine
from .communication.setting import Setting


def test_communication(communication_setting: Setting, request: pytest.FixtureRequest) -> None:
    """The connection of the ranks does what a communicator is to do."""
    _, findings = examine(communication_setting, request.config.getoption("--launch"))
    if findings:
        pytest.fail("\n".join(map(str, findings[:100])), pytrace=False)
