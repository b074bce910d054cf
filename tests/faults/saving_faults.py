"""Faults of ``tb.save``: processes killed while they save, and targets that are no plain files."""

from __future__ import annotations

import os
import random
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import tensorbus as tb

from registry import fault

_SAVES = """
import sys
import tensorbus as tb
path, size = sys.argv[1], int(sys.argv[2])
print("ready", flush=True)
for k in range(1, 1_000_000):
    tb.save({"x": tb.full((size,), k)}, path)
"""


@fault("saving.killed", trials=2, full=True)
def killed(draw: random.Random) -> None:
    """A process killed while it saves leaves a whole file, and the next save removes what it left beside.

    What another process writes meanwhile stays: its saves go on.
    """
    size = draw.choice([1, 1_000, 1_000_000])
    with tempfile.TemporaryDirectory() as folder:
        path, other = Path(folder) / "checkpoint", Path(folder) / "other"
        tb.save({"x": tb.zeros((size,))}, path)
        with _saving(other, draw.choice([1, 100_000])) as beside:
            for _ in range(draw.randint(1, 3)):
                with _saving(path, size) as process:
                    time.sleep(draw.uniform(0, 0.2))
                    process.send_signal(signal.SIGKILL)
                x = tb.load(path)["x"]
                assert x.shape == (size,)
                assert bool((x == x[0]).all())
            for k in range(20):
                tb.save({"x": tb.full((size,), k)}, path)
            assert beside.poll() is None
            beside.send_signal(signal.SIGKILL)
        tb.save({"x": tb.zeros((size,))}, path)
        left = set(os.listdir(folder)) - {path.name, other.name}
        assert not left, left


def _saving(path: Path, size: int) -> subprocess.Popen[str]:
    """Start a process that saves a tensor all the time, and wait until it does."""
    command = [sys.executable, "-c", _SAVES, str(path), str(size)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@fault("saving.targets", trials=30)
def targets(draw: random.Random) -> None:
    """Links stay links, special files stay special, an old file's mode stays, a new one is private."""
    saved = {"x": tb.full((draw.choice([0, 1, 10_000]),), draw.random())}
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(inner := Path(folder) / "inner")
        target = inner / draw.choice(["x", "a" * 255])
        asked = _linked(draw, target, Path(folder))
        trial = draw.choice([_save_new, _save_over, _save_to_pipe, _save_to_device])
        previous = os.umask(draw.choice([0o000, 0o002, 0o022, 0o027, 0o077, 0o177]))
        try:
            trial(draw, saved, asked, target)
        finally:
            os.umask(previous)
        assert os.listdir(inner) == [target.name]
        assert asked.is_symlink() == (asked != target)


def _linked(draw: random.Random, target: Path, folder: Path) -> Path:
    """Return the target, or a link to it, or one to that."""
    for k in range(draw.randint(0, 2)):
        link = folder / f"link{k}"
        link.symlink_to(draw.choice([target, os.path.relpath(target, folder)]))
        target = link
    return target


def _same(one: dict[str, tb.Tensor], other: dict[str, tb.Tensor]) -> bool:
    return {k: x.tolist() for k, x in one.items()} == {k: x.tolist() for k, x in other.items()}


def _save_new(draw: random.Random, saved: dict[str, tb.Tensor], asked: Path, target: Path) -> None:
    tb.save(saved, asked)
    os.umask(umask := os.umask(0))
    assert stat.S_IMODE(target.stat().st_mode) == 0o600 & ~umask
    target.chmod(0o600)
    assert _same(tb.load(asked), saved)


def _save_over(draw: random.Random, saved: dict[str, tb.Tensor], asked: Path, target: Path) -> None:
    target.write_bytes(b"old")
    mode = draw.randrange(0o1000)
    if os.geteuid() == 0:
        os.chown(target, draw.choice([0, 12345]), draw.choice([0, 54321]))
    target.chmod(mode)
    before = target.stat()
    tb.save(saved, asked)
    after = target.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    target.chmod(0o600)
    assert _same(tb.load(asked), saved)


def _save_to_pipe(draw: random.Random, saved: dict[str, tb.Tensor], asked: Path, target: Path) -> None:
    os.mkfifo(target)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(target.read_bytes()), daemon=True)
    reader.start()
    tb.save(saved, asked)
    reader.join(20)
    assert stat.S_ISFIFO(target.stat().st_mode)
    target.unlink()
    target.write_bytes(received[0])
    target.chmod(0o600)
    assert _same(tb.load(target), saved)


def _save_to_device(draw: random.Random, saved: dict[str, tb.Tensor], asked: Path, target: Path) -> None:
    """A node of the device behind /dev/null: the machine's own stays out of danger."""
    try:
        os.mknod(target, 0o600 | stat.S_IFCHR, os.stat(os.devnull).st_rdev)
        target.write_bytes(b"")
    except PermissionError:  # only root makes nodes, and not everywhere
        target.touch()
        return
    tb.save(saved, asked)
    assert stat.S_ISCHR(target.stat().st_mode)
