"""``tensorbus cache``: what is kept on disk, and how to be rid of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import tensorbus as tb
from tensorbus.cli.app import app
from tensorbus.system import disk_cache
from typer.testing import CliRunner


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("TENSORBUS_CACHE_DIR", str(folder))
    return folder


def filled() -> None:
    for owner, name, size in (("npu", "kernels", 1000), ("npu", "libraries", 500), ("gpu", "programs", 70)):
        folder = disk_cache.private_folder(owner, name)
        assert folder is not None
        assert disk_cache.cache_store(folder / "one", bytes(size))


def run(*words: str) -> str:
    done = CliRunner().invoke(app, ["cache", *words])
    assert done.exit_code == 0, done.output
    return done.output


def test_an_empty_cache(cache: Path) -> None:
    assert "holds nothing" in run("info")
    assert "0 bytes" in run("clear")
    assert not cache.exists()


def test_info_lists_sizes_by_kind(cache: Path) -> None:
    filled()
    data = json.loads(run("info", "--json"))
    assert data["folder"] == str(cache)
    sizes = {(kind["owner"], kind["name"]): (kind["files"], kind["nbytes"]) for kind in data["kinds"]}
    assert sizes == {
        ("gpu", "programs"): (1, 126), ("npu", "kernels"): (1, 1056), ("npu", "libraries"): (1, 556),
    }  # fmt: skip
    text = run("info")
    assert "1.7 kB" in text
    assert "libraries" in text


def test_clear_removes_one_device_or_all(cache: Path) -> None:
    filled()
    assert "126 bytes" in run("clear", "--device", "gpu")
    assert {kind.owner for kind in disk_cache.kinds() if kind.files} == {"npu"}
    run("clear")
    assert all(kind.files == 0 for kind in disk_cache.kinds())


@pytest.mark.skipif(os.name != "posix", reason="there are no permissions to look at")
def test_clear_leaves_what_is_not_the_cache_s_own(cache: Path) -> None:
    filled()
    npu = cache / "npu"
    others = [folder / "notes.txt" for folder in (cache, npu, npu / "kernels" / "deep")]
    outside = cache.parent / "outside"
    outside.mkdir(mode=0o700)
    (outside / "notes.txt").write_text("mine")
    (npu / "linked").symlink_to(outside)
    shared = npu / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    others += [outside / "notes.txt", shared / "notes.txt"]
    for path in others:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    run("clear")
    assert all(path.read_text() == "mine" for path in others)


@pytest.mark.skipif(os.name != "posix", reason="there are no permissions to look at")
def test_info_says_why_a_folder_is_left_out(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled()
    assert json.loads(run("info", "--json"))["skipped"] == []
    (cache / "npu" / "kernels").chmod(0o750)
    (cache / "gpu" / "linked").symlink_to(cache / "npu")
    message = " ".join(run("info").split())
    assert (
        f"{cache / 'npu' / 'kernels'} is open to other users; remove it, and a private one takes its place."
        in message
    )
    assert f"{cache / 'gpu' / 'linked'} is a link, which is not followed." in message
    assert "libraries" in message
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(cache).st_uid + 1)
    data = json.loads(run("info", "--json"))
    assert data["kinds"] == []
    reasons = {Path(left["folder"]).name: left["reason"] for left in data["skipped"]}
    assert reasons["libraries"] == reasons["programs"] == "belongs to another user"
    assert "holds nothing" in run("info")


def test_a_half_written_file_is_never_seen(cache: Path) -> None:
    folder = disk_cache.private_folder("npu", "kernels")
    assert folder is not None
    path = folder / "one"
    assert disk_cache.cache_store(path, b"whole")
    assert disk_cache.cache_load(path) == b"whole"
    path.write_bytes(b"who")
    with pytest.warns(RuntimeWarning, match="is damaged"):
        assert disk_cache.cache_load(path) is None
    assert disk_cache.cache_store(path, b"again")
    assert disk_cache.cache_load(path) == b"again"


def test_a_user_without_a_home_has_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for variable in ("TENSORBUS_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.setenv("XDG_STATE_HOME", os.devnull)
    assert disk_cache.private_folder("npu", "kernels") is None
    assert json.loads(run("info", "--json")) == {"folder": None, "key": None, "kinds": [], "skipped": []}
    assert "no home folder" in run("info")
    assert "0 bytes" in run("clear")
    assert tb.compile(lambda x: tb.exp(x) * 0 + 2.75)(tb.ones(3)).tolist() == [2.75] * 3
