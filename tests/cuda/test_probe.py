"""Asking for the cuda device says what is missing."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from pathlib import Path

import pytest
import tensorbus as tb
from tensorbus_cuda import device


class _Driver:
    """A driver that answers with the error codes and the number of GPUs given."""

    def __init__(self, init: int = 0, count: int = 1, code: int = 0) -> None:
        self.init, self.count, self.code = init, count, code

    def cuInit(self, flags):
        return self.init

    def cuGetErrorString(self, code, reference):
        reference._obj.value = {999: b"unknown error"}.get(code)
        return 0

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
        (_Driver(init=100), True, "CUDA_VISIBLE_DEVICES"),
        (_Driver(init=999), True, "cuInit returned error 999 (unknown error)"),
        (_Driver(init=998), True, "cuInit returned error 998"),
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
    assert "cuda" not in {value.type for value in tb.devices()}


def _cupy(monkeypatch: pytest.MonkeyPatch, folder: Path, source: str) -> None:
    """Have a driver with a GPU, and this for CuPy."""
    (folder / "cupy.py").write_text(source)
    monkeypatch.syspath_prepend(str(folder))
    for name in [name for name in sys.modules if name.partition(".")[0] == "cupy"]:
        monkeypatch.delitem(sys.modules, name)
    _machine(monkeypatch, _Driver(), cupy=True)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("__version__ = '9.6.0'", "CuPy 9.6.0 is installed, and 14 or later is needed"),
        ("", "CuPy without a version is installed, and 14 or later is needed"),
        ("raise ImportError('libcudart.so.12: no such file')", "cannot be imported: libcudart.so.12"),
        ("__version__ = '14.2.0'", "CuPy 14.2.0 is installed, but not NVRTC, which compiles kernels: "),
    ],
)
def test_a_cupy_that_does_not_do_says_why(monkeypatch, tmp_path, source, reason):
    _cupy(monkeypatch, tmp_path, source)
    try:
        with pytest.raises(tb.DeviceUnavailableError) as caught:
            device.CudaRuntime()
    finally:
        sys.modules.pop("cupy", None)
    assert reason in str(caught.value)
