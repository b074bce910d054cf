"""Asking for the cuda device says what is missing."""

from __future__ import annotations

import ctypes
import importlib.util

import pytest
import tensorbus as tb
from tensorbus_cuda import device


class _Driver:
    """A driver that answers with the error codes and the number of GPUs given."""

    def __init__(self, init: int = 0, count: int = 1, code: int = 0) -> None:
        self.init, self.count, self.code = init, count, code

    def cuInit(self, flags):
        return self.init

    def cuDeviceGetCount(self, reference):
        reference._obj.value = self.count
        return self.code


def _machine(monkeypatch: pytest.MonkeyPatch, driver: _Driver | None, cupy: bool = False) -> None:
    def load(name):
        if driver is None:
            raise OSError(f"{name}: cannot open shared object file")
        return driver

    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if cupy else None)


@pytest.mark.parametrize(
    ("driver", "cupy", "reason"),
    [
        (None, True, "there is no NVIDIA driver on this machine"),
        (_Driver(init=100), True, "the NVIDIA driver is installed but finds no GPU"),
        (_Driver(count=0), True, "the NVIDIA driver is installed but finds no GPU"),
        (_Driver(init=999), True, "cuInit returned error 999"),
        (_Driver(code=3), True, "cuDeviceGetCount returned error 3"),
        (_Driver(count=2), False, "CuPy is not installed, though the driver shows 2 GPU(s)"),
    ],
)
def test_the_first_thing_that_is_missing_is_named(monkeypatch, driver, cupy, reason):
    _machine(monkeypatch, driver, cupy)
    assert reason in str(device.why_unavailable())


def test_where_nothing_is_missing_nothing_is_named(monkeypatch):
    _machine(monkeypatch, _Driver(count=2), cupy=True)
    assert device.why_unavailable() is None


@pytest.mark.skipif(device.why_unavailable() is None, reason="this machine has a GPU that can be used")
def test_the_device_is_unavailable_with_the_reason():
    with pytest.raises(tb.DeviceUnavailableError) as caught:
        tb.device("cuda")
    message = str(caught.value)
    assert str(device.why_unavailable()) in message
    assert "tensorbus-cuda" in message
    assert "pip install tensorbus-cuda[cuda12]" in message
    assert not tb.Device("cuda").is_available()
    assert "cuda" not in {found.type for found in tb.devices()}
