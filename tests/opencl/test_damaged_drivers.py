"""Damaged files in folders that are kept: of a driver's name, and of PyOpenCL's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tensorbus.backend_api import write_whole
from tensorbus_opencl import icd_loader as drivers


@pytest.mark.parametrize("damage", [b"", b"/lib/oth", b"\x86\xff\x00"])
def test_a_damaged_name_of_a_driver_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: bytes
) -> None:
    monkeypatch.setenv("TENSORBUS_CACHE_DIR", str(tmp_path))
    folder = drivers._folder({"one.icd": "/lib/one.so"})
    file = folder / "one.icd"
    assert file.read_bytes() == b"/lib/one.so\n"
    file.write_bytes(damage)
    assert drivers._folder({"one.icd": "/lib/one.so"}) == folder
    assert file.read_bytes() == b"/lib/one.so\n"


def test_a_full_disk_under_the_cache_hides_no_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, free = tmp_path / "cache", tmp_path / "free"
    free.mkdir()
    monkeypatch.setenv("TENSORBUS_CACHE_DIR", str(cache))
    monkeypatch.setattr(drivers.tempfile, "tempdir", str(free))
    full = [cache]

    def write(path: Path, data: bytes) -> bool:
        return not any(path.is_relative_to(folder) for folder in full) and write_whole(path, data)

    monkeypatch.setattr(drivers, "write_whole", write)
    folder = drivers._folder({"one.icd": "/lib/one.so"})
    assert folder.parent == free
    assert (folder / "one.icd").read_bytes() == b"/lib/one.so\n"
    full.append(free)
    with pytest.raises(OSError, match=r"drivers cannot be written to .*make room there, or set TMPDIR"):
        drivers._folder({"one.icd": "/lib/one.so"})


@pytest.mark.full
def test_a_damaged_cache_of_pyopencl_is_left_alone(tmp_path: Path) -> None:
    program = "import tensorbus as tb\nprint((tb.ones(3, device='opencl') + 1).tolist())"

    def run() -> tuple[str, str]:
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True,
            env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
        )  # fmt: skip
        return done.stdout, done.stderr

    assert run() == ("[2.0, 2.0, 2.0]\n", "")
    (file,) = (tmp_path / "pytools").glob("*.sqlite")
    file.write_bytes(b"SQLite format 3\0" + b"?" * 1000)
    message = run()
    assert message[0] == "[2.0, 2.0, 2.0]\n"
    assert "Remove the folder pytools" in message[1]
    assert "Traceback" not in message[1]
