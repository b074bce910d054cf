"""Faults of ``tb.save``: processes that are killed while they save."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import tensorbus as tb

from registry import fault

_SAVES = """
import sys
import tensorbus as tb
path, size = sys.argv[1], int(sys.argv[2])
print("ready", flush=True)
for k in range(1, 1_000_000):
    tb.save({"x": tb.full((size,), k)}, path)
"""


@fault("saving.killed", trials=2)
def killed(draw: random.Random) -> None:
    """A process killed while it saves leaves the whole old file or the whole new one."""
    size = draw.choice([1, 1_000, 1_000_000])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint"
        tb.save({"x": tb.zeros((size,))}, path)
        with subprocess.Popen(
            [sys.executable, "-c", _SAVES, str(path), str(size)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            time.sleep(draw.uniform(0, 0.2))
            process.send_signal(signal.SIGKILL)
        x = tb.load(path)["x"]
        assert x.shape == (size,)
        assert bool((x == x[0]).all())
