"""The probe: what keeps NVIDIA GPUs from being used here, found without CuPy being imported."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from typing import Final

_DRIVER: Final = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
_NO_DEVICE: Final = 100
"""``CUDA_ERROR_NO_DEVICE`` of the CUDA driver API."""


def why_unavailable() -> str:
    """Return the first thing that is missing: driver, GPU, CuPy, and at last this release's kernels."""
    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError:
        return f"there is no NVIDIA driver on this machine ({_DRIVER} cannot be loaded)"
    count, problem = _count(driver)
    if problem:
        return problem
    if importlib.util.find_spec("cupy") is None:
        return f"CuPy is not installed, though the driver shows {count} GPU(s)"
    return (
        f"this release of tensorbus-cuda supplies the probe only; kernels follow. The driver shows {count}"
        f" GPU(s) and CuPy is installed, so nothing is wrong with this machine"
    )


def _count(driver: ctypes.CDLL) -> tuple[int, str]:
    """Return how many GPUs there are, and what is wrong, or ""."""
    code = driver.cuInit(0)
    if code == _NO_DEVICE:
        return 0, "the NVIDIA driver is installed but finds no GPU"
    if code:
        return 0, f"the NVIDIA driver does not start: cuInit returned error {code}"
    count = ctypes.c_int()
    code = driver.cuDeviceGetCount(ctypes.byref(count))
    if code:
        return 0, f"the NVIDIA driver does not count its GPUs: cuDeviceGetCount returned error {code}"
    return count.value, "" if count.value else "the NVIDIA driver is installed but finds no GPU"
