"""Writes a file that takes the place of an older one only when it is whole.

The bytes go to a temporary file beside the one that is replaced, in the same folder and so on the same file
system; ``os.replace`` then puts it there in one step. Who writes holds a lock on the temporary file: one that
nobody locks was left by a process that was killed, and the next write into the folder removes it. What is no
regular file (a pipe, a terminal, ``/dev/null``) has no content to be replaced, and is written to as it is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import sys
from collections.abc import Iterable
from typing import BinaryIO, Final

from ..errors import StateError

_PREFIX: Final = ".tensorbus-save-"
_SUFFIX: Final = ".tmp"
_ACCESS_LIST: Final = "system.posix_acl_access"
"""The attribute in which Linux keeps a file's access control list."""
_GROUP: Final = stat.S_IRWXG
_UNSYNCED: Final = frozenset({errno.EINVAL, errno.EACCES, errno.ENOTSUP, errno.EBADF})
"""What file systems answer that cannot flush a folder, or may not."""


def write_file(path: str, chunks: Iterable[bytes | memoryview]) -> None:
    """Write ``chunks`` to the file at ``path``, or to where a symbolic link leads.

    An older file is replaced as a whole, and hands on its mode, owner and access control list as far as the
    process may set them. A new one is for its owner alone: mode 0600, less what the umask takes. Both file
    and folder are on the disk when this returns. Pipes and character devices are written to. Raises
    ``OSError`` where that fails, ``StateError`` for sockets and block devices.
    """
    try:
        older = os.stat(path)
    except FileNotFoundError:
        older = None
    target = os.path.realpath(path)
    if older is not None and not (stat.S_ISREG(older.st_mode) and _is_at(target, older)):
        _stream(path, older, chunks)
        return
    folder = os.path.dirname(target)
    _remove_abandoned(folder)
    try:
        file, unfinished = _new_file(folder)
    except OSError as error:  # of a file that nobody knows
        error.filename = target
        raise
    try:
        with file:
            if older is not None:
                _hand_on(older, target, file.fileno())
            _write(file, chunks)
            os.fsync(file.fileno())
            if sys.platform != "win32":  # while the lock is held; Windows replaces no open file
                os.replace(unfinished, target)
        if sys.platform == "win32":
            os.replace(unfinished, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
        raise
    _sync_folder(folder)


def _write(file: BinaryIO, chunks: Iterable[bytes | memoryview]) -> None:
    file.writelines(chunks)
    file.flush()


def _stream(path: str, status: os.stat_result, chunks: Iterable[bytes | memoryview]) -> None:
    """Write to what is no regular file, or to one without a name, as ``/dev/fd/3`` may be."""
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if stat.S_ISBLK(status.st_mode) or stat.S_ISSOCK(status.st_mode):
        kind = "a block device" if stat.S_ISBLK(status.st_mode) else "a socket"
        raise StateError(f"save: {path!r} is {kind}; give the path of a file, a pipe or a character device.")
    with open(path, "wb") as file:
        _write(file, chunks)


def _is_at(path: str, status: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path), status)
    except OSError:
        return False


def _new_file(folder: str) -> tuple[BinaryIO, str]:
    """Return a new file in a folder, open and locked, and its path."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    while True:
        path = os.path.join(folder, f"{_PREFIX}{secrets.token_hex(8)}{_SUFFIX}")
        try:
            number = os.open(path, flags, 0o600)
        except FileExistsError:
            continue
        try:
            _lock(number, wait=True)
            if os.fstat(number).st_nlink or sys.platform == "win32":
                return os.fdopen(number, "wb"), path
        except BaseException:
            os.close(number)
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise
        os.close(number)  # another process took it for abandoned before it was locked


def _lock(number: int, *, wait: bool) -> bool:
    """Lock an open file; return whether that was done: not where another has locked it, or none can be."""
    if sys.platform == "win32":
        return True  # an open file cannot be removed there
    import fcntl

    try:
        fcntl.flock(number, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # locked, or a file system without locks
        return False
    return True


def _remove_abandoned(folder: str) -> None:
    """Remove the temporary files of processes that were killed: those that nobody has locked."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX) and entry.name.endswith(_SUFFIX):
                with contextlib.suppress(OSError):
                    _remove_unlocked(entry.path)


def _remove_unlocked(path: str) -> None:
    if sys.platform == "win32":
        os.unlink(path)
        return
    number = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if stat.S_ISREG(os.fstat(number).st_mode) and _lock(number, wait=False):
            os.unlink(path)
    finally:
        os.close(number)


def _hand_on(older: os.stat_result, path: str, number: int) -> None:
    """Give an open file the owner, mode and access control list of the one that it replaces.

    A group that cannot be kept has no rights in another group's place.
    """
    mode = stat.S_IMODE(older.st_mode)
    if sys.platform == "win32":
        return
    try:
        os.fchown(number, older.st_uid, older.st_gid)
    except OSError:
        mode &= ~(stat.S_ISUID | stat.S_ISGID)
        try:
            os.fchown(number, -1, older.st_gid)
        except OSError:
            mode &= ~_GROUP
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # most files have no list
            rights = os.getxattr(path, _ACCESS_LIST)
            try:
                os.setxattr(number, _ACCESS_LIST, rights)
            except OSError:  # without the list, the bits of the group would give it what the list gave others
                mode &= ~_GROUP
    os.fchmod(number, mode)


def _sync_folder(folder: str) -> None:
    """Have a folder's entries on the disk."""
    if sys.platform == "win32":
        return
    try:
        number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _UNSYNCED:
            return
        raise
    try:
        os.fsync(number)
    except OSError as error:
        if error.errno not in _UNSYNCED:
            raise
    finally:
        os.close(number)
