"""Global state that compiled functions depend on: modes, defaults, clocks, files."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from time import perf_counter_ns

import pytest
import tensorbus as tb
from tensorbus import plugins


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Put back what the tests leave."""
    yield
    tb.set_default_dtype(tb.float32)
    tb.set_default_device("cpu")
    tb.set_matmul_precision("highest")


def test_grad_mode_that_a_call_leaves() -> None:
    weight = tb.ones((2,)).requires_grad_()

    @tb.compile
    def f(x: tb.Tensor) -> tb.Tensor:
        y = x * weight
        tb.set_grad_enabled(True)
        with tb.set_grad_enabled(False):
            return y

    with tb.no_grad():
        assert not f(tb.ones((2,))).requires_grad
        assert tb.is_grad_enabled()
        assert f(tb.ones((2,))).requires_grad


def test_a_default_dtype_that_a_call_leaves() -> None:
    @tb.compile
    def f() -> tb.Tensor:
        x = tb.ones((2,))
        tb.set_default_dtype(tb.float64)
        return x

    assert [f().dtype for _ in range(3)] == [tb.float32, tb.float64, tb.float64]


def test_a_default_device_that_a_call_leaves() -> None:
    @tb.compile
    def f() -> tb.Tensor:
        x = tb.ones((2,))
        tb.set_default_device("refdev")
        return x

    assert [f().device.type for _ in range(3)] == ["cpu", "refdev", "refdev"]


def test_the_precision_of_products_is_read_and_left() -> None:
    read = tb.compile(lambda x: (x + 1, tb.get_matmul_precision())[1])
    left = tb.compile(lambda x: (x + 1, tb.set_matmul_precision("high"))[0])
    for precision in ("highest", "highest", "medium", "medium"):
        tb.set_matmul_precision(precision)
        assert read(tb.ones((2,))) == precision
        left(tb.ones((2,)))
        assert tb.get_matmul_precision() == "high"


def test_files_are_written_and_read_at_each_call(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    write = tb.compile(lambda x: (x + 1, tb.save({"x": x}, path))[0])
    read = tb.compile(lambda x: x + tb.load(path)["x"])
    for k in range(4):
        write(tb.full((2,), float(k)))
        assert read(tb.ones((2,))).tolist() == [k + 1.0, k + 1.0]


def test_the_time_is_asked_at_each_call() -> None:
    compiled = tb.compile(lambda x: x + datetime.now().microsecond)
    compiled(tb.ones((1,)))
    assert not compiled.replays


def test_a_clock_that_c_code_calls() -> None:
    clock, times = partial(perf_counter_ns), defaultdict(perf_counter_ns)
    asked = tb.compile(lambda x: (x + 1, clock())[1])
    compiled = tb.compile(lambda x, key: (x + 1, times[key])[1])
    assert len({asked(tb.ones((2,))) for _ in range(4)}) == 4
    assert len({compiled(tb.ones((2,)), key) for key in "abcd"}) == 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_function_that_forks_returns_in_both_processes() -> None:
    source = """
import os, sys
import tensorbus as tb
def forks(x):
    global child
    child = os.fork()
    return x + 1
found = tb.compile(forks)(tb.ones(())).item()
if child == 0:
    os._exit(0 if found == 2.0 else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", source], timeout=300, check=False)
    assert done.returncode == 0


def test_devices_change_while_another_thread_compiles() -> None:
    stop: list[bool] = []

    def compiles() -> None:
        while not stop:
            _ = [tb.compile(abs) for _ in range(100)]

    retained = [tb.compile(abs) for _ in range(500)]
    worker = threading.Thread(target=compiles)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        worker.start()
        for _ in range(1000):
            plugins.retry("cpu")
    finally:
        stop.append(True)
        worker.join()
        sys.setswitchinterval(before)
    assert retained[0](tb.asarray(-1.0)).item() == 1.0


VERBOSE = False


def test_modules_of_the_standard_library_that_code_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python need not run what only names them, in branches that are not taken say."""

    @tb.compile
    def f(x: tb.Tensor) -> tb.Tensor:
        if VERBOSE:
            print("here", file=sys.stderr)
        if sys.maxsize < 99:
            warnings.warn("how old", stacklevel=1)
        return x + 1 if sys.platform == "amiga" else x * 2

    x = tb.ones((3,))
    for _ in range(3):
        assert f(x).tolist() == [2, 2, 2]
    assert tb.compile.explain(f)(x).reason is None
    monkeypatch.setattr(sys, "platform", "amiga")
    monkeypatch.setattr(sys, "stderr", None)
    assert f(x).tolist() == [2, 2, 2]
    assert f(x + 1).tolist() == [3, 3, 3]


@pytest.mark.parametrize("name", ["modules", "argv"])
def test_what_python_itself_changes_of_such_modules(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    @tb.compile
    def f(x: tb.Tensor) -> tb.Tensor:
        retained = sys.modules if name == "modules" else sys.argv
        return x * 2 if "nothing" in retained else x

    assert [f(tb.ones(())).item() for _ in range(3)] == [1, 1, 1]
    if name == "modules":
        monkeypatch.setitem(sys.modules, "nothing", sys)
    else:
        monkeypatch.setattr(sys, "argv", [*sys.argv, "nothing"])
    assert f(tb.ones(())).item() == 2


def test_attributes_by_names_that_stand_in_the_code() -> None:
    """The rest of what an object, and code's module, holds does not count then."""

    class Block(tb.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shortcut = None
            self.other = threading.Lock()

        def forward(self, x: tb.Tensor) -> tb.Tensor:
            if hasattr(self, "shortcut") and getattr(self, "scale", None) is None and not hasattr(sys, "no"):
                return x * 2
            return x * getattr(self, "scale", 5)

    block = Block()
    model = tb.compile(block)
    x = tb.ones((2,))
    assert [model(x).tolist() for _ in range(3)] == [[2, 2]] * 3
    assert tb.compile.explain(model)(x).reason is None
    block.scale = 3
    assert [model(x).tolist() for _ in range(2)] == [[3, 3]] * 2
    del block.scale
    assert model(x).tolist() == [2, 2]
    del block.shortcut
    assert model(x).tolist() == [5, 5]


@pytest.mark.parametrize("wanted", ["first", "second"])
def test_attributes_by_names_that_are_computed(wanted: str) -> None:
    class Two:
        first, second = 1, 2

    two, asked = Two(), [wanted]

    @tb.compile
    def f(x: tb.Tensor) -> tb.Tensor:
        return x * getattr(two, asked[0] if asked else "first")

    x = tb.ones(())
    assert f(x).item() == getattr(two, wanted)
    setattr(two, wanted, 7)
    assert f(x).item() == 7
    asked.clear()
    assert f(x).item() == two.first
