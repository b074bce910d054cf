"""Compiled code on disk. What lies there is run, so no one else may write to it, and damage is noticed."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final

from .env import cache_dir


def private_folder(owner: str, name: str) -> Path | None:
    """Return a folder that only this user can read and write, or None where there can be none."""
    base = cache_dir()
    if base is None:
        return None
    folder = base / owner / name
    if _is_private(folder):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.mkdir(exist_ok=True, mode=0o700)
    except OSError:
        return None
    return folder if _is_private(folder) else None


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


def cache_store(path: Path, data: bytes) -> bool:
    """Write ``data``, then its digest beside it, for ``cache_load``; say whether both were written."""
    return write_whole(path, data) and write_whole(_digest_path(path), _digest(path, data))


def cache_load(path: Path) -> bytes | None:
    """Return what ``cache_store`` wrote, or None where there is nothing or it is damaged."""
    try:
        data = path.read_bytes()
        return data if _digest_path(path).read_bytes() == _digest(path, data) else None
    except OSError:
        return None


_PACKAGE: Final = str(Path(__file__).parents[1])
_UNSTAMPED: Final = frozenset({"cli", "compat", "nn", "optim", "special", "testing"})
"""The packages of core whose code has no part in what a program becomes; all others have."""


@cache
def code_stamp(folder: Path) -> str:
    """Return a text that differs when the code that makes programs does, here or in ``folder``.

    Files are not read: their sizes and the times of their last changes tell.
    """
    files: list[os.DirEntry[str]] = []
    stack = [str(folder), _PACKAGE]
    while stack:
        at = stack.pop()
        skipped = _UNSTAMPED if at == _PACKAGE else ()
        with os.scandir(at) as entries:
            for entry in entries:
                if entry.name.endswith((".py", ".c")):
                    files.append(entry)
                elif entry.name not in skipped and entry.name != "__pycache__" and entry.is_dir():
                    stack.append(entry.path)
    states = sorted([(e.path, s.st_size, s.st_mtime_ns) for e in files for s in (e.stat(),)])
    return sha256(repr(states).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Number of files that one device caches of one kind, and their bytes."""

    owner: str
    name: str
    files: int
    nbytes: int


def kinds() -> list[Kind]:
    """Return what the cache holds, by device and kind. Files that come or go meanwhile may be missed."""
    present = []
    for folder in _folders():
        sizes = []
        for path in folder.iterdir():
            try:
                sizes.append(path.stat().st_size)
            except OSError:
                continue
        present.append(Kind(owner=folder.parent.name, name=folder.name, files=len(sizes), nbytes=sum(sizes)))
    return present


def clear(owner: str | None = None) -> int:
    """Remove what the cache holds, of one device or of all; return the bytes. Programs at work go on.

    Only files in folders of the cache's own shape go: whatever else lies there stays.
    """
    removed = 0
    for folder in _folders():
        if owner is not None and folder.parent.name != owner:
            continue
        for path in folder.iterdir():
            try:
                size = path.lstat().st_size
                path.unlink()
            except OSError:  # a folder, or somebody else was faster
                continue
            removed += size
    return removed


def skipped() -> list[tuple[str, str]]:
    """Return the folders in the cache that are left out by ``kinds`` and ``clear``, and why each is."""
    return [(str(folder), why) for folder, why in _looked_at() if why]


def _folders() -> list[Path]:
    """Return the private folders, those of links and of other users left out."""
    return [folder for folder, why in _looked_at() if not why]


def _looked_at() -> list[tuple[Path, str]]:
    """Return each device's folders, with what speaks against one; empty where nothing does."""
    folders: list[tuple[Path, str]] = []
    base = cache_dir()
    for owner in _inside(base, folders) if base is not None else ():
        folders += [(folder, _objection(folder)) for folder in _inside(owner, folders)]
    return folders


def _inside(folder: Path, problems: list[tuple[Path, str]]) -> list[Path]:
    """Return the folders in a folder; links, and a folder that cannot be read, are noted in ``problems``."""
    try:
        inner = sorted(p for p in folder.iterdir() if p.is_dir())
        problems += [(p, "is a link, which is not followed") for p in inner if p.is_symlink()]
        return [p for p in inner if not p.is_symlink()]
    except FileNotFoundError:
        return []
    except OSError as error:
        problems.append((folder, f"cannot be read: {error.strerror}"))
        return []


def _is_private(folder: Path) -> bool:
    return not _objection(folder)


def _objection(folder: Path) -> str:
    """Return why others could have written what lies in a folder; empty where they could not."""
    try:
        status = folder.stat()
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if not hasattr(os, "getuid"):
        return ""
    if status.st_uid != os.getuid():
        return "belongs to another user"
    if stat.S_IMODE(status.st_mode) & 0o077:
        return "is open to other users; remove it, and a private one takes its place"
    return ""


def with_line_numbers(source: str) -> str:
    """Return source text with line numbers, for messages about it.

    >>> print(with_line_numbers("int a;"))
       1 int a;
    """
    return "\n".join(f"{k:4} {line}" for k, line in enumerate(source.splitlines(), 1))


def _digest(path: Path, data: bytes) -> bytes:
    """Return what tells an entry from others: its name as well, as one may lie where another belongs."""
    return sha256(path.name.encode() + b"\0" + data).digest()


def _digest_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")
