"""What programs do while the interpreter ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import atexit
import tensorbus as tb
x = tb.ones((300, 300), device="cpu").requires_grad_()
tb.compile(lambda x: tb.sin(x).sum())(x)

def last():
    for _ in range(2):
        print(*[tb.compile(f)(x).sum().item() for f in (lambda x: x * 3 - 1, lambda x: tb.exp(x - x))])

atexit.register(last)
"""

LAST_ARRAYS = """
import gc
import numpy as np
import tensorbus as tb
from tensorbus_cpu import memory
from tensorbus_cpu.compiler import NATIVE

assert NATIVE.compiler() is not None
array = memory.empty((300, 300), "f4")
assert np._core.multiarray.get_handler_name(array) == "tensorbus"
memory.use_pool.__code__ = (lambda: None).__code__  # as modules are cleared at the end
gc.collect()
del array
print(memory.empty((3,), "f4").size)
"""


def test_programs_are_compiled_while_the_interpreter_ends(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=300,
        env={**os.environ, "TENSORBUS_CACHE_DIR": str(tmp_path)},
    )  # fmt: skip
    assert done.stdout.splitlines() == ["180000.0 90000.0"] * 2, done.stderr
    assert not done.stderr
    assert done.returncode == 0


def test_arrays_outlive_the_code_that_set_their_allocator(tmp_path: Path) -> None:
    """NumPy compares the name of its capsule whenever an array is let go: the text must be there still."""
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", LAST_ARRAYS], capture_output=True, text=True, timeout=300,
        env={**os.environ, "TENSORBUS_CACHE_DIR": str(tmp_path), "PYTHONMALLOC": "debug"},
    )  # fmt: skip
    assert "mem_handler" not in done.stderr, done.stderr
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
