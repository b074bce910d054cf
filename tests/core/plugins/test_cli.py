"""The command line over throw-away devices: working, wrong, broken, absent."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from throwaway import EXTENSION, RUNTIME, Site

WORKING = (
    """
import struct

class Value:
    def __init__(self, data, shape): self.data, self.shape = bytes(data), shape
"""
    + RUNTIME.replace("return bytes(data)", "return Value(data, shape)").replace(
        "return memoryview(value)", "return memoryview(value.data)"
    )
    + """
def add(x, y):
    first, second = struct.unpack("3f", x.data), struct.unpack("3f", y.data)
    return Value(struct.pack("3f", *(a + b for a, b in zip(first, second))), x.shape)
"""
)
ADDS = EXTENSION.replace("lambda a, b: (__name__, a, b)", "__import__(__package__ + '.runtime').runtime.add")
OFF = {"TENSORBUS_AUTOLOAD": "0"}
NO_CARD = RUNTIME.replace("return self.units", "raise OSError('no card')")


@pytest.fixture
def only(site: Site) -> dict[str, str]:
    """Switches that leave out whatever is really installed here."""
    site.install("fine", runtime=WORKING, extension=ADDS, device="host = true")
    return {"TENSORBUS_PLUGINS": "fine,absent,wrong,broken,raises,idle,future,torn"}


def test_version(site: Site) -> None:
    assert site.command("--version").startswith("tensorbus 0.")
    assert "doctor" in site.command("--help")


def test_devices(site: Site, only: dict[str, str]) -> None:
    site.install("absent", runtime=NO_CARD)
    printed = site.command("devices", environment=only)
    for word in (
        "fine:0 (default)",
        "tb-fine 1.0",
        "no bool, int8",
        "absent",
        "unavailable",
        "OSError: no card",
    ):
        assert word in printed
    rows = {row["device"]: row for row in json.loads(site.command("devices", "--json", environment=only))}
    assert rows["fine:0"]["default"] is True
    assert rows["fine:0"]["state"] == "ready"
    assert rows["fine:0"]["dtypes"] == ["float32"]
    assert rows["absent"]["reason"] == "its probe failed: OSError: no card"


def test_doctor_of_a_healthy_machine(site: Site, only: dict[str, str]) -> None:
    """Hardware that is merely absent is no failure, until it is asked for."""
    site.install("absent", runtime=NO_CARD)
    site.install("idle", group="tensorbus.plugins", manifest='[plugin]\nname = "idle"\napi = ">=0.1"\n')
    printed = site.command("doctor", environment=only)
    for word in (
        "device fine",
        "tb-fine 1.0",
        "tb_fine.extension",
        ">=0.1,<1",
        " ms",
        "add on fine:0",
        "right",
    ):
        assert word in printed
    for word in (
        "set_default_device('fine')",
        "OSError: no card",
        "plugin idle",
        "All that should work does.",
    ):
        assert word in printed
    data = json.loads(
        site.command("doctor", "--json", code=1, environment={**only, "TENSORBUS_DEFAULT_DEVICE": "absent"})
    )
    assert [f["status"]["name"] for f in data["findings"] if f["failed"]] == ["absent"]
    assert data["healthy"] is False
    assert "TENSORBUS_DEFAULT_DEVICE='absent'" in data["reason"]


def test_doctor_finds_what_should_work_and_does_not(site: Site, only: dict[str, str]) -> None:
    failures: dict[str, tuple[dict[str, Any], list[str]]] = {
        "wrong": (
            {"runtime": WORKING.replace("a + b", "a - b"), "extension": ADDS},
            ["gave [0.0, 0.0, 0.0]"],
        ),
        "raises": ({"runtime": WORKING.replace("a + b", "a / 0"), "extension": ADDS}, ["ZeroDivisionError"]),
        "broken": ({"extension": "1 / 0\n"}, ["importing it failed: ZeroDivisionError", "Traceback"]),
        "future": ({"api": ">=9"}, ["written for backend API '>=9'"]),
        "torn": (
            {"group": "tensorbus.plugins", "manifest": "[plugin"},
            ["manifest of tb-torn 1.0 is malformed"],
        ),
    }
    for name, (how, _) in failures.items():
        site.install(name, **how)
    printed = site.command("doctor", code=1, environment=only)
    assert "right" in printed
    (last,) = re.findall(r"Should work and does not: (.*)\.", printed)
    assert {x.split()[-1] for x in last.split(", ")} == failures.keys()
    for name, (_, words) in failures.items():
        begin = re.search(rf"^\S* *(device|plugin) {name}\b", printed, re.MULTILINE)
        assert begin is not None, (name, printed)
        own = re.split(r"^\S* *(?:device|plugin) ", printed[begin.end() :], maxsplit=1, flags=re.MULTILINE)[0]
        for word in words:
            assert word in own, (name, word, printed)


def test_doctor_without_any_device(site: Site) -> None:
    assert "no default device" in site.command("doctor", code=1, environment=OFF).replace("\n", " ")
    assert "No device is installed" in site.command("devices", environment=OFF)
