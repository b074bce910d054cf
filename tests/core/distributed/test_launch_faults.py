"""What ranks, and what is around them, may do wrong: output, signals, ends that wait, children, forks."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tensorbus.distributed.launch import launcher
from tensorbus.distributed.launch.launch_environment import _slurm_store_url
from tensorbus.distributed.process_group.world import _raised
from tensorbus.errors import ArgumentError, DistributedError

from rank_processes import RUN, start_ranks


def run(script: str, size: int, folder: Path, **options: Any) -> tuple[int, str, str]:
    path = folder / "script.py"
    path.write_text(script)
    out, err = io.StringIO(), io.StringIO()
    code = launcher.run([sys.executable, str(path)], size, **{"out": out, "err": err, **options})
    return code, out.getvalue(), err.getvalue()


class Full(io.StringIO):
    """A stream that has no room after some text."""

    def write(self, text: str) -> int:
        if self.tell() > 100:
            raise OSError(28, "No space left on device")
        return super().write(text)


TALKS_ON = "while True:\n    print('line')\n"


@pytest.mark.parametrize("size", [1, 2])
def test_output_that_cannot_be_written_ends_the_ranks_and_is_not_their_failure(
    size: int, tmp_path: Path
) -> None:
    with pytest.raises(DistributedError, match=r"cannot be written: .*No space left.* were ended"):
        run(TALKS_ON, size, tmp_path, out=Full())


def test_a_reader_that_leaves_ends_the_ranks(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(TALKS_ON)
    program = subprocess.Popen(
        [sys.executable, "-m", "tensorbus", "run", "-n", "2", tmp_path / "script.py"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert program.stdout is not None
    assert program.stdout.readline().endswith("] line\n")
    program.stdout.close()
    assert program.wait(60) == 2
    assert program.stderr is not None
    text = program.stderr.read()
    assert text.startswith("tensorbus run: what the ranks say cannot be written: [Errno 32] Broken pipe.")
    assert "Traceback" not in text
    program.stderr.close()


LETTERS = "import sys\nsys.stdout.buffer.write('\u2603\\n'.encode())\nsys.stderr.write('\\r1\\r2\\n')\n"


def test_letters_that_a_terminal_lacks_are_spelled_out_and_progress_bars_are_lines(tmp_path: Path) -> None:
    for size, expected, lines in (
        (1, b"\\u2603\n", "\r1\r2\n"), (2, b"[0] \\u2603\n[1] \\u2603\n", "[0] 1\n[0] 2\n[1] 1\n[1] 2\n"),
    ):  # fmt: skip
        raw = io.BytesIO()
        with io.TextIOWrapper(raw, encoding="ascii", write_through=True) as out:
            _, _, err = run(LETTERS, size, tmp_path, out=out)
            assert b"".join(sorted(raw.getvalue().splitlines(keepends=True))) == expected
        text = err if size == 1 else "".join(sorted(err.splitlines(keepends=True)))
        assert text == lines


def test_the_first_rank_reads_what_the_launcher_is_given(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import sys; print(repr(sys.stdin.read()))")
    done = subprocess.run(
        [sys.executable, "-m", "tensorbus", "run", "-n", "2", tmp_path / "script.py"],
        input="words", capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert sorted(done.stdout.splitlines()) == ["[0] 'words'", "[1] ''"]


def test_closed_standard_streams_are_no_connections_of_the_store(tmp_path: Path) -> None:
    """What serves the store would be ended by its event loop, which may not close the first descriptors."""
    (tmp_path / "script.py").write_text(
        "from tensorbus import distributed as dist\ndist.init()\ndist.barrier()"
    )
    command = f"exec {sys.executable} -m tensorbus run -n 2 {tmp_path / 'script.py'} <&- >&-"
    done = subprocess.run(["/bin/sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


SAVES = """
import os, sys, time
try:
    with open(sys.argv[1] + os.environ["RANK"], "w") as file:
        file.write(str(os.getpid()))
    time.sleep(600)
except KeyboardInterrupt:
    time.sleep(0.3)
    with open(sys.argv[1] + "saved" + os.environ["RANK"], "w") as file:
        file.write("all")
    raise
"""
STARTING = """
import os, subprocess, time
class Started(subprocess.Popen):
    "One that is interrupted while it is started, once it runs."
    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        rank = named["env"]["RANK"]
        while not os.path.exists(sys.argv[2] + rank) or not os.path.getsize(sys.argv[2] + rank):
            time.sleep(0.01)
        if rank == "1":
            signal.raise_signal(signal.SIGINT)
subprocess.Popen = Started
"""


@pytest.mark.parametrize("when", ["all run", "one starts"])
def test_ranks_may_save_what_they_have_at_an_interrupt(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rank_processes.WAITS", SAVES)
    with start_ranks(STARTING + RUN if when == "one starts" else RUN, tmp_path) as program:
        if when == "all run":
            program.send_signal(signal.SIGINT)
        assert program.wait(60) != 0
    assert [(tmp_path / f"saved{rank}").read_text() for rank in range(2)] == ["all", "all"]


HANGS = """
import threading
from tensorbus import distributed as dist
dist.init(timeout=300)
if dist.get_rank() == 1:
    threading.Thread(target=threading.Event().wait).start()
    raise KeyError("mine")
dist.barrier()
"""


def test_a_rank_that_raised_and_does_not_end_is_not_waited_for(tmp_path: Path) -> None:
    code, _, err = run(HANGS, 3, tmp_path)
    assert code == 1
    assert "[1] KeyError: 'mine'" in err
    assert "rank 1 will not come: it raised KeyError: 'mine'." in err


COUNTS = """
import os
from tensorbus import distributed as dist
os.environ["WORLD_SIZE"] = str(2 + int(os.environ["RANK"]))
dist.init(timeout=60)
"""


def test_ranks_that_count_differently_are_told(tmp_path: Path) -> None:
    code, _, err = run(COUNTS, 2, tmp_path)
    assert code == 1
    assert "ranks, and another that meets here, or has met here before, as one of" in err


def slurm(nodes: str, job: str = "7", step: str = "0", rank: str = "1") -> dict[str, str]:
    return {
        "SLURM_PROCID": rank, "SLURM_STEP_NODELIST": nodes, "SLURM_JOB_ID": job, "SLURM_STEP_ID": step,
    }  # fmt: skip


STEPS = {
    "one machine": (slurm("node5"), "tcp://node5:20217"),
    "some": (slurm("node[03-07,9],other", step="2"), "tcp://node03:20219"),
    "a list": (slurm("a,b[1-2]", job="123456"), "tcp://a:27136"),
    "two numbers": (slurm("r[1-2]n[08,10],x"), "tcp://r1n08:20217"),
    "another launcher's rank": (slurm("node5", rank="0"), ""),
    "no step": ({"SLURM_PROCID": "1", "SLURM_JOB_ID": "7"}, ""),
    "a strange job": (slurm("node5", job="x"), ""),
}


@pytest.mark.parametrize("name", STEPS)
def test_the_ranks_of_a_step_meet_on_its_first_machine(name: str) -> None:
    pytest.importorskip("tensorbus_tcp", reason="tensorbus-tcp is not installed")
    environment, expected = STEPS[name]
    assert _slurm_store_url(environment, 1) == expected


def test_a_step_of_slurm_needs_no_variables_of_ours(tmp_path: Path) -> None:
    pytest.importorskip("tensorbus_tcp", reason="tensorbus-tcp is not installed")
    (tmp_path / "script.py").write_text(
        "from tensorbus import distributed as dist\ndist.init(timeout=60)\ndist.barrier()\n"
        "print(dist.get_rank(), dist.get_world_size(), dist.get_local_rank())\ndist.shutdown()\n"
    )
    named = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "TENSORBUS_STORE", "TENSORBUS_STORE_SERVED")
    base = {name: value for name, value in os.environ.items() if name not in named}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(tmp_path / "script.py")], stdout=subprocess.PIPE, text=True,
            env={
                **base, **slurm("localhost", job=str(os.getpid()), rank=str(rank)), "SLURM_NTASKS": "2",
                "SLURM_LOCALID": str(rank),
            },
        )
        for rank in range(2)
    ]  # fmt: skip
    assert [rank.communicate(timeout=60)[0] for rank in ranks] == ["0 2 0\n", "1 2 1\n"]


def test_an_error_whose_text_cannot_be_made_is_told_all_the_same() -> None:
    class SilentError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    assert _raised(SilentError()) == "it raised SilentError: (its text cannot be made)"
    assert len(_raised(ValueError("x" * 10_000))) < 1100


def test_ranks_that_a_rank_starts_are_of_no_program_but_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do they take their store for one that is served."""
    names = [
        "PMI_RANK",
        "PMI_FD",
        "PMIX_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "MPI_LOCALRANKID",
        "TENSORBUS_STORE_SERVED",
    ]
    for name in [*names, "OMPI_MCA_btl", "KEPT"]:
        monkeypatch.setenv(name, "1")
    script = f"import os\nprint([n for n in {[*names, 'OMPI_MCA_btl', 'KEPT']} if n in os.environ])"
    code, out, _ = run(script, 1, tmp_path, store=f"file://{tmp_path}/store")
    assert (code, out) == (0, "['OMPI_MCA_btl', 'KEPT']\n")


def test_what_ranks_say_is_kept_in_files(tmp_path: Path) -> None:
    """As they said it, of each attempt; a folder that cannot be written to is named."""
    script = (
        "import os, sys\nn, again = os.environ['RANK'], os.environ['TENSORBUS_RESTART'] == '1'\n"
        "print(n, end='')\nsys.stderr.buffer.write(b'1\\r2\\n\\xff')\nsys.exit(0 if again else 3)"
    )
    logs = tmp_path / "all" / "logs"
    code, _, err = run(script, 2, tmp_path, log_dir=logs, max_restarts=1)
    assert code == 0
    assert f"What each rank said is in {logs / 'attempt-0'}." in err
    files = {path.name: path.read_bytes() for path in (logs / "attempt-1").iterdir()}
    end = "\ufffd".encode()
    assert files == {
        f"rank-{n}.{kind}": text
        for n in "01"
        for kind, text in (("out", n.encode()), ("err", b"1\r2\n" + end))
    }
    with pytest.raises(ArgumentError, match="log-dir must be a folder that can be written to"):
        run(script, 2, tmp_path, log_dir=tmp_path / "script.py")
