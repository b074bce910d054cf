"""Compiled programs on disk: whatever becomes of the files, results are right; nothing is compiled twice."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tensorbus.dtypes import definition as dt
from tensorbus.lowering.ir.builder import Builder, Launch, literal
from tensorbus.lowering.ir.index_expr import ZERO
from tensorbus_cpu.compiler import NATIVE
from tensorbus_cpu.native import kernel_batch_compiler
from tensorbus_cpu.native.compile_queue import CompileTask
from tensorbus_cpu.native.kernel_batch_compiler import KernelUnits, _runs

from error_bounds import gamma

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the compiler that counts is a script for sh")
PROGRAM = (
    f"ROUNDED = {gamma(5 + 4, 'float32')}  # of sums of five\n"
    + """
import resource, signal, sys
import numpy as np
from tensorbus import dtypes as dt, plugins
from tensorbus.backend_interface.graph import Graph, Node
from tensorbus.ops.definition import Spec, table
from tensorbus.backend_interface.compilation import CompileRequest

def apply(name, *inputs, **attrs):
    spec = table[name].specs(tuple(x.spec for x in inputs), attrs)[0]
    return Node(op=name, inputs=inputs, attrs=attrs, spec=spec)

def compiled(*names):
    x = Node(op="input", attrs={"index": 0}, spec=Spec((6, 5), dt.float32))
    made = [apply("sum", apply(name, x), axis=(1,), keepdims=False) for name in names]
    made += [apply(name, apply("add", x, x)) for name in names]
    graph = Graph(inputs=(x,), outputs=tuple(made))
    return plugins.backend("cpu").lowering().compile(CompileRequest(graph=graph, index=0))

def check(*names):
    a = np.linspace(0.1, 0.9, 30, dtype="f4").reshape(6, 5)
    out = compiled(*names)([a])
    own = [getattr(np, {"atan": "arctan"}.get(n, n)) for n in names]
    want = [f(a).sum(1) for f in own] + [f(a + a) for f in own]
    with np.errstate(all="ignore"):
        for x, y in zip(out, want):
            np.testing.assert_allclose(x, y, rtol=ROUNDED)
"""
)
NAMES = ("exp", "tanh", "sin", "cos", "sqrt", "atan", "floor", "log1p")


class Bench:
    """Processes with a cache of their own, whose compiler writes down that it was started."""

    def __init__(self, folder: Path) -> None:
        self.cache = folder / "cache"
        self.log = folder / "log"
        compiler = shutil.which("cc") or shutil.which("gcc")
        assert compiler is not None
        script = folder / "counting-cc"
        script.write_text(f'#!/bin/sh\necho run >> "{self.log}"\nexec {compiler} "$@"\n')
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        self.environment = {**os.environ, "TENSORBUS_CACHE_DIR": str(self.cache), "CC": str(script)}

    @property
    def starts(self) -> int:
        """How often the compiler was started."""
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0

    def start(self, body: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM + body], env=self.environment, text=True, stderr=subprocess.PIPE
        )

    def run(self, body: str) -> None:
        process = self.start(body)
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors

    def files(self) -> list[Path]:
        return sorted(p for p in self.cache.rglob("*") if p.is_file())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_second_process_starts_no_compiler(bench: Bench) -> None:
    bench.run(f"check('exp'); check{NAMES!r}")
    first = bench.starts
    assert first
    bench.run(f"check{NAMES!r}")
    bench.run("check('exp')")
    assert bench.starts == first


@pytest.mark.full
@pytest.mark.parametrize(
    ("kernels", "cores", "runs"),
    [(1, 4, 1), (5, 2, 1), (6, 2, 2), (32, 2, 2), (33, 2, 4), (48, 4, 4), (90, 4, 8), (40, 1, 3)],
)
def test_runs_of_the_compiler_end_together(kernels: int, cores: int, runs: int) -> None:
    assert _runs(kernels, cores) == runs


def test_many_kernels_take_few_compiler_runs(bench: Bench) -> None:
    bench.run("check('exp')")
    before = bench.starts
    bench.run(f"check{NAMES[1:]!r}")
    assert bench.starts - before < len(NAMES[1:])


@pytest.mark.full
@pytest.mark.parametrize("damage", [b"", b"\x7fELF", None])
def test_damaged_files_are_made_anew(bench: Bench, damage: bytes | None) -> None:
    bench.run("check('exp', 'tanh')")
    first = bench.starts
    for path in bench.files():
        whole = path.read_bytes()
        path.write_bytes(damage if damage is not None else whole[:-1] + bytes([whole[-1] ^ 1]))
    bench.run("check('exp', 'tanh')")
    assert bench.starts > first
    again = bench.starts
    bench.run("check('exp', 'tanh')")
    assert bench.starts == again


@pytest.mark.full
def test_missing_files_are_made_anew(bench: Bench) -> None:
    bench.run("check('exp', 'tanh')")
    for path in bench.files()[::3]:
        path.unlink()
    bench.run("check('exp', 'tanh')")


@pytest.mark.full
def test_processes_fill_one_cache_at_once(bench: Bench) -> None:
    running = [bench.start(f"check{NAMES[:4]!r}") for _ in range(3)]
    for process in running:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    first = bench.starts
    bench.run(f"check{NAMES[:4]!r}")
    assert bench.starts == first


@pytest.mark.full
def test_a_process_killed_while_it_writes_leaves_nothing_wrong(bench: Bench) -> None:
    for fresh in (1, 1, 2, 3):
        process, before = bench.start(f"check{NAMES!r}"), len(bench.files())
        while process.poll() is None and len(bench.files()) < before + fresh:
            os.sched_yield()
        process.kill()
        process.communicate()
    bench.run(f"check{NAMES!r}")


@pytest.mark.full
@pytest.mark.parametrize("room", [0, 100, 9000])
def test_a_full_disk_costs_the_cache_only(bench: Bench, room: int) -> None:
    """The cache's entries may not grow beyond ``room``; the compiler's own files may."""
    limit = f"""
from tensorbus.system.private_folders import PrivateFolder
whole = PrivateFolder._write
def full(folder, name, data):
    if len(data) > {room} and "cache-key" not in name:
        whole(folder, name, data[:{room}])
        raise OSError(28, "No space left on device")
    return whole(folder, name, data)
PrivateFolder._write = full
check('exp', 'tanh')
"""
    bench.run(limit)
    first = bench.starts
    bench.run("check('exp', 'tanh')")
    assert bench.starts > first


def test_a_cache_that_others_may_write_to_is_not_used(bench: Bench) -> None:
    bench.run("check('exp')")
    first = bench.starts
    for folder in [p for p in bench.cache.rglob("*") if p.is_dir()]:
        folder.chmod(0o777)
    bench.run("check('exp')")
    assert bench.starts > first


def _a_launch() -> Launch:
    b = Builder("tb_none")
    b.store(b.buffer("out", dt.float32, writes=True), ZERO, literal(1, dt.float32))
    return b.finish([])


def test_kernels_are_told_apart_by_what_stands_before_them(monkeypatch: pytest.MonkeyPatch) -> None:
    tools = NATIVE.tools()
    assert tools is not None
    dialect = tools.dialect(0)
    launch = _a_launch()
    before = KernelUnits(tools).unit(launch).symbol
    assert KernelUnits(tools).unit(launch).symbol == before
    other = replace(dialect, prologue=f"{dialect.prologue}\n// as another release has it")
    monkeypatch.setattr(type(tools), "dialect", lambda self, level: other)
    assert KernelUnits(tools).unit(launch).symbol != before


class _Waits:
    """Kernels, one of which the parent compiles once ``gate`` is set; nothing lies on disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gate, self.waits = threading.Event(), threading.Event()
        self.interrupt = False
        parent, compiled, result = os.getpid(), KernelUnits._compiled, CompileTask.result

        def compile_late(units: KernelUnits, *arguments: Any) -> Any:
            assert os.getpid() != parent or self.gate.wait(60)
            return compiled(units, *arguments)

        def wait(task: CompileTask[Any]) -> Any:
            self.waits.set()
            if self.interrupt:
                raise KeyboardInterrupt
            return result(task)

        monkeypatch.setattr(kernel_batch_compiler, "private_folder", lambda *_: None)
        monkeypatch.setattr(KernelUnits, "_compiled", compile_late)
        monkeypatch.setattr(CompileTask, "result", wait)
        tools = NATIVE.tools()
        assert tools is not None
        self.units = KernelUnits(tools)
        (self.symbol,), _ = self.units.symbols([_a_launch()], {})


def test_a_kernel_whose_first_wait_is_interrupted_is_there_for_the_next(
    monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    kernels = _Waits(monkeypatch)
    kernels.interrupt = True
    with pytest.raises(KeyboardInterrupt):
        kernels.units.address(kernels.symbol)
    kernels.interrupt = False
    kernels.gate.set()
    assert kernels.units.address(kernels.symbol)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_child_compiles_what_a_thread_of_its_parent_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = _Waits(monkeypatch)
    waiting = threading.Thread(target=kernels.units.address, args=(kernels.symbol,))
    waiting.start()
    assert kernels.waits.wait(60)
    child = os.fork()
    if not child:
        code = 1
        try:
            code = 0 if kernels.units.address(kernels.symbol) else 1
        finally:
            os._exit(code)
    kernels.gate.set()
    waiting.join()
    assert os.waitpid(child, 0)[1] == 0
    assert kernels.units.address(kernels.symbol)
