"""Shared libraries loaded from what was checked: from an open file, or from bytes in memory.

The loader takes paths, and a path may lead elsewhere a moment later; ``/proc/self/fd`` has one for each
descriptor. Where a system has no such folder (macOS), a file is loaded by its path if nobody else can put
another in its place, and otherwise from a new folder of this process.
"""

from __future__ import annotations

import atexit
import ctypes
import errno
import itertools
import os
import struct
from functools import cache
from pathlib import Path
from typing import Final

from .env import cache_dir
from .private_folders import safe_by_path

_DESCRIPTORS: Final = "/proc/self/fd"
_EXECUTABLE: Final = 0x10
"""``MFD_EXEC`` of Linux 6.3, which newer systems ask for."""
_loaded: Final = itertools.count()


def load_descriptor(file: int, path: Path) -> ctypes.CDLL:
    """Return the library in an open file; ``path`` is its own. Raises ``OSError`` where it does not load."""
    if _stands_for(file):
        return ctypes.CDLL(_name_of(file))
    if safe_by_path(path.parent):
        return ctypes.CDLL(str(path))
    raise OSError(
        f"{path} cannot be loaded by its descriptor here, and others may write to a folder above it"
    )


def load_library(name: str, binary: bytes) -> ctypes.CDLL:
    """Return the library of a binary, in memory or else in a folder for temporary files.

    Raises ``OSError``, saying why, where it loads neither way. People who look at the process see ``name``.
    """
    check_complete(binary)
    try:
        return _from_memory(name, binary)
    except OSError as error:
        reasons = [str(error)]
    try:
        folder = scratch()
        places = [place for place in (cache_dir(), Path(folder)) if place and forbids_running(place)]
        reasons += [f"{place} is mounted noexec" for place in places]
        path = Path(folder) / name
        path.write_bytes(binary)
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise OSError(error.errno, "; ".join(dict.fromkeys([*reasons, str(error)]))) from error


def check_complete(binary: bytes) -> None:
    """Raise ``OSError`` for a library in ELF that ends before its last segment, as on a full disk.

    Linux maps such a file, and ends the process by SIGBUS where the loader reads what is missing.
    """
    if binary[:4] != b"\x7fELF":
        return
    order = ">" if binary[5:6] == b"\2" else "<"
    offset, counts, segment = (32, 54, "8xQ16xQ") if binary[4:5] == b"\2" else (28, 42, "4xI8xI")
    try:
        (first,) = struct.unpack_from(order + "QI"[offset == 28], binary, offset)
        size, count = struct.unpack_from(f"{order}HH", binary, counts)
        ends = [sum(struct.unpack_from(order + segment, binary, first + k * size)) for k in range(count)]
    except struct.error:
        ends = [len(binary) + 1]
    if max(ends, default=0) > len(binary):
        raise OSError(errno.ENOEXEC, f"the library is cut short after {len(binary)} bytes")


def forbids_running(path: str | Path) -> bool:
    """Return whether a file system is mounted so that nothing on it may be run (``noexec``).

    Of a folder that is not there yet, that of the next one above counts.
    """
    if not hasattr(os, "ST_NOEXEC"):
        return False
    for folder in (Path(path), *Path(path).absolute().parents):
        try:
            return bool(os.statvfs(folder).f_flag & os.ST_NOEXEC)
        except OSError:
            continue
    return False


@cache
def scratch() -> str:
    """Return a folder for libraries where nothing may be kept. It goes when the process ends."""
    import shutil
    import tempfile  # what takes as long as loading three libraries, and is hardly ever needed

    folder = tempfile.mkdtemp(prefix="tensorbus-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _from_memory(name: str, binary: bytes) -> ctypes.CDLL:
    if not hasattr(os, "memfd_create"):
        raise OSError("this system has no files in memory")
    try:
        file = os.memfd_create(name[:200], os.MFD_CLOEXEC | _EXECUTABLE)
    except OSError:
        file = os.memfd_create(name[:200], os.MFD_CLOEXEC)  # of before Linux 6.3
    with os.fdopen(file, "wb") as stream:
        stream.write(binary)
        stream.flush()
        if not _stands_for(file):
            raise OSError(f"{_DESCRIPTORS} is not there, by which files in memory are loaded")
        return ctypes.CDLL(_name_of(file))


def _stands_for(file: int) -> bool:
    """Return whether a descriptor has a path of its own."""
    try:
        return os.path.samestat(os.stat(f"{_DESCRIPTORS}/{file}"), os.fstat(file))
    except OSError:
        return False


def _name_of(file: int) -> str:
    """Return a path for a descriptor that no other had before.

    Descriptors are numbered anew, and the loader takes one name for one library: bits of a count, as ways to
    write a slash, tell names apart.
    """
    slashes = "".join("/." if bit == "1" else "/" for bit in f"{next(_loaded):b}")
    return f"{_DESCRIPTORS}{slashes}/{file}"
