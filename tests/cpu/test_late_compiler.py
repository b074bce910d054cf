"""Kernels are compiled while Python goes on: what the compiler says comes with the first run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tensorbus as tb
from tensorbus_cpu.native.kernel_batch_compiler import KernelUnit, _shared_out

FAILING = """
import tensorbus as tb
from tensorbus_cpu.compiler import CCompiler

build = CCompiler.build

def failing(self, source, options):
    if "-fno-tree-loop-distribution" in options:
        raise tb.errors.DeviceError("the compiler has a bad day")
    return build(self, source, options)

@tb.compile
def f(x):
    return x * 2.5 + 0.25

x = tb.ones((5,))
CCompiler.build = failing
for _ in range(2):
    try:
        f(x)
    except tb.errors.DeviceError as error:
        print(error)
CCompiler.build = build
print(f(x).tolist(), f(x).tolist(), len(f.replays))
"""


@pytest.mark.skipif(
    tb.device("cpu").properties.extra.get("compiler") is None, reason="there is no C compiler"
)
def test_a_compiler_that_fails_is_told_each_time_and_asked_anew(tmp_path: Path) -> None:
    env = {**os.environ, "TENSORBUS_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", FAILING], env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    right = [2.75] * 5
    assert done.stdout.splitlines() == [*["the compiler has a bad day"] * 2, f"{right} {right} 1"]


def test_kernels_are_shared_out_by_length() -> None:
    units = [KernelUnit(symbol=str(n), helpers={}, text="x" * n) for n in (5, 40, 10, 20, 30, 15)]
    groups = _shared_out(units, 3)
    assert sorted(u.symbol for group in groups for u in group) == sorted(u.symbol for u in units)
    assert [sum(len(u.text) for u in group) for group in groups] == [40, 40, 40]
