"""The ``mpiexec`` of the tests: of MPICH's wheel, which puts it beside Python, or of the system."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

from tensorbus import plugins


def mpiexec() -> str:
    """Return where ``mpiexec`` is, that of an environment that is not activated included; else ""."""
    if importlib.util.find_spec("mpi4py") is None or "mpi" not in plugins.communicators():
        return ""
    return shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec") or ""


NEEDED = "needs mpiexec, mpi4py and tensorbus-mpi: pip install tensorbus[mpi]"
