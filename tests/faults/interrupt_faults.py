"""Ctrl-C at any moment: it arrives, and tensors and compiled functions are as they should be afterwards."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time

from registry import fault

_WORKS = """
import signal, sys
import numpy as np
import tensorbus as tb
device, seed, wanted = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
draw = np.random.default_rng(seed)
kept = tb.asarray(np.arange(64.0, dtype=np.float32), device=device)
step = tb.compile(lambda x: (tb.tanh(x) * 2 + 1).sum())
whole = step(kept).item()
print("ready", flush=True)
caught = 0
while caught < wanted:
    try:
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
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        first = run.stdout.readline()
        if not first:
            said = run.stderr.read()
            assert "DeviceUnavailableError" in said, said
            return
        for _ in range(wanted):
            time.sleep(draw.uniform(0, 0.2))
            run.send_signal(signal.SIGINT)
            heard = run.stdout.readline()
            assert heard == "caught\n", f"{device}: {heard!r} {run.stderr.read()}"
        out, said = run.communicate(timeout=120)
    assert out == "whole\n", f"{device}: {said}"
    assert run.returncode == 0, f"{device}: {said}"
