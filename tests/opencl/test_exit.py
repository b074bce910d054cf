"""A program that ends while its threads use the device."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import atexit, threading
import tensorbus as tb
x = tb.ones((300, 300), device="opencl")
started = threading.Semaphore(0)

def work():
    started.release()
    while True:
        (x @ x).sum().item()

for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
for _ in range(2):
    started.acquire()
atexit.register(lambda: print((x + 1).sum().item()))
"""


@pytest.mark.opencl
def test_daemon_threads_at_work_do_not_abort_the_end_of_the_program() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "180000.0\n", "")
