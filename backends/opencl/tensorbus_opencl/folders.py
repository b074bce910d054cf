"""Folders under the user's cache folder. What lies there is run, so no one else may write to it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from tensorbus.backend_api import cache_dir


def private_folder(name: str) -> Path | None:
    """Return a folder that only this user can read and write, or None where there can be none."""
    folder = cache_dir() / "opencl" / name
    try:
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.mkdir(exist_ok=True, mode=0o700)
        found = folder.stat()
    except OSError:
        return None
    if hasattr(os, "getuid") and (found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077):
        return None
    return folder


def write_whole(path: Path, data: bytes) -> bool:
    """Write a file that appears whole or not at all, however many processes do so; say whether it did."""
    part = path.with_name(f"{path.name}.{os.getpid()}.{os.urandom(4).hex()}.part")
    try:
        part.write_bytes(data)
        part.replace(path)
    except OSError:
        try:
            part.unlink(missing_ok=True)
        except OSError:
            pass
        return False
    return True
