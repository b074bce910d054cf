"""The wheels of every distribution of the workspace, built once, and a clean environment that holds them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import tomllib
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROJECTS = sorted([ROOT, ROOT / "core", *(file.parent for file in ROOT.glob("[bp]*/*/pyproject.toml"))])


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """One wheel, and the project it was built from."""

    folder: Path
    wheel: Path
    project: dict[str, Any]


def clean_environment() -> dict[str, str]:
    """Return the environment without what would let the tests' own interpreter shine through."""
    hidden = ("PYTHON", "TENSORBUS", "COVERAGE", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if not name.startswith(hidden)}


def _run(*command: object, cwd: Path | None = None) -> None:
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=False, env=clean_environment(), cwd=cwd
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"


def _once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder that ``make`` has filled: in one process, however many run the tests."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    outcome = folder.with_suffix(".outcome")
    try:
        folder.mkdir()
    except FileExistsError:
        while not outcome.exists():
            time.sleep(0.1)
    else:
        try:
            make(folder)
            error = ""
        except BaseException as failure:
            error = f"{type(failure).__name__}: {failure}"
        partial = folder.with_suffix(".partial")
        partial.write_text(error)
        partial.rename(outcome)
    assert not outcome.read_text(), outcome.read_text()
    return folder


def _project(folder: Path) -> dict[str, Any]:
    results: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return results


def _build(out: Path) -> None:
    """Build every wheel from a copy of its project, so that the tree stays clean."""
    for folder in PROJECTS:
        name = _project(folder)["name"]
        package = "tensorbus" if name == "tensorbus-core" else name.replace("-", "_")
        copy = out / f"{name}.source"
        copy.mkdir()
        for file in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(folder / file, copy)
        if name != "tensorbus":
            ignored = shutil.ignore_patterns("__pycache__", ".*_cache")
            shutil.copytree(folder / package, copy / package, ignore=ignored)
        else:  # as in the tree, where hatchling would look for a package of this name
            (copy / "core" / package).mkdir(parents=True)
            shutil.copy(folder / "core" / package / "__init__.py", copy / "core" / package)
        _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out / name, cwd=copy)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Built]:
    """Every wheel by the name of its distribution."""
    out = _once(tmp_path_factory, "wheels", _build)
    results = {}
    for folder in PROJECTS:
        project = _project(folder)
        (wheel,) = (out / project["name"]).glob("*.whl")
        results[project["name"]] = Built(folder=folder, wheel=wheel, project=project)
    return results


@pytest.fixture(scope="session")
def clean_python(built: dict[str, Built], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a new environment in which every wheel is installed, with what it depends on."""
    below = "Scripts/python.exe" if os.name == "nt" else "bin/python"

    def make(home: Path) -> None:
        venv.create(home, with_pip=False, symlinks=os.name != "nt")
        wheels = [item.wheel for item in built.values()]
        pip = f"-m pip --python {home / below} --disable-pip-version-check install --quiet --retries 8"
        _run(sys.executable, *pip.split(" "), *wheels)

    return _once(tmp_path_factory, "clean", make) / below
