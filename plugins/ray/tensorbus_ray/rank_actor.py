"""The actor of a rank: runs its process on the machine that Ray chose, and hands on what that says."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import tensorbus
from tensorbus.backend_api import Store

from . import rank_process

_GRACE: Final = 5.0
"""Seconds between asking a rank to end and ending it, and for its last lines."""
_FOLLOW_SECONDS: Final = 10.0
_LINES: Final = 1000
"""How many lines wait here at most: a rank that says more waits for the launcher."""
PYTHON: Final = ""
"""In a command's first place: the Python of the machine."""
FUNCTION, OUTCOME, PATHS = "function", "outcome", "paths"
"""The files of a rank that runs a function."""


@dataclass(frozen=True, slots=True)
class Place:
    """The place where an actor runs, and its resources."""

    node: str
    address: str
    gpus: tuple[str, ...]
    version: str


class RankActor:
    """One rank. Ray calls its methods, several at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[tuple[str, bool] | int] = queue.Queue(_LINES)
        self._over = threading.Event()
        self._started = threading.Event()
        self._served: Any = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def place(self) -> Place:
        """Return where this is."""
        import ray

        node = ray.get_runtime_context().get_node_id()
        gpus = tuple(map(str, ray.get_gpu_ids()))
        return Place(node, ray.util.get_node_ip_address(), gpus, tensorbus.__version__)

    def serve(self, address: str, secret: str) -> str:
        """Serve the store where the ranks meet; return its URL."""
        os.environ["TENSORBUS_STORE_SECRET"] = secret
        store: Store = tensorbus.distributed.open_store(f"tcp://{address}:0", serve=True)
        self._served = store
        return str(self._served.url)

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        folder: str | None,
        function: bytes | None,
    ) -> None:
        """Start the process. ``folder`` is where; None: where Ray starts it. ``function`` is for FUNCTION."""
        if folder is not None and not os.path.isdir(folder):
            if function is None:
                raise FileNotFoundError(
                    f"there is no folder {folder!r} on the machine; the option working_dir copies one to all"
                )
            folder = None
        command = [sys.executable if command[0] == PYTHON else command[0], *command[1:]]
        if function is not None:
            self._folder = tempfile.TemporaryDirectory(prefix="tensorbus-ray-")
            Path(self._folder.name, FUNCTION).write_bytes(function)
            Path(self._folder.name, PATHS).write_text("\n".join(sys.path), encoding="utf-8")
            command.append(self._folder.name)
        variables = {**os.environ, **environment}
        threading.Thread(target=self._run, args=(command, variables, folder), daemon=True).start()
        self._started.wait()

    def _run(self, command: list[str], variables: Mapping[str, str], folder: str | None) -> None:
        """Run the process to its end, in a thread that lives as long: with the thread it would end too."""
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", rank_process.__file__, str(os.getpid()), *command],
                env=variables, cwd=folder, text=True, errors="replace", stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            self._put((f"the process of the rank cannot be started: {error}\n", True))
            self._put(127)
            return
        finally:
            self._started.set()
        self._process = process
        readers = [
            threading.Thread(target=self._read, args=(stream, wrong), daemon=True)
            for stream, wrong in ((process.stdout, False), (process.stderr, True))
        ]
        for reader in readers:
            reader.start()
        code = process.wait()
        for reader in readers:
            reader.join(_GRACE)  # what a rank has started and left may hold its streams
        self._put(code)

    def _read(self, stream: IO[str], wrong: bool) -> None:
        for line in stream:
            self._put((line, wrong))

    def _put(self, item: tuple[str, bool] | int) -> None:
        while not self._over.is_set():
            with contextlib.suppress(queue.Full):
                self._lines.put(item, timeout=0.5)
                return

    def follow(self) -> tuple[list[tuple[str, bool]], int | None]:
        """Return the next lines, and the exit code behind the last of them; waits for some."""
        lines: list[tuple[str, bool]] = []
        with contextlib.suppress(queue.Empty):
            item = self._lines.get(timeout=_FOLLOW_SECONDS)
            while True:
                if isinstance(item, int):
                    return lines, item
                lines.append(item)
                item = self._lines.get_nowait()
        return lines, None

    def outcome(self) -> bytes | None:
        """Return what the function's rank has written, if it has."""
        path = Path(self._folder.name, OUTCOME) if self._folder is not None else None
        return path.read_bytes() if path is not None and path.exists() else None

    def end(self) -> None:
        """End the process, and what it has started, unless it has ended well: asked first, then not."""
        self._over.set()
        process = self._process
        if process is not None and process.poll() != 0:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if self._served is not None:
            self._served.close()
        if self._folder is not None:
            self._folder.cleanup()
