"""Folders that no other user can write to, opened by descriptor: what was checked is what is used.

A path says where something lies at one moment; whoever may write to a folder above can put something else
there at the next. So each folder from the cache's base down is opened inside of the one before, links are not
followed, the descriptor says whose it is, and files are opened inside of the last. Where a system has no such
calls (Windows), paths stand for descriptors, and its own access lists keep others out.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final

_AT: Final = os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW") and hasattr(os, "O_DIRECTORY")
_FOLDER: Final = os.O_RDONLY | (os.O_DIRECTORY if _AT else 0)
_FILE: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_READ: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _FILE
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE
_LARGEST: Final = 1 << 30
"""The bytes of a file from which it is none that was kept."""


class NotPrivateError(OSError):
    """Another user may write to a folder or a file, or has made it. ``str`` of it says which, and why."""

    def __init__(self, path: str | Path, objection: str) -> None:
        super().__init__(f"{path} {objection}")
        self.objection = objection


def user() -> int | None:
    """Return the number of the user that this process acts for; None where there are none."""
    return os.geteuid() if hasattr(os, "geteuid") else None


def objection_to_parent(state: os.stat_result) -> str:
    """Return why others could put something else into a folder; empty where they could not.

    Others may write to a folder with the sticky bit, such as ``/tmp``, since what lies there is moved and
    removed by its owner only.
    """
    me = user()
    if me is None:
        return ""
    if state.st_uid not in (me, 0):
        return "belongs to another user"
    if state.st_mode & 0o022 and not state.st_mode & stat.S_ISVTX:
        return (
            "may be written to by other users; take that right from them (chmod go-w), or name another folder"
        )
    return ""


def objection_to_folder(state: os.stat_result) -> str:
    """Return why others could see or write what lies in a folder; empty where they could not."""
    me = user()
    if me is None:
        return ""
    if state.st_uid != me:
        return "belongs to another user"
    if stat.S_IMODE(state.st_mode) & 0o077:
        return "is open to other users; remove it, and a private one takes its place"
    return ""


def objection_to_file(state: os.stat_result) -> str:
    """Return why others could have written a file; empty where they could not."""
    if not stat.S_ISREG(state.st_mode):
        return "is no regular file"
    me = user()
    if me is None:
        return ""
    if state.st_uid != me:
        return "belongs to another user"
    return "may be written to by other users" if state.st_mode & 0o022 else ""


class PrivateFolder:
    """A folder that only this user can write to, held open; as a context manager it is closed at the end.

    ``base`` may be reached by links; ``names`` lead from there to the folder, and are no links. With ``make``
    what is missing is made, with ``readable`` others may look at what lies in the folder. Raises
    ``NotPrivateError`` where others may write to one of the folders, ``OSError`` where one cannot be opened.
    """

    __slots__ = ("_fd", "path")

    def __init__(
        self, base: Path, names: tuple[str, ...] = (), *, make: bool = False, readable: bool = False
    ) -> None:
        self.path = base.joinpath(*names)
        self._fd: int | None = None
        if make:
            base.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _AT:
            if make:
                self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.stat(self.path)
            return
        self._fd = os.open(base, _FOLDER)
        try:
            self._check(len(names), not names and not readable)
            for above, name in zip(reversed(range(len(names))), names, strict=True):
                self._enter(name, make)
                self._check(above, not above and not readable)
        except BaseException:
            self.close()
            raise

    def _enter(self, name: str, make: bool) -> None:
        assert self._fd is not None
        if make:
            try:
                os.mkdir(name, 0o700, dir_fd=self._fd)
            except FileExistsError:
                pass
        inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=self._fd)
        os.close(self._fd)
        self._fd = inner

    def _check(self, above: int, private: bool) -> None:
        """Look at what is open: the folder, or one so many levels above it."""
        assert self._fd is not None
        state = os.fstat(self._fd)
        objection = objection_to_folder(state) if private else objection_to_parent(state)
        if objection:
            raise NotPrivateError(self.path.parents[above - 1] if above else self.path, objection)

    def __enter__(self) -> PrivateFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the folder."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _at(self, name: str) -> str:
        return name if _AT else str(self.path / name)

    @property
    def descriptor(self) -> int | None:
        """The descriptor, while it is open; None where the system has none for folders."""
        return self._fd

    def open(self, name: str) -> int:
        """Return the descriptor of a file that lies here, for reading. The caller closes it.

        Raises ``NotPrivateError`` where another user may have written it, ``OSError`` where there is none.
        """
        file = os.open(self._at(name), _READ, dir_fd=self._fd)
        objection = objection_to_file(os.fstat(file))
        if objection:
            os.close(file)
            raise NotPrivateError(self.path / name, objection)
        return file

    def read(self, name: str) -> bytes:
        """Return what a file holds. Raises as ``open`` does."""
        return read_all(self.open(name))

    def write_whole(self, name: str, data: bytes, *, anew: bool = False) -> None:
        """Write a file that appears whole or not at all, however many processes do so.

        With ``anew`` a file of this name that is there already stays, and ``FileExistsError`` is raised.
        Raises ``OSError`` where it cannot be written.
        """
        part = f"{name}.{os.getpid()}.{os.urandom(4).hex()}.part"
        try:
            self._write(part, data)
            if anew:
                os.link(self._at(part), self._at(name), src_dir_fd=self._fd, dst_dir_fd=self._fd)
            else:
                os.replace(self._at(part), self._at(name), src_dir_fd=self._fd, dst_dir_fd=self._fd)
                return
        except BaseException:
            self._discard(part)
            raise
        self._discard(part)

    def _write(self, name: str, data: bytes) -> None:
        file = os.open(self._at(name), _NEW, 0o600, dir_fd=self._fd)
        with os.fdopen(file, "wb") as stream:
            stream.write(data)

    def _discard(self, name: str) -> None:
        try:
            self.remove(name)
        except OSError:
            pass

    def remove(self, name: str) -> int:
        """Remove a file, or a link itself; return its bytes. Raises ``OSError`` for a folder."""
        size = os.stat(self._at(name), dir_fd=self._fd, follow_symlinks=False).st_size
        os.unlink(self._at(name), dir_fd=self._fd)
        return size

    def rename(self, name: str, new: str) -> None:
        """Give a file another name, in the place of what has that name."""
        os.replace(self._at(name), self._at(new), src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def files(self) -> list[tuple[str, int]]:
        """Return the names and bytes of files that lie here. What comes or goes meanwhile may be missed."""
        return [(name, state.st_size) for name, state in self._present() if not stat.S_ISDIR(state.st_mode)]

    def folders(self) -> list[str]:
        """Return the names of the folders that lie here; links are none."""
        return [name for name, state in self._present() if stat.S_ISDIR(state.st_mode)]

    def _present(self) -> Iterator[tuple[str, os.stat_result]]:
        for name in sorted(os.listdir(self.path if self._fd is None else self._fd)):
            try:
                state = os.stat(self._at(name), dir_fd=self._fd, follow_symlinks=False)
            except OSError:  # it is gone meanwhile
                continue
            yield name, state

    def inner(self, name: str, *, make: bool = False) -> PrivateFolder:
        """Return a folder that lies here, opened inside of this one. Raises as the class does."""
        folder = PrivateFolder.__new__(PrivateFolder)
        folder.path, folder._fd = self.path / name, None
        if make:
            os.mkdir(self._at(name), 0o700, dir_fd=self._fd)
        if not _AT:
            return folder
        folder._fd = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=self._fd)
        try:
            folder._check(0, True)
        except BaseException:
            folder.close()
            raise
        return folder

    def remove_folder(self, name: str) -> None:
        """Remove a folder with all that lies in it; links are not followed. What cannot be removed stays."""
        import shutil

        ignored: Callable[..., None] = lambda *failure: None  # noqa: E731 - of a type that both signatures have
        if _AT:
            shutil.rmtree(name, onerror=ignored, dir_fd=self._fd)
        else:
            shutil.rmtree(self.path / name, onerror=ignored)


def read_all(file: int, most: int = _LARGEST) -> bytes:
    """Return what a descriptor holds from its beginning, and close it; nothing where that is above ``most``.

    A file with a hole in it may say that it has any size.
    """
    with os.fdopen(file, "rb") as stream:
        return stream.read(most) if os.fstat(file).st_size <= most else b""


def safe_by_path(folder: Path) -> bool:
    """Return whether a private folder's path leads there at any later moment, whatever other users do.

    For what takes paths only, such as a library's list of drivers: each folder above belongs to this user or
    to root, and others may not write to it.
    """
    if user() is None:
        return True
    try:
        whole = folder.resolve(strict=True)
        return not any(objection_to_parent(above.stat()) for above in (whole, *whole.parents))
    except OSError:
        return False
