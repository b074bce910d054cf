"""Compiled code on disk. What lies there is run, so no one else may write to it, and damage is noticed."""

from __future__ import annotations

import os
import stat
from hashlib import sha256
from pathlib import Path

from .settings import cache_dir


def private_folder(owner: str, name: str) -> Path | None:
    """Return a folder that only this user can read and write, or None where there can be none."""
    folder = cache_dir() / owner / name
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


def keep(path: Path, data: bytes) -> bool:
    """Write ``data``, then its digest beside it, for ``kept``; say whether both were written."""
    return write_whole(path, data) and write_whole(_digest(path), sha256(data).digest())


def kept(path: Path) -> bytes | None:
    """Return what ``keep`` wrote, or None where there is nothing or it is damaged."""
    try:
        data = path.read_bytes()
        return data if _digest(path).read_bytes() == sha256(data).digest() else None
    except OSError:
        return None


def numbered(source: str) -> str:
    """Return source text with line numbers, for messages about it.

    >>> print(numbered("int a;"))
       1 int a;
    """
    return "\n".join(f"{k:4} {line}" for k, line in enumerate(source.splitlines(), 1))


def _digest(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")
