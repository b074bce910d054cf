"""The folder where compilers run: their files stay in it, and what a killed process leaves there goes later.

The folder lies in the cache, whose folders nobody else can change, and is handed to the compiler by a path
that stands for its descriptor. Its lock, which ends with the process, says that it is still in use.
"""

from __future__ import annotations

import errno
import os
import selectors
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .env import cache_dir, compiler_timeout
from .private_folders import PrivateFolder, safe_by_path
from .shared_library import check_complete

NAME: Final = "builds"
_YOUNG_SECONDS: Final = 60.0
"""The age from which a folder that nobody has locked was left over: its maker locks it at once."""
_LARGEST_FILE: Final = 1 << 30
"""The bytes of a file from which nobody compiles code to it."""
_MAX_OUTPUT: Final = 1 << 20
"""How many bytes that a compiler prints are kept of each stream; the rest is read and dropped."""
_swept: Final[set[Path]] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildFolder:
    """A folder to compile in. ``path`` is for the compiler, ``environment`` keeps its own files in it."""

    path: Path

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment for the compiler: its temporary files lie in the folder."""
        return {**os.environ, **dict.fromkeys(("TMPDIR", "TMP", "TEMP"), str(self.path))}

    def read(self, name: str) -> bytes:
        """Return the bytes of a file that the compiler wrote.

        Raises ``OSError`` where there is none, and for what has no end or is none of a compiler's: a link,
        a pipe, a device, a folder, a file of more than a gigabyte, half of a library.
        """
        path = self.path / name
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        with open(os.open(path, flags | getattr(os, "O_BINARY", 0)), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "the compiler wrote no regular file", str(path))
            if status.st_size > _LARGEST_FILE:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
            binary = file.read()
        check_complete(binary)
        return binary


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

    ``text`` is its input. Bytes that are no text are shown as replacements, and of much output the first
    megabyte. What it leaves running, such as the server of a compiler's cache, is not waited for. Raises
    ``OSError`` where it cannot be run, and ``TimeoutError`` where it did not return: it is ended then, with
    all it has started.
    """
    seconds = compiler_timeout()
    data = (text or "").encode()
    with _Process(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        process_group=0 if hasattr(os, "killpg") else None,
    ) as process:  # fmt: skip
        try:
            outputs = (
                _talk(process, data, seconds) if os.name == "posix" else process.communicate(data, seconds)
            )
        except BaseException as error:
            _end(process)
            if isinstance(error, subprocess.TimeoutExpired):
                raise TimeoutError(
                    f"{command[0]!r} did not return within {seconds:g} s (TENSORBUS_COMPILER_TIMEOUT)"
                ) from None
            raise
    output, errors = (stream[:_MAX_OUTPUT].decode(errors="replace") for stream in outputs)
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def _talk(process: _Process, data: bytes, seconds: float) -> list[bytes]:
    """Write ``data``; return what the process has printed as it ends, on its output and as errors.

    ``communicate`` keeps all of it, and waits until nobody has the other ends of the pipes, which a child
    that stays has too.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    deadline, written = time.monotonic() + seconds, 0
    read = {process.stdout: bytearray(), process.stderr: bytearray()}
    with selectors.DefaultSelector() as pipes:
        for stream in read:
            os.set_blocking(stream.fileno(), False)
            pipes.register(stream, selectors.EVENT_READ)
        os.set_blocking(process.stdin.fileno(), False)
        pipes.register(process.stdin, selectors.EVENT_WRITE)
        while pipes.get_map():
            left = deadline - time.monotonic()
            if left < 0:
                raise subprocess.TimeoutExpired(process.args, seconds)
            ended = process.poll() is not None
            ready = pipes.select(0 if ended else min(left, 0.05))
            for key, _ in ready:
                pipe: Any = key.fileobj
                if pipe in read:
                    chunk = os.read(key.fd, 1 << 16)
                    read[pipe] += chunk[: _MAX_OUTPUT - len(read[pipe])]
                    ends = not chunk
                else:
                    try:
                        written += os.write(key.fd, data[written : written + (1 << 16)])
                    except BrokenPipeError:  # it reads no further
                        written = len(data)
                    ends = written == len(data)
                if ends:
                    pipes.unregister(pipe)
                    pipe.close()
            if ended and not any(key.fileobj in read for key, _ in ready):
                break
        process.wait(max(deadline - time.monotonic(), 0))
    return [bytes(part) for part in read.values()]


class _Process(subprocess.Popen[bytes]):
    """A child whose end is waited for, so that nothing is left to do when the object is gone.

    What the standard library does there is written in Python, where a Ctrl-C that arrives is lost.
    """

    __del__ = object.__init__


def _end(process: subprocess.Popen[bytes]) -> None:
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
