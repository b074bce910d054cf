"""Entries of the cache on disk: whole, and under their own names, or not there."""

from __future__ import annotations

from pathlib import Path

import pytest
from tensorbus.system.disk_cache import cache_load, cache_store


def test_what_was_kept_is_there(tmp_path: Path) -> None:
    assert cache_load(tmp_path / "one") is None
    assert cache_store(tmp_path / "one", b"code")
    assert cache_load(tmp_path / "one") == b"code"


@pytest.mark.parametrize("data", [b"", b"cod", b"Code", b"code."])
def test_damage_is_noticed(tmp_path: Path, data: bytes) -> None:
    assert cache_store(tmp_path / "one", b"code")
    (tmp_path / "one").write_bytes(data)
    assert cache_load(tmp_path / "one") is None


def test_an_entry_in_the_place_of_another_is_damage(tmp_path: Path) -> None:
    assert cache_store(tmp_path / "one", b"code")
    for end in ("", ".sha256"):
        (tmp_path / f"other{end}").write_bytes((tmp_path / f"one{end}").read_bytes())
    assert cache_load(tmp_path / "other") is None
    assert cache_load(tmp_path / "one") == b"code"
