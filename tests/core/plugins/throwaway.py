"""Throw-away distributions in a temporary site directory, and fresh interpreters that see nothing else."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

RUNTIME = """
class Runtime:
    units = 1
    def device_count(self): return self.units
    def properties(self, index):
        from tensorbus.dtypes import float32
        from tensorbus.backend_interface.protocols import DeviceProperties
        return DeviceProperties(name=__name__, dtypes=frozenset({float32}))
    def from_host(self, data, shape, dtype, index): return bytes(data)
    def to_host(self, value, dtype, index): return memoryview(value)
    def synchronize(self, index): pass
    def memory_stats(self, index):
        from tensorbus.backend_interface.protocols import MemoryStats
        return MemoryStats(allocated=0, peak=0)
    def reset_peak_memory_stats(self, index): pass
"""

# A plain extension. It counts its imports and probes where every test can read them.
EXTENSION = """
import builtins
from tensorbus.backend_api import hookimpl
from .runtime import Runtime

log = builtins.__dict__.setdefault("plugin_log", [])
log.append(("import", __name__))

@hookimpl
def tensorbus_device(device_type):
    log.append(("device", device_type))
    return Runtime()

@hookimpl
def tensorbus_kernels(device_type):
    return {"add": lambda a, b: (__name__, a, b)}
"""

PRELUDE = """
import builtins, os, sys, threading, time, warnings
from tensorbus import plugins
from tensorbus.devices.device import *
from tensorbus.devices.device import Device, ValueType
from tensorbus.errors import *

log = builtins.__dict__.setdefault("plugin_log", [])

def error_of(function, *arguments):
    try:
        function(*arguments)
    except Exception as error:
        return error
    raise AssertionError(f"{function} raised nothing")

def check(condition, *facts):
    if not condition:
        raise AssertionError(facts)
"""


def _package_folder(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(next(iter(spec.submodule_search_locations)))


class Site:
    """A folder into which distributions are written as pip writes them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "site"
        self.folder.mkdir()
        self._only = folder / "only"
        self._only.mkdir()
        for name in ("tensorbus", "pluggy"):
            (self._only / name).symlink_to(_package_folder(name))

    def install(
        self,
        name: str,
        *,
        dist: str | None = None,
        extension: str = EXTENSION,
        device: str = "",
        api: str = ">=0.1,<1",
        manifest: str | None = None,
        group: str = "tensorbus.devices",
        version: str = "1.0",
        folder: Path | None = None,
        runtime: str = RUNTIME,
        package: str | None = None,
        init: str = "",
    ) -> str:
        """Write a distribution that supplies device type (or plugin) ``name``; return its package's name."""
        site = folder or self.folder
        dist = dist or f"tb-{name}"
        package = package or dist.replace("-", "_")
        root = site / package
        root.mkdir(parents=True)
        (root / "__init__.py").write_text(init)
        (root / "runtime.py").write_text(runtime)
        (root / "extension.py").write_text(textwrap.dedent(extension))
        if manifest is None:
            manifest = f'[plugin]\nname = "{name}"\napi = "{api}"\n'
            if group == "tensorbus.devices":
                manifest += f'[device]\ntype = "{name}"\n{textwrap.dedent(device)}\n'
        (root / "manifest.toml").write_text(manifest)
        info = site / f"{package}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {package}.extension\n")
        return package

    def run(self, script: str, **environment: str) -> str:
        """Run ``script`` in an interpreter that sees this site, tensorbus and pluggy; return its output."""
        path = os.pathsep.join([str(self.folder), str(self._only)])
        return self._call([sys.executable, "-S", "-c", PRELUDE + textwrap.dedent(script)], path, environment)

    def run_beside_all(self, script: str, **environment: str) -> str:
        """Run ``script`` with everything that is installed, and this site; return its output."""
        path = os.pathsep.join([str(self.folder), str(_package_folder("tensorbus").parent)])
        return self._call([sys.executable, "-c", PRELUDE + textwrap.dedent(script)], path, environment)

    def command(self, *arguments: str, code: int = 0, environment: Mapping[str, str] | None = None) -> str:
        """Run the command line with everything that is installed, and this site; return what it prints."""
        path = os.pathsep.join([str(self.folder), str(_package_folder("tensorbus").parent)])
        return self._call([sys.executable, "-m", "tensorbus", *arguments], path, environment or {}, code)

    def _call(self, command: list[str], path: str, environment: Mapping[str, str], code: int = 0) -> str:
        selected = {key: value for key, value in os.environ.items() if not key.startswith("TENSORBUS_")}
        done = subprocess.run(
            command,
            env={**selected, "PYTHONPATH": path, "COLUMNS": "200", **environment},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout
