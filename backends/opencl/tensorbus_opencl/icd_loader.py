"""Finding OpenCL drivers: those of the system, and those that pip installed into this environment.

The loader reads a folder of ``.icd`` files, each naming a driver's library. Drivers from wheels have none
with a usable path, so a private folder is made that names all of them. A user's own choice is respected.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib.util
import os
import shutil
import site
import sys
import tempfile
from collections.abc import Iterator, MutableMapping
from hashlib import sha256
from importlib import metadata
from pathlib import Path

from tensorbus.backend_api import private_folder, safe_by_path, write_whole

_CHOICES = ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH", "OCL_ICD_FILENAMES")
_PRELOAD = ("libintlc.so.5", "libirng.so", "libsvml.so", "libimf.so", "libtbb.so.12")
_DRIVER = "libintelocl.so"


def set_up(environment: MutableMapping[str, str] | None = None) -> None:
    """Point the OpenCL loader at every driver that is installed. Must run before PyOpenCL is imported."""
    environment = os.environ if environment is None else environment
    if any(environment.get(name) for name in _CHOICES) or sys.platform != "linux":
        return
    drivers = {file.name: _resolved(file) for file in _system_files()}
    library = intel_library()
    if library is not None:
        _preload(library.parent)
        drivers["tensorbus-intel.icd"] = str(library)
    folder = str(_folder(drivers))
    for name in _CHOICES[:2]:
        environment[name] = folder


def intel_library() -> Path | None:
    """Return Intel's driver for processors where a wheel of this environment holds it."""
    for folder in _library_folders():
        if (folder / _DRIVER).exists():
            return (folder / _DRIVER).absolute()
    return None


def _library_folders() -> Iterator[Path]:
    try:
        for file in metadata.files("intel-opencl-rt") or ():
            if file.name == _DRIVER:
                yield Path(str(file.locate())).resolve().parent
    except metadata.PackageNotFoundError:
        pass
    yield Path(sys.prefix) / "lib"
    yield Path(site.getuserbase()) / "lib"


def _preload(folder: Path) -> None:
    """Load what the driver links to, in order: the wheels leave their folder off the library path."""
    for name in _PRELOAD:
        if (folder / name).exists():
            ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL)


def _system_files() -> Iterator[Path]:
    folders = [Path("/etc/OpenCL/vendors")]
    for package in ("pyopencl", "pocl_binary_distribution"):
        spec = importlib.util.find_spec(package)
        for place in (spec.submodule_search_locations or ()) if spec is not None else ():
            folders += [Path(place) / ".libs", Path(place)]
    for folder in folders:
        yield from sorted(folder.glob("*.icd"))


def _resolved(file: Path) -> str:
    """Return what an ``.icd`` file names, as an absolute path where it lies beside the file."""
    name = file.read_text().strip().splitlines()[0].strip()
    beside = file.parent / name
    return str(beside.absolute()) if beside.exists() else name


def _folder(drivers: dict[str, str]) -> Path:
    text = repr(sorted(drivers.items()))
    cached = private_folder("opencl", f"icd-{sha256(text.encode()).hexdigest()[:16]}")
    # The loader opens what the files name, by their paths: nobody else may put other files there.
    if cached is not None and safe_by_path(cached) and _name_all(drivers, cached):
        return cached
    folder = Path(tempfile.mkdtemp(prefix="tensorbus-opencl-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if not _name_all(drivers, folder):
        raise OSError(
            f"the list of OpenCL drivers cannot be written to {folder}; make room there, or set TMPDIR."
        )
    return folder


def _name_all(drivers: dict[str, str], folder: Path) -> bool:
    """Write a file for each driver where it is not there or damaged; say whether all are there."""
    lines = {folder / name: f"{library}\n".encode() for name, library in drivers.items()}
    return all(_content(file) == line or write_whole(file, line) for file, line in lines.items())


def _content(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except OSError:
        return None
