"""Compiled code on disk. What lies there is run, so no one else may write to it, and changes are noticed.

Folders and files are opened by descriptor (see ``private_folders``); an entry ends with a digest that only
who has the user's key can make (see ``cache_key``).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .cache_key import cache_key, digest, identity
from .env import cache_dir
from .private_folders import NotPrivateError, PrivateFolder, read_all

if TYPE_CHECKING:
    import ctypes

_MARK: Final = b"tensorbus entry\1"
_DIGEST_BYTES: Final = 32
_END_BYTES: Final = len(_MARK) + 8 + _DIGEST_BYTES
"""What an entry ends with: a mark, which key it was made with, the digest. A library loads all the same."""
_REJECTED: Final = ".rejected"
_FORMER: Final = ".sha256"
"""What former releases had beside an entry in place of the digest within."""
_warned: Final[set[str]] = set()


def _warn_once(about: Path, message: str) -> None:
    if str(about) not in _warned:
        _warned.add(str(about))
        warnings.warn(message, RuntimeWarning, stacklevel=3)


def private_folder(owner: str, name: str) -> Path | None:
    """Return a folder that only this user can read and write, or None where there can be none.

    Warns, once, where other users may write to it or to a folder above it in the cache.
    """
    base = cache_dir()
    if base is None:
        return None
    try:
        with PrivateFolder(base, (owner, name), make=True):
            return base / owner / name
    except NotPrivateError as error:
        _warn_once(base, f"compiled code is not kept on disk: {error}.")
    except OSError:
        pass
    return None


def opened(folder: Path, *, make: bool = False) -> PrivateFolder:
    """Return a private folder, held open: each folder from the cache's base down is checked.

    One that lies outside of the cache is checked itself. Raises ``OSError`` where it cannot be used.
    """
    base = cache_dir()
    owner = folder.parent
    if base is not None and owner.parent == base:
        return PrivateFolder(base, (owner.name, folder.name), make=make)
    return PrivateFolder(folder, make=make)


def write_whole(path: Path, data: bytes) -> bool:
    """Write a file that appears whole or not at all, however many processes do so; say whether it did."""
    try:
        with opened(path.parent) as folder:
            folder.write_whole(path.name, data)
    except OSError:
        return False
    return True


def cache_store(path: Path, data: bytes) -> bool:
    """Write ``data`` with its digest, for ``cache_load``; say whether that was written."""
    key = cache_key()
    return key is not None and write_whole(path, data + _end(key, path, data))


def cache_load(path: Path) -> bytes | None:
    """Return what ``cache_store`` wrote, or None where there is nothing or it is not what was written.

    What this user's key says was changed is set aside, with a warning.
    """
    with _entry(path) as (_, data):
        return data


def cached_library(path: Path) -> ctypes.CDLL | None:
    """Return the shared library that ``cache_store`` wrote: the very file that was checked is loaded.

    From memory where the file's system lets nothing be run; None where there is none, or not for this system.
    """
    from .shared_library import load_descriptor, load_library

    with _entry(path) as (file, data):
        if file is None or data is None:
            return None
        try:
            return load_descriptor(file, path)
        except OSError:
            pass
        try:
            return load_library(path.name, data)
        except OSError:
            return None


@contextmanager
def _entry(path: Path) -> Iterator[tuple[int | None, bytes | None]]:
    """Open an entry: give its descriptor, and what was stored; None for each where there is nothing whole."""
    key = cache_key()
    try:
        folder = opened(path.parent) if key is not None else None
    except OSError:
        folder = None
    if folder is None or key is None:
        yield None, None
        return
    with folder:
        try:
            file = folder.open(path.name)
        except NotPrivateError as error:
            _warn_once(path.parent, f"{error}: it is not used, and is made again.")
            file = None
        except OSError:
            file = None
        if file is None:
            yield None, None
            return
        try:
            whole = read_all(os.dup(file))
            data, end = whole[:-_END_BYTES], whole[-_END_BYTES:]
            if end == _end(key, path, data):
                yield file, data
                return
        finally:
            os.close(file)
        if not (end.startswith(_MARK) and end[len(_MARK) : -_DIGEST_BYTES] != identity(key)):
            _reject(folder, path)
        yield None, None


def _reject(folder: PrivateFolder, path: Path) -> None:
    """Set an entry aside that is not what was stored under this name; say so, once for a folder."""
    try:
        folder.remove(path.name + _FORMER)  # a release that had no key
    except OSError:
        _warn_once(
            path.parent,
            f"{path} is damaged, or was changed by somebody else: it is set aside as"
            f" {path.name}{_REJECTED} and made again, as are others like it. See docs/security.md.",
        )
    try:
        folder.rename(path.name, path.name + _REJECTED)
    except OSError:
        pass


def _end(key: bytes, path: Path, data: bytes) -> bytes:
    """Return what an entry ends with. Its place has a part in it: one may lie where another belongs."""
    return _MARK + identity(key) + digest(key, "/".join(path.parts[-3:]), data)


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
    for path, why in _looked_at():
        if not why:
            with opened(path) as folder:
                sizes = [size for _, size in folder.files()]
            present.append(Kind(owner=path.parent.name, name=path.name, files=len(sizes), nbytes=sum(sizes)))
    return present


def clear(owner: str | None = None) -> int:
    """Remove what the cache holds, of one device or of all; return the bytes. Programs at work go on.

    Only files in folders of the cache's own shape go: whatever else lies there stays.
    """
    removed = 0
    for path, why in _looked_at():
        if why or (owner is not None and path.parent.name != owner):
            continue
        with opened(path) as folder:
            for name, _ in folder.files():
                try:
                    removed += folder.remove(name)
                except OSError:  # somebody else was faster
                    continue
    return removed


def skipped() -> list[tuple[str, str]]:
    """Return the folders in the cache that are left out by ``kinds`` and ``clear``, and why each is."""
    return [(str(folder), why) for folder, why in _looked_at() if why]


def _looked_at() -> list[tuple[Path, str]]:
    """Return each device's folders, with what speaks against one; empty where nothing does."""
    folders: list[tuple[Path, str]] = []
    base = cache_dir()
    for owner in _inside(base, folders) if base is not None else ():
        for folder in _inside(owner, folders):
            try:
                opened(folder).close()
                folders.append((folder, ""))
            except NotPrivateError as error:
                folders.append((folder, error.objection))
            except OSError as error:
                folders.append((folder, f"cannot be read: {error.strerror}"))
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


def with_line_numbers(source: str) -> str:
    """Return source text with line numbers, for messages about it.

    >>> print(with_line_numbers("int a;"))
       1 int a;
    """
    return "\n".join(f"{k:4} {line}" for k, line in enumerate(source.splitlines(), 1))
