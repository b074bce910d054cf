"""One pool of threads for everything that is generated, and for BLAS inside programs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import tensorbus as tb
from tensorbus_cpu.compiler import NATIVE

LARGE = 1 << 19


def results(x: tb.Tensor) -> bytes:
    return bytes((tb.exp(x) * 2.0 + x).numpy().tobytes() + tb.sum(x, axis=0).numpy().tobytes())


def test_threads_of_python_share_the_pool() -> None:
    x = tb.asarray(np.random.default_rng(0).normal(size=LARGE).astype("f4"))
    wanted = results(x)
    wrong: list[int] = []

    def work(k: int) -> None:
        wrong.extend(k for _ in range(15) if results(x) != wanted)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    before = tb.get_num_threads()
    try:
        for count in (1, 3, 2, 7, 4) * 6:
            tb.set_num_threads(count)
            assert results(x) == wanted
    finally:
        tb.set_num_threads(before)
        for t in threads:
            t.join()
    assert wrong == []


def test_many_short_jobs_follow_each_other() -> None:
    compiler = NATIVE.compiler()
    assert compiler is not None
    library = compiler.library(
        "#include <stdint.h>\n"
        "void tb_count(void *const *b, const void *p, const int64_t *r) {\n"
        "  int32_t *x = b[0];\n  for (int64_t k = r[0]; k < r[1]; ++k) x[k] += 1;\n}\n"
    )
    counts = np.zeros(1000, np.int32)
    for piece in (1, 7, 64) * 300:
        compiler.call(library.tb_count, [counts.ctypes.data], b"", (1000,), (piece,))
    assert (counts == 900).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_computes_with_threads_of_its_own() -> None:
    source = """
import os, sys, threading, warnings
import numpy as np, tensorbus as tb
warnings.simplefilter("ignore")
x = tb.asarray(np.arange(1 << 19, dtype="f4"))
f = lambda: (tb.exp(x * 1e-6) + x).numpy().tobytes()
wanted, stop = f(), []
def busy():
    while not stop:
        f()
worker = threading.Thread(target=busy)
worker.start()
codes = []
for _ in range(5):
    child = os.fork()
    if child == 0:
        os._exit(0 if all(f() == wanted for _ in range(3)) else 1)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
stop.append(1)
worker.join()
sys.exit(max(codes))
"""
    done = subprocess.run([sys.executable, "-c", source], timeout=300, check=False)
    assert done.returncode == 0


@pytest.mark.full
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.parametrize("compiler", ["", "none"])
def test_a_forked_child_runs_what_a_thread_of_the_parent_was_in(compiler: str) -> None:
    """Without products: NumPy's BLAS by itself does not survive a fork while a thread is in it."""
    source = """
import os, signal, sys, threading, warnings
import tensorbus as tb
warnings.simplefilter("ignore")
x = tb.linspace(0, 1, 160000, device="cpu").reshape((400, 400))
whole = tb.compile(lambda x: tb.softmax(tb.sin(x) * x, axis=-1).sum(0))
broken = tb.compile(lambda x: (x * 2).max().item() + x[0])
f = lambda: whole(x).numpy().tobytes() + broken(x).numpy().tobytes()
f(), f()
wanted, stop = f(), []
def busy():
    while not stop:
        f()
        tb.compile(lambda x, k=len(stop): x * k)(x)
worker = threading.Thread(target=busy)
worker.start()
codes = []
for _ in range(10):
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os._exit(0 if all(f() == wanted for _ in range(2)) else 1)
    codes.append(abs(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
stop.append(1)
worker.join()
sys.exit(max(codes))
"""
    done = subprocess.run(
        [sys.executable, "-c", source], timeout=300, check=False,
        env={**os.environ, **({"CC": compiler} if compiler else {})},
    )  # fmt: skip
    assert done.returncode == 0


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
def test_idle_threads_sleep() -> None:
    source = """
import os
from pathlib import Path
import numpy as np, tensorbus as tb
tb.set_num_threads(4)
x = tb.asarray(np.arange(1 << 20, dtype="f4"))
(x + x).numpy()
def others():  # what the system says of each other thread: its state, and how often it was given a processor
    texts = [(task / "status").read_text() for task in Path("/proc/self/task").iterdir() if task.name != own]
    return [[line for line in text.splitlines() if "State:" in line or "ctxt" in line] for text in texts]
own, quiet = str(os.getpid()), 0
now = others()
assert len(now) >= 3
while quiet < 100:  # looks in a row between which nobody ran; who goes on working is ended from outside
    before, now = now, others()
    quiet = quiet + 1 if now == before and all("(sleeping)" in thread[0] for thread in now) else 0
"""
    done = subprocess.run(
        [sys.executable, "-c", source],
        timeout=120,
        check=False,
        env={**os.environ, "TENSORBUS_NUM_THREADS": "4"},
    )
    assert done.returncode == 0
