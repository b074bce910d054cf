"""Ctrl-C at any moment: it arrives, and tensors and compiled functions are as they should be afterwards."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from registry import fault

_PATIENCE: Final = 60.0
"""Seconds after which a process is stuck that has had no processor meanwhile."""
_WORK: Final = 30.0
"""Seconds of work in which it must answer: its own processor time, since others may have the machine."""

_WORKS = """
import faulthandler, signal, sys, traceback
import numpy as np
import tensorbus as tb
faulthandler.register(signal.SIGUSR1)
def interrupt(number, frame):
    print("Ctrl-C arrives here:", *traceback.format_stack(frame, 12), sep="\\n", file=sys.stderr)
    raise KeyboardInterrupt
signal.signal(signal.SIGINT, interrupt)  # a shell's background job ignores it
device, seed, wanted = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
draw = np.random.default_rng(seed)
kept = tb.asarray(np.arange(64.0, dtype=np.float32), device=device)
step = tb.compile(lambda x: (tb.tanh(x) * 2 + 1).sum())
whole = step(kept).item()
caught = 0
while caught < wanted:
    try:
        print("ready", flush=True)  # in here, so that no Ctrl-C comes between two rounds
        number = 0
        while True:
            number += 1
            n = int(draw.integers(1, 50))
            made = tb.ones((n,), device=device) + number
            fresh = tb.compile(lambda x: x * number + 1) if number % 16 == 0 else None
            if fresh is not None:
                fresh(made)
            copied = kept.clone()
            copied += 1
            step(kept)
    except KeyboardInterrupt:
        caught += 1
        print("caught", flush=True)
signal.signal(signal.SIGINT, signal.SIG_IGN)
assert kept.tolist() == list(map(float, range(64))), kept
assert step(kept).item() == whole
assert (tb.ones((3,), device=device) * 2).tolist() == [2.0, 2.0, 2.0]
print("whole", flush=True)
"""


@fault("interrupts.arrive", trials=1, full=True)
def arrive(draw: random.Random) -> None:
    """A process that computes and compiles hears of each Ctrl-C, and computes the same afterwards."""
    device, wanted = draw.choice(["cpu", "refdev", "opencl"]), 8
    command = [sys.executable, "-c", _WORKS, device, str(draw.getrandbits(31)), str(wanted)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as run:
        for number in range(wanted):
            if (heard := _line(run)) != "ready":
                message = _end(run)
                assert number == 0, f"{device}: after Ctrl-C number {number - 1}: {heard!r} {message}"
                assert "DeviceUnavailableError" in message, message
                return
            time.sleep(draw.uniform(0, 0.2))
            run.send_signal(signal.SIGINT)
            heard = _line(run)
            assert heard == "caught", f"{device}: Ctrl-C number {number} was lost: {heard!r} {_end(run)}"
        heard = _line(run)
        assert heard == "whole", f"{device}: {heard!r} {_end(run)}"
        # Python ends so too where an ``exec`` of text was interrupted, even if the exception was handled.
        assert run.wait(_PATIENCE) in (0, -signal.SIGINT), _end(run)


def _line(run: subprocess.Popen[bytes]) -> str | None:
    """Return the next line that the process writes; None: it works on, or is stuck, without one."""
    assert run.stdout is not None
    begun, last, since = _work_of(run), -1.0, time.monotonic()
    while not select.select([run.stdout], [], [], 0.5)[0]:
        now, work = time.monotonic(), _work_of(run)
        if work != last:
            last, since = work, now
        if work > begun + _WORK or now > since + _PATIENCE:
            return None
    return run.stdout.readline().decode().strip()


def _work_of(run: subprocess.Popen[bytes]) -> float:
    """Return the processor time in seconds that a process and those that it waited for have had."""
    try:
        fields = Path(f"/proc/{run.pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it is gone, or the system tells it otherwise
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _end(run: subprocess.Popen[bytes]) -> str:
    """End the process; return what it has said of errors, and where its threads were."""
    assert run.stderr is not None
    if run.poll() is None:
        run.send_signal(signal.SIGUSR1)
        time.sleep(1)
    run.kill()
    message = run.stderr.read().decode()
    return f"exit code {run.wait()}: {message}"
