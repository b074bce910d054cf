"""Measurements in processes of their own, with a limit: one that hangs costs a cell and not the run.

A module that is measured so prints figures as lines of JSON, each as soon as it is known (``report``), and is
run by ``measured``. Limits are of the processor, so that a machine that others use stops nothing early, or of
the wall, where a device computes.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TextIO

PATIENCE: Final = 12
"""How many times the limit of the processor the wall may show before a process is ended: it hangs."""
ONE_THREAD: Final = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TENSORBUS_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS"), "1"
)
"""An environment in which libraries compute, and compile, with one thread."""


def report(figures: dict[str, Any]) -> None:
    """Print figures, which add to those before and replace them."""
    print(json.dumps(figures), flush=True)


def measured(
    module: str, *args: str, limit: float, wall: float | None = None,
    show: Callable[[str], None] = lambda line: None, environment: Mapping[str, str] = ONE_THREAD,
) -> dict[str, Any]:  # fmt: skip
    """Run ``python -m MODULE ARGS`` and return its figures; ``show`` is told of lines that are none.

    ``environment`` is added to that of this process. It may take ``limit`` seconds of the processor, and
    ``wall`` of the wall (``None``: ``PATIENCE`` times the limit). Of a process that is stopped, or fails, the
    figures are those that it reported before, and ``stopped`` says why there are no more.
    """
    wall = limit * PATIENCE if wall is None else wall
    figures: dict[str, Any] = {}
    with _started(module, args, limit, environment) as (process, errors):
        late = threading.Event()

        def expire(process: subprocess.Popen[str] = process, late: threading.Event = late) -> None:
            late.set()
            _end(process)

        timer = threading.Timer(wall, expire)
        timer.start()
        assert process.stdout is not None
        for line in process.stdout:
            try:
                figures |= json.loads(line)
            except (ValueError, TypeError):  # what a library prints
                show(line.rstrip())
        code = process.wait()
        timer.cancel()
        stopped = f"over {wall:g} s of the wall" if late.is_set() else _reason(code, limit, errors)
    return figures | ({"stopped": stopped} if stopped else {})


@contextlib.contextmanager
def _started(
    module: str, args: tuple[str, ...], limit: float, environment: Mapping[str, str]
) -> Iterator[tuple[subprocess.Popen[str], TextIO]]:
    """Yield a process that runs a module, and the file of what it says on standard error."""

    def held() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit) + 5))

    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *args], env={**os.environ, **environment},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True,
            start_new_session=True, preexec_fn=held,
        )  # fmt: skip
        try:
            yield process, errors
        finally:
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """End a process and all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _reason(code: int, limit: float, errors: TextIO) -> str:
    if code == 0:
        return ""
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"over {limit:g} s of the processor"
    errors.seek(0)
    last = [line.strip() for line in errors if line.strip()]
    return (last[-1] if last else f"ended with {code}")[:200]
