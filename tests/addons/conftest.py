"""Installs the add-ons of this folder, as pip would for a user, where only this folder's tests see them."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
collect_ignore_glob = ["*_only"]  # they are installed and run, never imported here


@pytest.fixture(scope="session")
def run_with(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Return what runs a script (or a command) with the named add-ons installed, and gives its output."""

    def run(script: str | list[str], *names: str) -> str:
        sites = [_installed(name, tmp_path_factory) for name in names]
        command = ["-c", textwrap.dedent(script)] if isinstance(script, str) else ["-m", *script]
        done = subprocess.run(
            [sys.executable, *command], capture_output=True, text=True, timeout=300,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sites)), "COLUMNS": "160"},
        )  # fmt: skip
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    return run


def _installed(name: str, factory: pytest.TempPathFactory) -> Path:
    site = factory.mktemp(name)
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation",
         "--disable-pip-version-check", "--no-index", "--target", str(site), str(HERE / name)],
        check=True, timeout=300,
    )  # fmt: skip
    return site
