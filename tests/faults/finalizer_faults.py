"""Ctrl-C while values are freed: it arrives, and leaves the device's memory counted right."""

from __future__ import annotations

import random

from registry import child, fault

_INTERRUPTED = """
import gc, os, random, signal, sys, threading, time
import tensorbus as tb

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
device, seed, times = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
draw, arrived, lost, ready = random.Random(seed), 0, [], threading.Event()
sys.unraisablehook = lambda x: lost.append(f"{x.exc_type.__name__} in {x.object!r}")
x = tb.ones(64 if device != "cpu" else 1 << 16, device=device)
(x + x).tolist()
gc.collect()
in_use = tb.Device(device, 0).memory_stats().allocated

def work():
    for _ in range(100):
        y = x + x
        del y
    (x + x).tolist()

def send():
    for _ in range(times):
        ready.wait()
        ready.clear()
        time.sleep(draw.uniform(0, 0.01))
        before = arrived
        os.kill(os.getpid(), signal.SIGINT)
        end = time.process_time() + 30
        while arrived == before:
            if time.process_time() > end:
                print("lost:", lost, file=sys.stderr, flush=True)
                os._exit(3)
            time.sleep(0.0005)

thread = threading.Thread(target=send)
thread.start()
while arrived < times:
    try:
        ready.set()  # from here on it is handled
        while True:
            work()
    except KeyboardInterrupt:
        arrived += 1
thread.join()
assert not lost, lost
tb.Device(device, 0).synchronize()
assert (x + x).tolist() == [2.0] * x.size
gc.collect()
now = tb.Device(device, 0).memory_stats().allocated
counted = device != "cpu"  # whose memory is the process's, with Python's own
assert now == in_use if counted else now < in_use + times * x.nbytes // 4, (now, in_use)
"""


def _interrupted(device: str, draw: random.Random) -> None:
    done = child(_INTERRUPTED, device, str(draw.randrange(1 << 30)), "150", timeout=900)
    assert done.returncode == 0, done.stderr


@fault("finalizers.refdev", trials=1, full=True, device="refdev")
def refdev(draw: random.Random) -> None:
    """Ctrl-C while values of refdev are made and freed."""
    _interrupted("refdev", draw)


@fault("finalizers.opencl", trials=1, full=True, device="opencl")
def opencl(draw: random.Random) -> None:
    """Ctrl-C while values of opencl are made and freed."""
    _interrupted("opencl", draw)


@fault("finalizers.cpu", trials=1, full=True, device="cpu")
def cpu(draw: random.Random) -> None:
    """Ctrl-C while values of cpu are made and freed."""
    _interrupted("cpu", draw)
