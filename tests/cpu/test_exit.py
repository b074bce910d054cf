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


def test_programs_are_compiled_while_the_interpreter_ends(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=300,
        env={**os.environ, "TENSORBUS_CACHE_DIR": str(tmp_path)},
    )  # fmt: skip
    assert done.stdout.splitlines() == ["180000.0 90000.0"] * 2, done.stderr
    assert not done.stderr
    assert done.returncode == 0
