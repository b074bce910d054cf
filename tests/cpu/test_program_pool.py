"""Results of programs come from the pool, also where what runs programs is there before the pool is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tensorbus_cpu.native.compiler_command import find

PROGRAM = """
import numpy as np
import tensorbus as tb
from tensorbus_cpu.compiler import NATIVE
from tensorbus_cpu.native.driver import driver_of

driver_of(NATIVE.tools())  # before anybody has asked for the pool
x = tb.asarray(np.ones(1 << 22, np.float32), device="cpu")
double = tb.compile(lambda x: x * 2)
double(x)
kept = NATIVE.compiler().runtime.tb_reserved()
y = double(x)
print(kept - NATIVE.compiler().runtime.tb_reserved())
"""


@pytest.mark.skipif(find() is None, reason="needs a C compiler")
def test_results_of_programs_come_from_the_pool(tmp_path: Path) -> None:
    environment = {**os.environ, "TENSORBUS_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) == 4 << 22


@pytest.mark.skipif(find() is None, reason="needs a C compiler")
def test_another_thread_lets_programs_multiply_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorbus_cpu.compiler import NATIVE
    from tensorbus_cpu.native import driver

    now = driver.driver_of(NATIVE.tools())
    if now is None:
        pytest.skip("what runs programs does not run on this Python")
    uses = []

    class Use:
        def __call__(self, *functions: object) -> None:
            uses.append(len(functions))

    products = driver.small_products

    def both(compiler: object) -> object:
        monkeypatch.setattr(now, "_use_small", None)  # as the other thread does when it is done
        return products(compiler)

    monkeypatch.setattr(now, "_use_small", Use())
    monkeypatch.setattr(driver, "small_products", both)
    now._multiply()
    assert uses == [2]
