"""``tensorbus run``: ranks that are processes, what is shown of them, and how they end together."""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tensorbus import distributed as dist
from tensorbus.cli.app import app
from tensorbus.distributed.launch import launcher
from tensorbus.distributed.launch.launch_environment import launched
from tensorbus.errors import ArgumentError, DistributedError
from typer.testing import CliRunner

from rank_processes import RUN, start_ranks, wait_for_ranks

MEETS = """
import tensorbus as tb
from tensorbus import distributed as dist
dist.init(timeout=60)
n, r = dist.get_world_size(), dist.get_rank()
for dtype in ("float32", "bfloat16", "int64"):
    for size in (3, 50_000):
        x = tb.full((size,), r + 1, dtype=dtype, device="cpu")
        dist.all_reduce(x)
        assert set(x.tolist()) == {n * (n + 1) / 2}, x
parts = [tb.full((k + 1,), float(10 * r + k), device="cpu") for k in range(n)]
outs = [tb.zeros((r + 1,), device="cpu") for _ in range(n)]
dist.all_to_all(outs, parts)
assert [x.tolist() for x in outs] == [[10.0 * k + r] * (r + 1) for k in range(n)]
assert dist.functional.all_gather(parts[r], lengths=[k + 1 for k in range(n)]).shape == (n * (n + 1) // 2,)
w = tb.ones(n, device="cpu").requires_grad_()
loss = tb.compile(lambda w: dist.functional.reduce_scatter(w * (r + 1)).sum())
loss(w).backward()
assert w.grad.tolist() == [r + 1.0] * n
assert dist.functional.broadcast(parts[0], root=n - 1).tolist() == [10.0 * (n - 1)]
if r == 0:
    dist.send(parts[0] + 1, dst=n - 1)
if r == n - 1:
    y = tb.zeros(1, device="cpu")
    dist.recv(y, src=0)
    assert y.tolist() == [1.0]
group = dist.new_group([n - 1, 0])
if group:
    dist.barrier(group)
objects = [None] * n
dist.all_gather_object(objects, str(r))
print(",".join(objects))
dist.shutdown()
"""


def run(script: str, size: int, folder: Path, **options: object) -> tuple[int, str, str]:
    path = folder / "script.py"
    path.write_text(script)
    out, err = io.StringIO(), io.StringIO()
    code = launcher.run([sys.executable, str(path)], size, out=out, err=err, **options)
    return code, out.getvalue(), err.getvalue()


@pytest.mark.parametrize("store", [None, pytest.param("file", marks=pytest.mark.full)])
def test_ranks_meet_and_communicate(tmp_path: Path, store: str | None) -> None:
    url = None if store is None else f"file://{tmp_path}/store"
    shown: list[str] = []

    @contextlib.contextmanager
    def progress(what: str) -> Iterator[None]:
        shown.append(what)
        yield

    code, out, err = run(MEETS, 3, tmp_path, store=url, progress=progress)
    assert (code, err) == (0, "")
    assert shown == ["Starting 3 ranks by the launcher 'local'"]
    assert sorted(out.splitlines()) == [f"[{rank}] 0,1,2" for rank in range(3)]


LAST_WORDS = """
import os, time
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus_tcp import peers

if os.environ["RANK"] == "1":  # what it has to send goes out late
    send = peers.Peer._send_all
    peers.Peer._send_all = lambda self: (time.sleep(0.5), send(self))
dist.init(timeout=60)
x = tb.ones(2)
dist.all_reduce(x)
print(x.tolist())
"""


def test_what_a_rank_has_to_send_at_its_end_is_sent(tmp_path: Path) -> None:
    """Its program ends without shutdown, behind a collective that others are still in."""
    pytest.importorskip("tensorbus_tcp", reason="tensorbus-tcp is not installed")
    code, out, err = run(LAST_WORDS, 2, tmp_path)
    assert (code, err) == (0, "")
    assert sorted(out.splitlines()) == [f"[{rank}] [2.0, 2.0]" for rank in range(2)]


FAILS = """
import os, sys
from tensorbus import distributed as dist
dist.init(timeout=60)
if dist.get_rank() == 1 and os.environ["TENSORBUS_RESTART"] == "0":
    {how}
dist.barrier()
dist.shutdown()
"""
WAYS = {
    "an error": ("raise KeyError('mine')", 1, "rank 1 of 3 ended with exit code 1", "  KeyError: 'mine'"),
    "an exit": ("sys.exit('enough')", 1, "ended with exit code 1", "  enough"),
    "a kill": ("os.kill(os.getpid(), 9)", 137, "rank 1 of 3 was ended by SIGKILL", ""),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n == "an error" else pytest.mark.full) for n in WAYS]
)
def test_the_rank_that_failed_first_is_shown(tmp_path: Path, name: str) -> None:
    how, expected, text, line = WAYS[name]
    code, _, err = run(FAILS.format(how=how), 3, tmp_path)
    assert code == expected
    assert text in err
    assert line in err.splitlines() or not line


DIFFERS = """
import tensorbus as tb
from tensorbus import distributed as dist
dist.init(timeout=60)
x, first = tb.ones(4, device="cpu"), dist.get_rank() == 0
dist.broadcast(x) if first else dist.all_reduce(x)
dist.barrier()
"""


def test_a_rank_that_sends_what_belongs_to_another_call_is_told_by_that(tmp_path: Path) -> None:
    pytest.importorskip("tensorbus_tcp", reason="tensorbus-tcp is not installed")
    code, _, err = run(DIFFERS, 2, tmp_path)
    assert code == 1
    assert re.search(
        r"all_reduce sum of float32\[4\]: rank 0 does something else, or with other shapes:"
        r" it sent 16 bytes of broadcast of float32\[4\] from place 0;", err
    )  # fmt: skip
    assert ".." not in err.replace("...", "")


def test_all_are_started_again(tmp_path: Path) -> None:
    code, _, err = run(FAILS.format(how="sys.exit(3)"), 2, tmp_path, max_restarts=2)
    assert code == 0
    assert "Starting all again (1 of 2 restarts)." in err
    assert "2 of 2" not in err, err


LOSES = """
import os, time
from tensorbus.errors import DistributedError
if os.environ["RANK"] == "1":
    time.sleep(0.3)
    raise KeyError("mine")
raise DistributedError("rank 1 is gone")
"""


def test_a_rank_that_lost_another_is_not_the_one_that_is_shown(tmp_path: Path) -> None:
    _, _, err = run(LOSES, 2, tmp_path)
    assert "rank 1 of 2 ended with exit code 1" in err
    assert "  KeyError: 'mine'" in err.splitlines()


def test_a_store_that_the_user_names_is_served_by_the_first_rank(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    code, _, err = run(FAILS.format(how="sys.exit(3)"), 2, tmp_path, max_restarts=1, store=url)
    assert code == 0
    assert "Starting all again (1 of 1 restarts)." in err


TALKS = """
import os, sys, threading
def talk(stream):
    for k in range(500):
        stream.write(f"r{os.environ['RANK']} {k} ")
        stream.flush()
        stream.write("x" * (k % 200) + " \u00e9 end\\n")
    stream.flush()
threads = [threading.Thread(target=talk, args=(stream,)) for stream in (sys.stdout, sys.stderr)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.stdout.buffer.write(b"\\xff raw\\n")
sys.stdout.write("without an end")
"""


def test_lines_of_ranks_are_whole(tmp_path: Path) -> None:
    code, out, err = run(TALKS, 4, tmp_path)
    assert code == 0
    line = re.compile(r"\[(\d)\] r\1 \d+ x* \u00e9 end")
    rest = [text for text in (out + err).splitlines() if not line.fullmatch(text)]
    assert len((out + err).splitlines()) - len(rest) == 4 * 2 * 500
    assert sorted(rest) == sorted(
        f"[{rank}] {text}" for rank in range(4) for text in ("\ufffd raw", "without an end")
    )


LEAVES = """
import subprocess, sys
print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid)
"""


@pytest.mark.full
def test_what_a_rank_has_started_and_left_is_not_waited_for(tmp_path: Path) -> None:
    code, out, _ = run(LEAVES, 2, tmp_path)
    assert code == 0
    for line in out.splitlines():  # they still run: nothing has waited for their end
        os.kill(int(line.partition("] ")[2]), signal.SIGKILL)


STARTS = """
import os, signal, subprocess, sys, time
from pathlib import Path
def start(name, **how):
    code = "import time; time.sleep(600)"
    if name == "stubborn":
        code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + code
    return subprocess.Popen([sys.executable, "-c", code], **how).pid
here = os.environ["RANK"]
pids = [start("child"), start("stubborn"), start("daemon", start_new_session=True)]
time.sleep(1)
Path(f"pids{here}.new").write_text(" ".join(map(str, pids)))
os.replace(f"pids{here}.new", f"pids{here}")
while not all(Path(f"pids{rank}").exists() for rank in range(3)):
    time.sleep(0.01)
if here == "0":
    sys.exit(0)
if here == "1":
    while not Path("go").exists():
        time.sleep(0.01)
    sys.exit(3)
time.sleep(600)
"""


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("how", ["a rank fails", pytest.param("Ctrl-C", marks=pytest.mark.full)])
def test_what_ranks_have_started_ends_with_them(tmp_path: Path, how: str) -> None:
    """Children of ranks end with them, also of those that had ended; what has a session of its own stays."""
    script = tmp_path / "starts.py"
    script.write_text(STARTS)
    program = subprocess.Popen(
        [sys.executable, "-m", "tensorbus", "run", "-n", "3", str(script)], cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored in a background job
    )  # fmt: skip
    files = [tmp_path / f"pids{rank}" for rank in range(3)]
    end = time.monotonic() + 60
    while not all(file.exists() for file in files) and time.monotonic() < end:
        time.sleep(0.02)
    children, stubborn, daemons = zip(*(map(int, file.read_text().split()) for file in files), strict=True)
    try:
        if how == "Ctrl-C":
            program.send_signal(signal.SIGINT)
        else:
            (tmp_path / "go").touch()
        out, _ = program.communicate(timeout=60)
        assert program.returncode == (3 if how == "a rank fails" else 130), out
        assert [*map(_runs, children)] == [*map(_runs, stubborn)] == [False] * 3
        assert [*map(_runs, daemons)] == [True] * 3
    finally:
        program.kill()
        for pid in (*children, *stubborn, *daemons):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_a_script_that_is_not_there_is_named() -> None:
    answer = CliRunner().invoke(app, ["run", "-n", "2", "nowhere/train.py"])
    assert (answer.exit_code, "no script 'nowhere/train.py'; a module is run by -m" in answer.output) == (
        2,
        True,
    )
    answer = CliRunner().invoke(app, ["run", "-n", "2", "python", "train.py"])
    assert (answer.exit_code, "no script 'python'; name the program alone" in answer.output) == (2, True)


ENDS = {
    "Ctrl-C": (["SIGINT"], "", 1), "a second Ctrl-C": (["SIGINT"] * 2, "stubborn", 1),
    "its end": (["SIGTERM"], "", 143), "a second one": (["SIGTERM"] * 2, "stubborn", 143),
    "the terminal's end": (["SIGHUP"], "", 129), "being killed": (["SIGKILL"], "", -9),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if "Ctrl-C" in name else pytest.mark.full) for name in ENDS]
)
def test_no_rank_outlives_what_has_started_it(tmp_path: Path, name: str) -> None:
    signals, habit, expected = ENDS[name]
    if "SIGKILL" in signals and sys.platform != "linux":
        pytest.skip("only Linux tells a process of its parent's end")
    with start_ranks(RUN, tmp_path, habit) as program:
        for number in signals:
            program.send_signal(signal.Signals[number])
            time.sleep(0.5 * (len(signals) - 1))  # the first one asks the ranks to end, and waits for them
        assert program.wait(60) in (expected, -signal.SIGINT)
    wait_for_ranks(tmp_path)
    came = [
        line for line in (tmp_path / "errors").read_text().splitlines() if " has come; the ranks " in line
    ]
    assert [line.split()[2] for line in came] == [
        name for name in signals[:1] if name in ("SIGTERM", "SIGHUP")
    ]


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(ArgumentError, match="no program 'no-such-program'"):
        launcher.run(["no-such-program"], 2)


@pytest.mark.parametrize("options", [{"size": 0}, {"size": 1, "max_restarts": -1}])
def test_numbers_that_make_no_sense_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ArgumentError, match=r"run: .*(at least 1|>= 0)"):
        launcher.run(["true"], **options)


LAUNCHERS = {
    "torchrun": ({"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "MASTER_ADDR": "a", "MASTER_PORT": "7"},
                 (1, 4, 0, "tcp://a:7")),
    "torchrun with a store of its own": ({
        "RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "MASTER_ADDR": "a", "MASTER_PORT": "65535",
        "TORCHELASTIC_USE_AGENT_STORE": "True"}, (1, 4, 0, "tcp://a:1")),
    "a size of something else": ({"WORLD_SIZE": "9", "PMI_RANK": "1", "PMI_SIZE": "2"}, (1, 2, 1, "")),
    "no address": ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "", "MASTER_PORT": "x"}, (0, 2, 0, "")),
    "a batch script of Slurm": ({"SLURM_NTASKS": "4", "SLURM_JOB_ID": "7"}, None),
    "MPICH": ({"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1"}, (2, 4, 1, "")),
    "Open MPI": ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "TENSORBUS_STORE": "file:///s"},
                 (3, 4, 3, "file:///s")),
    "srun": ({"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0"}, (0, 2, 0, "")),
    "nothing": ({}, None),
}  # fmt: skip


@pytest.mark.parametrize("name", LAUNCHERS)
def test_what_launchers_say_is_read(name: str) -> None:
    environment, expected = LAUNCHERS[name]
    assert launched(environment) == expected


WRONG = {
    "RANK must be a number in the environment, got 'one'": {"RANK": "one", "WORLD_SIZE": "2"},
    "RANK must be a number in the environment, got ''": {"RANK": "", "WORLD_SIZE": "2"},
    "RANK must be a number in the environment, got '-1'": {"RANK": "-1", "WORLD_SIZE": "2"},
    "LOCAL_RANK must be a number": {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "x"},
    "PMI_SIZE must be a number": {"PMI_RANK": "0", "PMI_SIZE": "two"},
    "SLURM_LOCALID must be a number": {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_LOCALID": "x"},
    "RANK='1' is in the environment and WORLD_SIZE is not": {"RANK": "1"},
    "WORLD_SIZE='2' is in the environment and RANK is not": {"WORLD_SIZE": "2", "PMI_RANK": "0"},
    "MASTER_PORT must be a port, 1 to 65535, in the environment, got 'x'":
        {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "x"},
    "MASTER_PORT must be a port, 1 to 65535, in the environment, got '99999'":
        {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "99999"},
    "rank 2 of 2 ranks; it must be 0 to 1": {"RANK": "2", "WORLD_SIZE": "2", "MASTER_ADDR": "nowhere"},
    "rank 0 of 0 ranks": {"RANK": "0", "WORLD_SIZE": "0"},
    "rank 0 of 2 does not know where the ranks meet": {"SLURM_PROCID": "0", "SLURM_NTASKS": "2"},
}  # fmt: skip


@pytest.mark.parametrize("message", WRONG)
def test_variables_that_make_no_sense_are_named_at_once(
    message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "TENSORBUS_STORE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in WRONG[message].items():
        monkeypatch.setenv(name, value)
    with pytest.raises((ArgumentError, DistributedError), match=message):
        dist.init()
    assert not dist.is_initialized()


def test_a_variable_alone_is_nothing_where_the_program_says_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.delenv("RANK", raising=False)
    dist.init(rank=0, world_size=1)
    assert dist.get_world_size() == 1
    dist.shutdown()
