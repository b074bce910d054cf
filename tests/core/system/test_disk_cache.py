"""Entries of the cache on disk: this user's own, whole, and under their own names, or not there."""

from __future__ import annotations

import os
import signal
import stat
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from tensorbus.system import build_folder as building
from tensorbus.system import cache_key, disk_cache
from tensorbus.system.disk_cache import cache_load, cache_store, private_folder
from tensorbus.system.private_folders import PrivateFolder, safe_by_path

posix = pytest.mark.skipif(os.name != "posix", reason="there are no permissions to look at")
NOBODY = 65534


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, with a key of its own, of which nobody has been warned."""
    monkeypatch.setenv("TENSORBUS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(disk_cache, "_warned", set())
    return tmp_path / "cache"


@pytest.fixture
def entry(base: Path) -> Path:
    """Where an entry lies."""
    folder = private_folder("npu", "kernels")
    assert folder == base / "npu" / "kernels"
    return folder / "one"


def test_what_was_kept_is_there(entry: Path) -> None:
    assert cache_load(entry) is None
    for data in (b"", b"code", bytes(range(256)) * 999):
        assert cache_store(entry, data)
        assert cache_load(entry) == data
    assert [path.name for path in entry.parent.iterdir()] == ["one"]


@pytest.mark.parametrize("part", [*"all data mark digest end hole".split(), "other place", "other kind"])
def test_a_changed_entry_is_set_aside_with_a_warning_and_made_again(entry: Path, part: str) -> None:
    assert cache_store(entry, b"code")
    whole = entry.read_bytes()
    if part.startswith("other"):
        moved = entry.with_name("two") if part == "other place" else private_folder("npu", "programs")
        assert moved is not None
        entry.rename(entry := moved / "one" if moved.is_dir() else moved)
    elif part == "hole":
        os.truncate(entry, 1 << 40)
    else:
        changed = bytearray({"all": b"", "end": whole[:-1]}.get(part, whole))
        if part in (places := {"data": 0, "mark": 4, "digest": -1}):
            changed[places[part]] ^= 1
        entry.write_bytes(changed)
    with pytest.warns(RuntimeWarning, match=r"is damaged, or was changed .* set aside as .*\.rejected"):
        assert cache_load(entry) is None
    assert entry.with_name(f"{entry.name}.rejected").exists()
    assert cache_load(entry) is None
    assert cache_store(entry, b"code")
    assert cache_load(entry) == b"code"


def test_entries_of_another_key_or_release_are_made_again_without_a_word(
    entry: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert cache_store(entry, b"code")
    with monkeypatch.context() as other:
        other.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
        assert cache_load(entry) is None
    assert cache_load(entry) == b"code"
    entry.write_bytes(b"code")  # the digest lay beside it
    entry.with_name("one.sha256").write_bytes(bytes(32))
    assert cache_load(entry) is None
    assert not entry.with_name("one.sha256").exists()


def open_to_others(folder: Path) -> None:
    folder.chmod(0o777)


def of_another_user(folder: Path) -> None:
    os.chown(folder, NOBODY, NOBODY)


def a_link(folder: Path) -> None:
    folder.rename(folder.with_name("real"))
    folder.symlink_to(folder.with_name("real"))


@posix
@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("fault", [open_to_others, of_another_user, a_link])
def test_nothing_is_taken_from_below_a_folder_that_others_could_have_changed(
    entry: Path, fault: Callable[[Path], None], depth: int
) -> None:
    if fault is of_another_user and os.geteuid() != 0:
        pytest.skip("only root can give folders away")
    assert cache_store(entry, b"code")
    fault(entry.parents[2 - depth])
    if fault is a_link and depth == 0:  # the base may be reached by links: it is looked at itself
        assert cache_load(entry) == b"code"
        return
    assert cache_load(entry) is None
    assert not cache_store(entry, b"else")
    if fault is a_link:
        assert private_folder("npu", "kernels") is None
    else:
        with pytest.warns(RuntimeWarning, match="compiled code is not kept on disk"):
            assert private_folder("npu", "kernels") is None
        assert private_folder("npu", "kernels") is None


@posix
@pytest.mark.parametrize("fault", ["a link", "a pipe", "writable", "foreign"])
def test_a_file_that_others_could_have_written_is_not_read(entry: Path, fault: str) -> None:
    assert cache_store(entry, b"code")
    if fault == "a link":
        entry.rename(entry.with_name("two"))
        entry.symlink_to("two")
        assert cache_load(entry) is None
        return
    if fault == "a pipe":
        entry.unlink()
        os.mkfifo(entry)
    elif fault == "writable":
        entry.chmod(0o666)
    elif os.geteuid() != 0:
        pytest.skip("only root can give files away")
    else:
        os.chown(entry, NOBODY, NOBODY)
    with pytest.warns(RuntimeWarning, match="it is not used, and is made again"):
        assert cache_load(entry) is None
    assert cache_store(entry, b"code")
    assert cache_load(entry) == b"code"


@posix
def test_a_sticky_folder_of_all_users_can_be_the_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    monkeypatch.setenv("TENSORBUS_CACHE_DIR", str(shared))
    folder = private_folder("npu", "kernels")
    assert folder is not None
    assert cache_store(folder / "one", b"code")
    assert cache_load(folder / "one") == b"code"
    assert safe_by_path(folder)
    shared.chmod(0o777)
    assert cache_load(folder / "one") is None
    assert not safe_by_path(folder)


@posix
def test_the_key_is_secret(base: Path, entry: Path, tmp_path: Path) -> None:
    assert cache_store(entry, b"code")
    path = tmp_path / "state" / "tensorbus" / "cache-key"
    assert cache_key.key_path() == path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    first = path.read_bytes()
    for damage in ("mode", "size", "hole"):
        cache_key._known.clear()
        assert cache_load(entry) == b"code"
        if damage == "mode":
            path.chmod(0o644)
        elif damage == "hole":
            os.truncate(path, 1 << 40)
        else:
            path.write_bytes(b"short")
        cache_key._known.clear()
        with pytest.warns(RuntimeWarning, match="a new key is made"):
            assert cache_load(entry) is None
        assert path.read_bytes() != first
        assert len(path.read_bytes()) == 32
        assert cache_store(entry, b"code")


def test_a_user_without_a_home_has_the_key_in_the_cache(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", os.devnull)
    folder = private_folder("npu", "kernels")
    assert folder is not None
    assert cache_store(folder / "one", b"code")
    assert cache_key.key_path() == base / "cache-key"
    cache_key._known.clear()
    assert cache_load(folder / "one") == b"code"


@posix
def test_what_killed_compilers_leave_is_removed_later(base: Path) -> None:
    with building.build_folder("npu") as inner:
        (inner.path / "source.c").write_text("int x;")
        (left := base / "npu" / "builds" / "0123").mkdir(mode=0o700)
        (left / "ccX1.s").write_text("killed")
        os.utime(left, (0, 0))
        (young := left.with_name("4567")).mkdir(mode=0o700)
        os.utime(next(p for p in left.parent.iterdir() if p not in (left, young)), (0, 0))  # in use: locked
        with PrivateFolder(base, ("npu", building.NAME)) as folder:
            building.sweep(folder)
        assert not left.exists()
        assert young.exists()
        assert (inner.path / "source.c").read_text() == "int x;"
        assert inner.environment["TMPDIR"] == str(inner.path)
    assert [path.name for path in left.parent.iterdir()] == ["4567"]


@posix
def test_a_compiler_that_never_returns_is_ended_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORBUS_COMPILER_TIMEOUT", "0.3")
    os.mkfifo(tmp_path / "held")
    reader = os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(TimeoutError, match=r"did not return within 0.3 s \(TENSORBUS_COMPILER_TIMEOUT\)"):
        building.run_compiler(["sh", "-c", f"sleep 1000 > {tmp_path}/held & wait"])
    with os.fdopen(reader, "rb") as held:
        os.set_blocking(reader, True)
        assert held.read() == b""  # nobody holds the other end any more
    monkeypatch.setenv("TENSORBUS_COMPILER_TIMEOUT", "0")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        done = building.run_compiler(["sh", "-c", r"printf 'a\377b' >&2; cat; exit 3"], text="text" * 100_000)
    assert (done.returncode, done.stdout, done.stderr) == (3, "text" * 100_000, "a\ufffdb")
    assert "TENSORBUS_COMPILER_TIMEOUT='0' is ignored" in str(caught[0].message)


@posix
def test_what_a_compiler_leaves_running_is_not_waited_for(tmp_path: Path) -> None:
    """As the server that a compiler's cache starts: it has the pipes that the compiler printed to."""
    script = (
        f"sleep 1000 & echo $! > {tmp_path}/left; cat > /dev/null; printf text; printf errors >&2; exit 5"
    )
    done = building.run_compiler(["sh", "-c", script], text="input")
    try:
        assert (done.returncode, done.stdout, done.stderr) == (5, "text", "errors")
    finally:
        os.kill(int((tmp_path / "left").read_text()), signal.SIGKILL)


@posix
def test_of_what_a_compiler_prints_a_megabyte_is_kept() -> None:
    done = building.run_compiler(["sh", "-c", "head -c 3000000 /dev/zero; echo late >&2"], text="never read")
    assert (len(done.stdout), done.stderr) == (1 << 20, "late\n")
