"""A forked child of a process that used the device is told so, whatever it does, and computes on others."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_captured_programs_do_not_run_in_a_forked_child() -> None:
    source = """
import os, sys, warnings
import tensorbus as tb
warnings.simplefilter("ignore")
x = tb.ones((3,), device="refdev")
y = tb.ones((3,), device="cpu")
whole, broken, open_ = (
    tb.compile(lambda x: (x + 1).sum()), tb.compile(lambda x: x * x.sum().item()),
    tb.compile(lambda x: x.sum(), dynamic=True),
)
for _ in range(3):
    whole(x), whole(y), broken(x), open_(x), open_(tb.ones((5,), device="refdev"))
child = os.fork()
if child == 0:
    refused = []
    for compiled in (whole, broken, open_):
        try:
            compiled(x)
        except tb.DeviceUnavailableError as error:
            refused.append("forked" in str(error))
    os._exit(0 if refused == [True] * 3 and whole(y).item() == 6.0 else 1)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert whole(x).item() == 6.0
sys.exit(status)
"""
    done = subprocess.run([sys.executable, "-c", source], timeout=60, check=False)
    assert done.returncode == 0
