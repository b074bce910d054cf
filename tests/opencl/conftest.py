"""The device that the tests of this folder run on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from opencl_bench import Bench


@pytest.fixture(scope="session")
def bench() -> Bench:
    """The first OpenCL device."""
    pytest.importorskip("pyopencl", reason="the opencl device needs PyOpenCL")
    return Bench()
