"""Asking for the metal device says what is missing."""

from __future__ import annotations

import importlib.util
import platform
import sys
from types import SimpleNamespace

import pytest
import tensorbus as tb
from tensorbus_metal import device


def _machine(
    monkeypatch: pytest.MonkeyPatch,
    system: str,
    mlx: bool,
    metal: bool,
    host: str = "",
    machine: str = "arm64",
) -> None:
    monkeypatch.setenv("TENSORBUS_METAL_HOST", host)
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if mlx else None)
    core = SimpleNamespace(metal=SimpleNamespace(is_available=lambda: metal))
    monkeypatch.setitem(sys.modules, "mlx", SimpleNamespace(core=core))
    monkeypatch.setitem(sys.modules, "mlx.core", core)


@pytest.mark.parametrize(
    ("system", "mlx", "metal", "reason"),
    [
        ("Linux", True, True, "Metal is part of macOS, and this machine runs Linux"),
        ("", True, True, "an unknown system"),
        ("Darwin", False, True, "MLX is not installed"),
        ("Darwin", True, False, "MLX is installed but finds no Metal GPU"),
    ],
)
def test_the_first_thing_that_is_missing_is_named(monkeypatch, system, mlx, metal, reason):
    _machine(monkeypatch, system, mlx, metal)
    assert reason in str(device.why_unavailable())


@pytest.mark.parametrize(("system", "metal", "host"), [("Darwin", True, ""), ("Linux", False, "1")])
def test_where_nothing_is_missing_nothing_is_named(monkeypatch, system, metal, host):
    _machine(monkeypatch, system, True, metal, host)
    assert device.why_unavailable() is None


def test_a_mac_without_apple_silicon_is_told_so(monkeypatch):
    """Also one that has it, by a Python for the other processor."""
    _machine(monkeypatch, "Darwin", False, False, machine="x86_64")
    assert "MLX needs Apple silicon" in str(device.why_unavailable())
    assert "x86_64" in str(device.why_unavailable())


def test_the_host_needs_mlx_too(monkeypatch):
    _machine(monkeypatch, "Linux", False, False, "1")
    assert device.why_unavailable() == "MLX is not installed"


@pytest.mark.skipif(device.why_unavailable() is None, reason="this machine has Metal, or stands in for it")
def test_the_device_is_unavailable_with_the_reason():
    with pytest.raises(tb.DeviceUnavailableError) as caught:
        tb.device("metal")
    message = str(caught.value)
    assert str(device.why_unavailable()) in message
    assert "tensorbus-metal" in message
    assert not tb.Device("metal").is_available()
