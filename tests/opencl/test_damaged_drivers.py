"""The file that names a driver is written again where it is damaged: it lies in a folder that is kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from tensorbus_opencl import drivers


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
