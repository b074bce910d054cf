"""Where compilers run: their files stay in one folder, and what a killed process leaves there goes later.

The folder lies in the cache, whose folders nobody else can change, and is handed to the compiler by a path
that stands for its descriptor. Its lock, which ends with the process, says that it is still in use.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .env import cache_dir, compiler_timeout
from .private_folders import PrivateFolder, safe_by_path

NAME: Final = "builds"
_YOUNG_SECONDS: Final = 60.0
"""The age from which a folder that nobody has locked was left over: its maker locks it at once."""
_swept: Final[set[Path]] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildFolder:
    """A folder to compile in. ``path`` is for the compiler, ``environment`` keeps its own files in it."""

    path: Path

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment for the compiler: its temporary files lie in the folder."""
        return {**os.environ, **dict.fromkeys(("TMPDIR", "TMP", "TEMP"), str(self.path))}


@contextmanager
def build_folder(owner: str, *, cached: bool = True) -> Iterator[BuildFolder]:
    """Give a new folder to compile in, and remove it afterwards with all that lies in it.

    It lies in the cache; where there is none, and without ``cached``, in the folder for temporary files.
    Raises ``OSError`` where there is no room for it.
    """
    base = cache_dir() if cached else None
    with ExitStack() as stack:
        place = _in_cache(base, owner, stack) if base is not None else None
        if place is None:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tensorbus-")))
        yield BuildFolder(path=place)


def run_compiler(
    command: Sequence[str], environment: Mapping[str, str] | None = None, text: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a compiler with the time limit of ``TENSORBUS_COMPILER_TIMEOUT``; return its output.

    ``text`` is its input. Bytes that are no text are shown as replacements. Raises ``OSError`` where it
    cannot be run, and ``TimeoutError`` where it did not return: it is ended then, with all it has started.
    """
    seconds = compiler_timeout()
    with _Process(
        command, env=environment, text=True, errors="replace", stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, process_group=0 if hasattr(os, "killpg") else None,
    ) as process:  # fmt: skip
        try:
            output, errors = process.communicate(text, seconds)
        except BaseException as error:
            _end(process)
            if isinstance(error, subprocess.TimeoutExpired):
                raise TimeoutError(
                    f"{command[0]!r} did not return within {seconds:g} s (TENSORBUS_COMPILER_TIMEOUT)"
                ) from None
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


class _Process(subprocess.Popen[str]):
    """A child whose end is waited for, so that nothing is left to do when the object is gone.

    What the standard library does there is written in Python, where a Ctrl-C that arrives is lost.
    """

    __del__ = object.__init__


def _end(process: subprocess.Popen[str]) -> None:
    """Kill a compiler and its children, which would hold its output open."""
    try:
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    except OSError:  # it has ended meanwhile
        pass


def _in_cache(base: Path, owner: str, stack: ExitStack) -> Path | None:
    try:
        folder = stack.enter_context(PrivateFolder(base, (owner, NAME), make=True))
    except OSError:
        return None
    if folder.path not in _swept:
        _swept.add(folder.path)
        sweep(folder)
    name = os.urandom(8).hex()
    inner = stack.enter_context(folder.inner(name, make=True))
    stack.callback(folder.remove_folder, name)
    if inner.descriptor is None:
        return inner.path
    _lock(inner.descriptor)
    by_descriptor = Path(f"/proc/{os.getpid()}/fd/{inner.descriptor}")
    try:
        if os.path.samestat(os.stat(by_descriptor), os.fstat(inner.descriptor)):
            return by_descriptor
    except OSError:
        pass
    return inner.path if safe_by_path(inner.path) else None


def sweep(folder: PrivateFolder) -> None:
    """Remove the folders that killed processes have left."""
    for name in folder.folders():
        try:
            with folder.inner(name) as inner:
                left = inner.descriptor
                if left is None:
                    return
                if time.time() - os.fstat(left).st_mtime > _YOUNG_SECONDS and _lock(left):
                    folder.remove_folder(name)
        except OSError:
            continue


def _lock(folder: int) -> bool:
    """Take a folder's lock, which goes with the descriptor; return whether nobody else has it."""
    try:
        import fcntl

        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True
