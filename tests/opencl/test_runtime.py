"""The runtime of the opencl device: memory, programs on disk, drivers, queues, threads."""

from __future__ import annotations

import gc
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorbus.backend_interface.capabilities import SupportsStreams
from tensorbus.backend_interface.protocols import Runtime
from tensorbus.dtypes import definition as dt
from tensorbus.errors import DeviceError
from tensorbus.lowering.ir.builder import Launch
from tensorbus.lowering.ir.loop_ir import LoopKernel

from opencl_bench import Bench


def test_it_keeps_the_contract(bench: Bench) -> None:
    runtime: Runtime = bench.runtime
    assert isinstance(runtime, SupportsStreams)
    assert runtime.device_count() >= 1
    properties = runtime.properties(0)
    assert properties.name
    assert properties.memory
    assert dt.float32 in properties.dtypes
    assert dt.float8_e5m2 in properties.dtypes


def test_memory_is_counted_and_reused(bench: Bench) -> None:
    runtime = bench.runtime
    gc.collect()
    before = runtime.memory_stats(0)
    x = bench.put(np.zeros(1 << 20, "f4"))
    held = runtime.memory_stats(0)
    assert held.allocated - before.allocated == 1 << 22
    runtime.reset_peak_memory_stats(0)
    assert runtime.memory_stats(0).peak == held.allocated
    memory = x.buffer.memory.int_ptr
    del x
    assert runtime.memory_stats(0).allocated == before.allocated
    y = bench.put(np.zeros(1 << 20, "f4"))
    assert y.buffer.memory.int_ptr == memory
    del y
    runtime.units[0].pool.trim()
    assert runtime.memory_stats(0).reserved == 0


def test_a_value_outlives_the_name_of_its_source(bench: Bench) -> None:
    """A block goes back to the pool while work on it is queued, and is handed out again: order saves it."""
    big = bench.put(np.ones((1000, 1000), "f4"))
    product = bench.prepare("matmul", (big, big))
    results = [bench.prepare("add", (v, v))(v, v) for v in (product(big, big) for _ in range(20))]
    for value in results:
        assert (bench.get(value) == 2000).all()


def test_build_errors_show_the_source(bench: Bench) -> None:
    launch = Launch(kernel=LoopKernel("wrong", (), (), ()), values=(), grid=(1,))
    with pytest.raises(DeviceError, match=r"(?s)does not compile.*   2   oops;"):
        bench.runtime.compiler.prepare("__kernel void wrong() {\n  oops;\n}\n", launch, 0)


SCRIPT = """
import warnings
import numpy as np
from opencl_bench import Bench
bench = Bench()
with warnings.catch_warnings(record=True, action="always", category=RuntimeWarning) as damages:
    assert (bench.run("subtract", np.full(5, 3, "i4"), np.full(5, 1, "i4")) == 2).all()
assert all("is damaged" in str(damage.message) for damage in damages), damages
print(bench.runtime.compiler.built, len(damages))
"""


def _process(folder: Path, **changes: str) -> str:
    environment = {**os.environ, "TENSORBUS_CACHE_DIR": str(folder), **changes}
    path = [str(Path(__file__).parent), *filter(None, sys.path)]
    environment["PYTHONPATH"] = os.pathsep.join(path)
    for name in ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH"):
        environment.pop(name, None)
    environment.update(changes)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.full
def test_programs_are_kept_on_disk(bench: Bench, tmp_path: Path) -> None:
    assert _process(tmp_path) == "1 0"
    assert _process(tmp_path) == "0 0"
    (files,) = (tmp_path / "opencl" / "programs").glob("*.bin")
    assert stat.S_IMODE((tmp_path / "opencl" / "programs").stat().st_mode) == 0o700
    data = files.read_bytes()
    for damaged in (b"", data[: len(data) // 2], data[:40] + b"x" + data[41:]):
        files.write_bytes(damaged)
        assert _process(tmp_path) == "1 1"
        assert files.read_bytes()[:32] == data[:32] or len(files.read_bytes()) > 1000
    assert _process(tmp_path) == "0 0"


def test_without_a_disk_nothing_is_kept(bench: Bench, tmp_path: Path) -> None:
    place = tmp_path / "a file"
    place.write_text("in the way")
    assert _process(place).startswith("1 ")


def test_queues_and_events(bench: Bench) -> None:
    runtime = bench.runtime
    x = bench.put(np.ones((500, 500), "f4"))
    run = bench.prepare("matmul", (x, x))
    side = runtime.create_stream(0)
    start = runtime.record_event(None, 0)
    y = run(x, x)
    ready = runtime.record_event(None, 0)
    before = runtime.use_stream(side, 0)
    try:
        runtime.wait_event(ready, None, 0)
        z = run(y, x)
        end = runtime.record_event(None, 0)
        runtime.synchronize_stream(side, 0)
        np.testing.assert_array_equal(bench.get(z), np.full((500, 500), 250000))
    finally:
        runtime.use_stream(before, 0)
    runtime.synchronize_event(end, 0)
    assert runtime.event_done(end, 0)
    assert 0 < runtime.elapsed_time(start, end, 0) < 60000


def test_many_threads_use_one_kernel(bench: Bench) -> None:
    run = bench.prepare("add", (bench.put(np.zeros(3, "f4")),) * 2)
    wrong: list[Any] = []

    def work(number: int) -> None:
        x = bench.put(np.full(1000 + number, number, "f4"))
        for _ in range(200):
            y = run(run(x, x), 1.0)
            if number % 2:
                y = run(y, x)
        if not (bench.get(y) == number * (3 if number % 2 else 2) + 1).all():
            wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_the_loader_is_shown_every_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyopencl", reason="the opencl device needs PyOpenCL")
    from tensorbus_opencl import icd_loader as drivers

    monkeypatch.setenv("TENSORBUS_CACHE_DIR", str(tmp_path))
    system = tmp_path / "vendors"
    system.mkdir()
    (system / "beside.icd").write_text("libbeside.so\n")
    (system / "libbeside.so").write_text("")
    (system / "named.icd").write_text("libnamed.so.1\n")
    monkeypatch.setattr(drivers, "_system_files", lambda: iter(sorted(system.glob("*.icd"))))
    environment: dict[str, str] = {}
    drivers.set_up(environment)
    folder = Path(environment["OCL_ICD_VENDORS"])
    assert environment["OPENCL_VENDOR_PATH"] == str(folder)
    assert (folder / "beside.icd").read_text() == f"{system / 'libbeside.so'}\n"
    assert (folder / "named.icd").read_text() == "libnamed.so.1\n"
    assert (folder / "tensorbus-intel.icd").exists() == (drivers.intel_library() is not None)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    chosen = {"OCL_ICD_VENDORS": "/mine"}
    drivers.set_up(chosen)
    assert chosen == {"OCL_ICD_VENDORS": "/mine"}
