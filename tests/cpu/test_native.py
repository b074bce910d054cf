"""The C compiler: found or not, its cache and its errors; threads."""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import tensorbus as tb
from tensorbus_cpu.compiler import NATIVE, CCompiler, pieces
from tensorbus_cpu.eager.kernels_native import MEMORY_BOUND_SIZE

SCRIPT = """
import numpy as np, tensorbus as tb
from tensorbus_cpu.compiler import NATIVE
x = tb.asarray(np.arange(300000, dtype=np.float32), device="cpu")
assert tb.add(x, 1.0).numpy()[-1] == 300000
assert tb.sum(x.reshape((1000, 300)), axis=0).shape == (300,)
assert tb.argmax(x).item() == 299999
assert tb.softmax(x.reshape((1000, 300))).shape == (1000, 300)
assert tb.sort(-x).numpy()[0] == -299999
assert tb.gather(x, tb.asarray(np.arange(200000)[::-1].copy(), device="cpu")).numpy()[0] == 199999
print(NATIVE.working.built if NATIVE.working else tb.device("cpu").properties.extra["note"])
"""


def process(script: str = SCRIPT, message: str = "", **changes: str) -> str:
    """Run a script; return its output. Warnings are errors, unless the words ``said`` are in one."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TENSORBUS") and k != "CC"}
    environment.update(changes)
    command = [sys.executable, "-W", "always" if message else "error", "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Warning: ") == bool(message), done.stderr
    assert message in done.stderr
    return done.stdout.strip()


@pytest.mark.skipif(os.name != "posix", reason="there are no permissions to look at")
@pytest.mark.full
def test_libraries_are_kept_on_disk_and_damage_is_noticed(tmp_path: Path) -> None:
    first = process(TENSORBUS_CACHE_DIR=str(tmp_path))
    assert int(first) > 3
    assert process(TENSORBUS_CACHE_DIR=str(tmp_path)) == "0"
    folder = tmp_path / "cpu" / "libraries"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    names = sorted(folder.glob("*.so"))
    assert len(names) == int(first)
    data = names[0].read_bytes()
    for damaged in (b"", data[: len(data) // 2], data[:100] + bytes([data[100] ^ 1]) + data[101:]):
        names[0].write_bytes(damaged)
        assert process(TENSORBUS_CACHE_DIR=str(tmp_path), message="is set aside as") == "1"
    names[0].unlink()
    assert process(TENSORBUS_CACHE_DIR=str(tmp_path)) == "1"
    assert process(TENSORBUS_CACHE_DIR=str(tmp_path)) == "0"


@pytest.mark.full
def test_without_a_disk_nothing_is_kept(tmp_path: Path) -> None:
    place = tmp_path / "a file"
    place.write_text("in the way")
    assert int(process(TENSORBUS_CACHE_DIR=str(place))) > 3


@pytest.mark.full
@pytest.mark.skipif(os.name != "posix", reason="there are no permissions to look at")
def test_a_folder_that_others_may_write_to_is_not_trusted(tmp_path: Path) -> None:
    folder = tmp_path / "cpu" / "libraries"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    assert int(process(TENSORBUS_CACHE_DIR=str(tmp_path), message="is open to other users")) > 3
    assert not list(folder.iterdir())


@pytest.mark.skipif(os.name != "posix", reason="the broken compiler is a script for sh")
def test_without_a_compiler_numpy_does_it_all_visibly(tmp_path: Path) -> None:
    assert process(PATH=str(tmp_path)).startswith("no C compiler")
    assert "cannot be run" in process(CC=str(tmp_path / "cc"))
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho out of order >&2\nexit 1\n")
    broken.chmod(0o700)
    assert "out of order" in process(CC=str(broken), TENSORBUS_CACHE_DIR=str(tmp_path))


PROGRAM = """
import tensorbus as tb
x = tb.ones((60, 60), device="cpu")
f = tb.compile(lambda x: tb.softmax(x * 2.5 + 0.25))
assert [round(f(y).sum().item()) for y in (x, x @ x, x)] == [60] * 3
print(tb.device("cpu").properties.extra.get("note", "compiled"))
"""


@pytest.mark.skipif(os.name != "posix", reason="the broken compiler is a script for sh")
@pytest.mark.parametrize(
    "command", ["/nowhere/gcc", "/bin/false", "cc --no-such-option", "cc 'x", "cc\udcff"]
)
def test_a_program_runs_where_cc_does_not_work_and_the_note_names_it(tmp_path: Path, command: str) -> None:
    note = process(PROGRAM, CC=command, TENSORBUS_CACHE_DIR=str(tmp_path))
    assert f"CC={command!r}" in note
    assert note.count("\n") < 8


def test_what_may_not_be_kept_is_removed_at_exit(tmp_path: Path) -> None:
    place, temporary = tmp_path / "a file", tmp_path / "temporary"
    place.write_text("in the way")
    temporary.mkdir()
    process(PROGRAM, TENSORBUS_CACHE_DIR=str(place), TMPDIR=str(temporary))
    assert not list(temporary.iterdir())


FULL = """
import errno, tempfile, warnings
import tensorbus as tb
from tensorbus.system.private_folders import PrivateFolder

def refuse(*args, **kwargs):
    raise OSError(errno.ENOSPC, "No space left on device")

f = tb.compile(lambda x: tb.softmax(x * 2.5 + 0.25))
g = tb.compile(lambda x: tb.sin(x) * 2 + 1)
x = tb.ones((600, 600), device="cpu")
if {late}:
    f(x), tb.exp(x)
PrivateFolder.inner = refuse
if {full}:
    tempfile.TemporaryDirectory = refuse
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    for _ in range(2):
        assert round(f(x).sum().item()) == 600
        assert round(g(x).sum().item()) == 965859
        assert round(tb.log(tb.exp(x) + x).sum().item()) == 472774
print(*["no room" for w in told if "No space left" in str(w.message)])
"""


@pytest.mark.full
@pytest.mark.parametrize("late", [False, True])
def test_a_full_disk_to_compile_on_ends_no_program(tmp_path: Path, late: bool) -> None:
    for full, text in ((False, ""), (True, "no room")):
        folder = str(tmp_path / str(full))
        assert process(FULL.format(full=full, late=late), TENSORBUS_CACHE_DIR=folder) == text


FAKE = """#!/bin/sh
case "$*" in {when})
  {fault}
esac
exec {compiler} "$@"
"""
FAULTS = {
    "unloadable": (
        "*made.so*",
        'for x; do case "$x" in *made.so) echo "no library" > "$x"; exit 0;; esac; done',
        "made cannot be loaded: ",
        "too short",
    ),
    "endless file": (
        "*made.so*",
        'for x; do case "$x" in *made.so) ln -s /dev/zero "$x"; exit 0;; esac; done',
        "cannot be compiled in ",
        "Too many levels of symbolic links",
    ),
    "pipe": (
        "*made.so*",
        'for x; do case "$x" in *made.so) mkfifo "$x"; exit 0;; esac; done',
        "cannot be compiled in ",
        "no regular file",
    ),
    "huge": (
        "*made.so*",
        'for x; do case "$x" in *made.so) truncate -s 400G "$x"; exit 0;; esac; done',
        "cannot be compiled in ",
        "File too large",
    ),
    "another library": (
        "*made.so*",
        'for x; do case "$x" in *made.so) echo | {compiler} -shared -x c - -o "$x"; exit 0;; esac; done',
        "",
        "undefined symbol: tb_set_threads",
    ),
    "half": (
        "*made.so*",
        'for x; do case "$x" in *made.so) head -c 3000 /proc/self/exe > "$x"; exit 0;; esac; done',
        "cannot be compiled in ",
        "the library is cut short after 3000 bytes",
    ),
    "bytes": ("*made.so*", r"printf '\377\376 \303\n' >&2; exit 1", "", "\ufffd"),
    "endless": ("*made.so*", "sleep 1000", "did not return within 2 s (TENSORBUS_COMPILER_TIMEOUT)", "sleep"),
    "mute": ("*", "sleep 1000", "did not return within 2 s (TENSORBUS_COMPILER_TIMEOUT)", "sleep"),
}


@pytest.mark.skipif(os.name != "posix", reason="the broken compiler is a script for sh")
@pytest.mark.parametrize(
    "fault", [x if x in ("unloadable", "bytes") else pytest.param(x, marks=pytest.mark.full) for x in FAULTS]
)
def test_a_compiler_whose_work_is_of_no_use_leaves_it_to_numpy(tmp_path: Path, fault: str) -> None:
    when, line, warned, noted = FAULTS[fault]
    compiler = tmp_path / "sleep-cc"
    real = shutil.which("cc")
    line = line.replace("{compiler}", real or "")
    compiler.write_text(FAKE.format(when=when, fault=line, compiler=real))
    compiler.chmod(0o700)
    script = f"import tensorbus as tb; print(tb.add(tb.ones((3,)), 1).tolist())\n{PROGRAM}"
    message = process(
        script, message=warned, CC=str(compiler), TENSORBUS_CACHE_DIR=str(tmp_path / "cache"),
        TENSORBUS_COMPILER_TIMEOUT="2" if fault in ("endless", "mute") else "300",
    )  # fmt: skip
    small, _, note = message.partition("\n")
    assert small == "[2.0, 2.0, 2.0]"
    assert "no C compiler that works" in note
    assert str(compiler) in note
    assert noted in note


NOEXEC = """
import ctypes, os
import tensorbus as tb
if {simulated}:
    load = ctypes.CDLL.__init__
    def refusing(self, name, *args, **kwargs):
        where = os.path.realpath(name) if name else ""
        if {cache!r} in where or {memory} and "/memfd:" in where:
            raise OSError(f"{{name}}: failed to map segment from shared object")
        load(self, name, *args, **kwargs)
    ctypes.CDLL.__init__ = refusing
    os.statvfs = lambda path: os.stat_result
    os.stat_result.f_flag = os.ST_NOEXEC
"""


def mounts() -> bool:
    """Return whether a file system can be mounted here, in a name space of one's own."""
    command = ["unshare", "-m", "mount", "-t", "tmpfs", "-o", "noexec", "tmpfs", "/mnt"]
    return (
        shutil.which("unshare") is not None and subprocess.run(command, capture_output=True).returncode == 0
    )


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="libraries in memory are Linux's")
def test_a_cache_on_a_noexec_mount_is_loaded_from_memory(tmp_path: Path) -> None:
    script = f"{PROGRAM}\nfrom tensorbus_cpu.compiler import NATIVE; print(NATIVE.working.built)"
    if mounts():
        (tmp_path / "cache").mkdir(mode=0o700)
        environment = {**os.environ, "TENSORBUS_CACHE_DIR": str(tmp_path / "cache")}
        inside = f'mount -t tmpfs -o noexec,mode=0700 tmpfs {tmp_path}/cache && for i in 1 2; do "$@"; done'
        command = ["unshare", "-m", "sh", "-c", inside, "-", sys.executable, "-W", "error", "-c", script]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        first, *again = done.stdout.split()[1::2]
    else:
        head = NOEXEC.format(simulated=True, cache=str(tmp_path), memory=False)
        runs = [process(head + script, TENSORBUS_CACHE_DIR=str(tmp_path)) for _ in range(2)]
        first, *again = [text.split()[1] for text in runs]
    assert int(first) > 1
    assert again == ["0"]


@pytest.mark.skipif(sys.platform != "linux", reason="libraries in memory are Linux's")
def test_where_nothing_may_be_loaded_one_warning_names_the_mount(tmp_path: Path) -> None:
    (temporary := tmp_path / "temporary").mkdir()
    head = NOEXEC.format(simulated=True, cache=str(tmp_path), memory=True)
    note = process(
        head + PROGRAM, TENSORBUS_CACHE_DIR=str(tmp_path / "cache"), TMPDIR=str(temporary),
        message=f"{tmp_path / 'cache'} is mounted noexec",
    )  # fmt: skip
    assert "NumPy computes large arrays" in note
    assert "failed to map segment" in note
    assert f"{tmp_path / 'cache'} is mounted noexec" in note


def test_the_commands_tell_of_a_missing_compiler(tmp_path: Path) -> None:
    script = "import sys; sys.argv = ['tensorbus', 'devices']; from tensorbus.cli.app import main; main()"
    assert "no C compiler" in " ".join(process(script, PATH=str(tmp_path), COLUMNS="200").split())


def test_errors_of_the_compiler_show_the_source() -> None:
    compiler = NATIVE.compiler()
    assert isinstance(compiler, CCompiler)
    with pytest.raises(tb.DeviceError) as caught:
        compiler.library("int good(void) { return 1; }\nint bad(void) { return nothing; }\n")
    text = str(caught.value)
    assert "nothing" in text
    assert "   2 int bad(void) { return nothing; }" in text
    assert compiler.library("int tb_one(void) { return 1; }").tb_one() == 1


def test_threads_are_set_and_read() -> None:
    before = tb.get_num_threads()
    try:
        tb.set_num_threads(3)
        assert tb.get_num_threads() == tb.get_num_threads("cpu") == 3
        for wrong in (0, -1, 1.5, True):
            with pytest.raises(tb.ArgumentError, match="number of threads"):
                tb.set_num_threads(wrong)
    finally:
        tb.set_num_threads(before)
    assert process("import tensorbus as tb; print(tb.get_num_threads())", TENSORBUS_NUM_THREADS="2") == "2"


def test_python_goes_on_while_a_kernel_runs() -> None:
    compiler = NATIVE.compiler()
    assert compiler is not None
    library = compiler.library(
        "#include <stdint.h>\n#include <unistd.h>\n"
        "void tb_meet(void *const *b, const void *p, const int64_t *r) {\n"
        "  volatile int32_t *flags = b[0];\n"
        "  flags[0] = 1;  // begun; waits for Python's answer, not for ever\n"
        "  for (int k = 0; k < 60000 && !flags[1]; ++k) usleep(1000);\n"
        "  flags[2] = flags[1];\n}"
    )
    flags = np.zeros(3, np.int32)
    worker = threading.Thread(
        target=compiler.call, args=(library.tb_meet, [flags.ctypes.data], b"", (1,), (1,))
    )
    worker.start()
    while not flags[0]:
        worker.join(0.001)
    flags[1] = 1
    worker.join()
    assert flags[2] == 1, "Python did not run before the kernel gave up"


def test_every_part_of_a_grid_runs_once() -> None:
    compiler = NATIVE.compiler()
    assert compiler is not None
    library = compiler.library(
        "#include <stdint.h>\nvoid tb_count(void *const *b, const int64_t *p, const int64_t *r) {\n"
        "  for (int64_t i = r[4]; i < r[5]; ++i) for (int64_t j = r[2]; j < r[3]; ++j)\n"
        "    for (int64_t k = r[0]; k < r[1]; ++k) ++((int32_t *)b[0])[(i * p[1] + j) * p[0] + k];\n}"
    )
    for grid in ((1, 1, 1), (70, 3, 5), (1000, 1, 1), (2, 2, 300), (64, 64, 2)):
        for piece in (pieces(grid, 1), pieces(grid, 64), pieces(grid, 1, tiled=True), (7, 2, 3)):
            out = np.zeros(grid[::-1], np.int32)
            params = np.array(grid, np.int64).tobytes()
            compiler.call(library.tb_count, [out.ctypes.data], params, grid, piece)
            assert (out == 1).all(), (grid, piece)


def test_a_handler_of_the_user_is_left_alone() -> None:
    tb.exp(tb.zeros((8 * MEMORY_BOUND_SIZE,), device="cpu"))
    assert np._core.multiarray.get_handler_name() == "default_allocator"
    assert ctypes.sizeof(ctypes.c_void_p) == 8
