"""Faults of the cache of compiled code: it is swapped, its entries change, compiling processes are killed.

The attacker may write to the folder that the cache lies in, and has a double of the cache whose libraries
leave a mark when they are loaded. It is another user where the tests run as root.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from error_bounds import gamma
from registry import child, fault

_NOBODY: Final = 65534
_END_BYTES: Final = 56
"""What an entry ends with; see ``disk_cache``."""
_EVIL: Final = """
#include <stdio.h>
__attribute__((constructor)) void come(void) {{ fclose(fopen("{mark}", "w")); }}
"""
_SWAP: Final = """
import itertools, os, sys, time
cache, evil, away, user = *sys.argv[1:4], int(sys.argv[4])
if user:
    os.setgid(user), os.setuid(user)
print(flush=True)
moves = (cache, away), (evil, cache), (cache, evil), (away, cache)
for number, (one, other) in enumerate(itertools.cycle(moves)):
    try:
        os.rename(one, other)
    except OSError:  # the victim has made a new one meanwhile
        pass
    if number % 33 == 0:
        time.sleep(0.0005)  # after another of the moves each time; see _LOADS
"""
_LOADS: Final = """
import sys, time, warnings
from pathlib import Path
from tensorbus.system.disk_cache import cache_store, cached_library, private_folder
warnings.simplefilter("ignore")
if sys.argv[1] == "store":
    assert cache_store(private_folder("npu", "kernels") / "one.so", Path(sys.argv[2]).read_bytes())
else:
    # Where processors are few, the attacker stands still while this works: hundreds of tries in a
    # row find one state of the four. So both rest at times, and only this process's own time counts.
    loaded, refused, start = 0, 0, time.monotonic()
    while time.monotonic() < start + 3 or not (loaded and refused) and time.process_time() < 20:
        library = cached_library(Path(sys.argv[2]) / "npu" / "kernels" / "one.so")
        loaded += library is not None and library.genuine()
        refused += library is None
        time.sleep(0.0001)
    assert loaded and refused, (loaded, refused)
"""
_ROUNDED: Final = gamma(5 + 4, "float32")
_COMPILES: Final = f"""
import sys, warnings
import numpy as np
import tensorbus as tb
warnings.simplefilter("ignore")
x = np.linspace(0.1, 0.9, 30, dtype="f4").reshape(6, 5)
from tensorbus_cpu.compiler import NATIVE
for name in sys.argv[1:]:
    own = getattr(tb, name)
    f = tb.compile(lambda x: tb.sum(own(x) * 2.5 + x, axis=1))
    expected = (getattr(np, name)(x) * 2.5 + x).sum(1)
    for _ in range(2):
        np.testing.assert_allclose(f(tb.asarray(x, device="cpu")).numpy(), expected, rtol={_ROUNDED})
assert NATIVE.working is not None, NATIVE.reason
"""
_FUNCTIONS: Final = ("exp", "tanh", "sin", "cos", "sqrt", "floor")
_COMPILER: Final = shutil.which("cc")


@contextmanager
def _folder() -> Iterator[Path]:
    """Give a folder that every user can reach, with one inside that every user can write to."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "shared").mkdir()
        (folder / "shared").chmod(0o777)
        yield folder


def _environment(folder: Path) -> dict[str, str]:
    return {"TENSORBUS_CACHE_DIR": str(folder / "shared" / "cache"), "XDG_STATE_HOME": str(folder / "state")}


def _library(folder: Path, source: str) -> bytes:
    assert _COMPILER is not None
    (folder / "one.c").write_text(source)
    output = folder / "one.so"
    subprocess.run([_COMPILER, "-shared", "-fPIC", str(folder / "one.c"), "-o", str(output)], check=True)
    return output.read_bytes()


@contextmanager
def _swapped(folder: Path) -> Iterator[None]:
    """Swap the filled cache for its double all the time; afterwards, no library of the double was loaded."""
    shared = folder / "shared"
    cache, evil, mark = shared / "cache", shared / "evil", shared / "mark"
    library = _library(folder, _EVIL.format(mark=mark))
    shutil.copytree(cache, evil)
    user = _NOBODY if os.geteuid() == 0 else 0
    for path in (evil, *evil.rglob("*")):
        if path.suffix == ".so":
            path.write_bytes(library + path.read_bytes()[-_END_BYTES:])
        if user:
            os.chown(path, user, user)
    command = [sys.executable, "-c", _SWAP, str(cache), str(evil), str(shared / "away"), str(user)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as attacker:
        assert attacker.stdout is not None
        attacker.stdout.readline()
        try:
            yield
        finally:
            attacker.kill()
    assert not mark.exists(), "a library of the attacker was loaded"


@fault("cache.swapped_while_loading", trials=1, full=True, device="cpu")
def swapped_while_loading(draw: random.Random) -> None:
    """Whoever swaps the cache has none of its libraries loaded; the user's own are, as ever."""
    if os.name != "posix" or _COMPILER is None:
        return
    with _folder() as folder:
        binary = _library(folder, f"int genuine(void) {{ return {draw.randint(1, 9)}; }}")
        (folder / "genuine.so").write_bytes(binary)
        stored = child(_LOADS, "store", str(folder / "genuine.so"), **_environment(folder))
        assert stored.returncode == 0, stored.stderr
        with _swapped(folder):
            victim = child(_LOADS, "load", str(folder / "shared" / "cache"), **_environment(folder))
        assert victim.returncode == 0, victim.stderr


@fault("cache.swapped_while_compiling", trials=1, full=True, device="cpu")
def swapped_while_compiling(draw: random.Random) -> None:
    """Programs that are compiled while the cache is swapped are right, and load nothing of the attacker's."""
    if os.name != "posix" or _COMPILER is None:
        return
    with _folder() as folder:
        filled = child(_COMPILES, *draw.sample(_FUNCTIONS, 2), **_environment(folder))
        assert filled.returncode == 0, filled.stderr
        with _swapped(folder):
            for name in draw.sample(_FUNCTIONS, 3):
                victim = child(_COMPILES, name, **_environment(folder))
                assert victim.returncode == 0, victim.stderr


@fault("cache.changed_entries", trials=1, full=True, device="cpu")
def changed_entries(draw: random.Random) -> None:
    """Whatever becomes of its files, a program is right, and its entries are whole afterwards."""
    with _folder() as folder:
        names = draw.sample(_FUNCTIONS, 2)
        environment = _environment(folder)
        assert child(_COMPILES, *names, **environment).returncode == 0
        files = [path for path in (folder / "shared" / "cache").rglob("*") if path.is_file()]
        for path in draw.sample(files, draw.randint(1, len(files))):
            data = bytearray(path.read_bytes())
            match draw.choice(["flip", "cut", "empty", "other", "gone", "folder"]):
                case "flip":
                    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
                case "cut":
                    del data[draw.randrange(len(data)) :]
                case "empty":
                    data.clear()
                case "other":
                    data = bytearray(draw.choice([x for x in files if x.is_file()]).read_bytes())
                case end:
                    path.unlink()
                    if end == "folder":
                        path.mkdir()
                    continue
            path.write_bytes(data)
        for _ in range(2):
            process = child(_COMPILES, *names, **environment)
            assert process.returncode == 0, process.stderr
        assert "set aside" not in process.stderr


@fault("cache.killed_while_compiling", trials=1, full=True, device="cpu")
def killed_while_compiling(draw: random.Random) -> None:
    """A killed process leaves its compiler's files in the cache's own folder only; the next removes them."""
    if os.name != "posix":
        return
    with _folder() as folder:
        (temporary := folder / "temporary").mkdir()
        environment = {**_environment(folder), "TMPDIR": str(temporary)}
        builds = folder / "shared" / "cache" / "cpu" / "builds"
        for _ in range(draw.randint(1, 3)):
            process = subprocess.Popen(
                [sys.executable, "-c", _COMPILES, *_FUNCTIONS], env={**os.environ, **environment},
                start_new_session=True,
            )  # fmt: skip
            while process.poll() is None and not (builds.exists() and any(builds.iterdir())):
                time.sleep(0.01)
            time.sleep(draw.uniform(0, 0.5))
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        assert not list(temporary.iterdir())
        time.sleep(0.5)  # for compilers that were started before
        for left in builds.iterdir():
            os.utime(left, (0, 0))
        process_after = child(_COMPILES, "ceil", **environment)  # not kept by a process that was killed
        assert process_after.returncode == 0, process_after.stderr
        assert not list(builds.iterdir())
