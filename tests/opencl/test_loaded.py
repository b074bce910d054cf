"""Kernels in memory: few of many, used by threads, given back to the system."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorbus.compiler.programs import program_cache as executables
from tensorbus.dispatch.plan import invalidate
from tensorbus.errors import DeviceError

from opencl_bench import Bench

pytestmark = pytest.mark.full

OPS = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "atan2", "power", "logaddexp", "hypot")


@pytest.fixture
def few(bench: Bench) -> Iterator[Bench]:
    """The device with room for three kernels, of which plans and programs made before hold none."""
    invalidate()
    executables.clear()
    gc.collect()
    loaded = bench.runtime.compiler.loaded
    before, loaded.limit = loaded.limit, 3
    yield bench
    loaded.limit = before


def _calls(bench: Bench, rank: int) -> list[tuple[Any, Any, Any]]:
    """Return for each op what runs it, an operand and the results' bytes."""
    x = RNG.random((3,) * rank, "f4") + 1
    value = bench.put(x)
    results = [bench.prepare(op, (value, value)) for op in OPS]
    return [(run, value, bench.get(run(value, value)).tobytes()) for run in results]


RNG = np.random.default_rng(0)


def test_what_was_used_last_stays(few: Bench) -> None:
    loaded = few.runtime.compiler.loaded
    calls = _calls(few, 1)
    assert len(loaded) == 3
    before = loaded.loads
    for run, value, _ in calls[-3:] * 4:
        run(value, value)
    assert loaded.loads == before
    calls[-3][0](calls[-3][1], calls[-3][1])
    run, value, wanted = calls[0]
    assert few.get(run(value, value)).tobytes() == wanted
    assert loaded.loads == before + 1
    calls[-3][0](calls[-3][1], calls[-3][1])
    assert loaded.loads == before + 1, "the kernel that was used last was let go"
    calls[-2][0](calls[-2][1], calls[-2][1])
    assert loaded.loads == before + 2, "the kernel that was not used for longest was kept"


def test_what_is_let_go_is_gone(few: Bench) -> None:
    loaded = few.runtime.compiler.loaded
    calls = _calls(few, 2)
    gone = [weakref.ref(handle) for handle in loaded._held]
    for run, value, wanted in calls * 3:
        assert few.get(run(value, value)).tobytes() == wanted
        assert len(loaded) == 3
    assert sum(handle.kernel is not None for _, handle in loaded._known.items()) == 3
    del calls, run
    _calls(few, 3)
    gc.collect()
    assert not [ref for ref in gone if ref() is not None], "a handle outlives what could launch it"


def test_queued_work_outlives_its_kernel(few: Bench) -> None:
    big = few.put(np.ones((700, 700), "f4"))
    product = few.prepare("matmul", (big, big))
    value = product(big, big)
    for run, operand, _ in _calls(few, 4):
        run(operand, operand)
    results = [product(big, value)]
    for run, operand, _ in _calls(few, 4):
        run(operand, operand)
    assert (few.get(results[0]) == 490000).all()


def test_threads_share_few_kernels(few: Bench) -> None:
    calls = _calls(few, 1)
    wrong: list[Any] = []

    def work(number: int) -> None:
        try:
            for k in range(60):
                run, value, wanted = calls[(k * (number + 1)) % len(calls)]
                if few.get(run(value, value)).tobytes() != wanted:
                    wrong.append((number, k))
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    assert len(few.runtime.compiler.loaded) <= 3 + len(threads)


def test_source_that_does_not_compile_is_not_kept(few: Bench) -> None:
    loaded = few.runtime.compiler.loaded
    before = len(loaded)
    for _ in range(2):
        with pytest.raises(DeviceError, match="does not compile"):
            loaded.handle(few.runtime.units[0], "__kernel void f() { oops; }", "f")
    gc.collect()
    assert len(loaded) == before
    assert "f" not in {handle.name for _, handle in loaded._known.items()}


SCRIPT = """
import gc
import resource
import numpy as np
from opencl_bench import Bench
bench = Bench()
loaded = bench.runtime.compiler.loaded
loaded.limit = 4
value = bench.put(np.ones((5, 3), "f4"))
runs = [bench.prepare(op, (value,)) for op in "exp log sin cos tan tanh sinh cosh asin acos atan erf".split()]
def cycle(times):
    for _ in range(times):
        for run in runs:
            run(value)
        bench.runtime.synchronize(0)
cycle(2)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
cycle(25)
print(len(loaded), loaded.loads, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_goes_back(bench: Bench) -> None:
    """Three hundred loads take no more than a few: a kernel that stayed would add 0.4 MB at least."""
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    held, loads, kilobytes = map(int, done.stdout.split())
    assert held == 4
    assert loads >= 300
    assert kilobytes < 30_000
