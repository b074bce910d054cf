"""Programs in processes of their own, in which the metal device computes on the host."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

COMPILER = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), "")
_SUITE = str(Path(__file__).parents[1] / "suite")
_CANNOT = platform.system() != "Linux" or not COMPILER
needs_compiler = pytest.mark.skipif(_CANNOT, reason="MSL runs on the host on Linux, by a C++ compiler")
needs_host = pytest.mark.skipif(
    _CANNOT or importlib.util.find_spec("mlx") is None,
    reason="needs Linux, a C++ compiler and MLX's build for processors: pip install tensorbus-metal[host]",
)


def printed(program: str, **changes: str) -> list[str]:
    """Return the lines that a program prints whose default device is metal, on the host."""
    path = os.pathsep.join([_SUITE, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "TENSORBUS_METAL_HOST": "1", "PYTHONPATH": path, **changes}
    done = subprocess.run(
        [sys.executable, "-c", f"import tensorbus as tb\ntb.set_default_device('metal')\n{program}"],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
