"""Ranks that mpiexec starts: the kit over MPI, what is chosen by itself, and the first error ends all."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tensorbus_conformance.communication.command import FAULTS, VALUES, examine, settings

from mpi_launcher import NEEDED, mpiexec

MPIEXEC = mpiexec()
pytestmark = pytest.mark.skipif(not MPIEXEC, reason=NEEDED)


@pytest.mark.full
@pytest.mark.parametrize("program", [VALUES, *FAULTS])
def test_the_kit(program: str) -> None:
    setting = next(s for s in settings("mpi", ["cpu"], ranks=4, quick=True) if s.program == program)
    calls, findings = examine(setting, f"{shlex.quote(MPIEXEC)} -n {{ranks}}")
    assert not findings
    assert calls >= 2 or program in ("dies", "killed")  # mpiexec may end the others before they report


SCRIPT = """
from tensorbus import distributed as dist
import tensorbus as tb
dist.init(timeout=60)
x = tb.ones(5, device="cpu") * (dist.get_rank() + 1)
dist.all_reduce(x)
print(f"{x.tolist()} {dist.records()[-1].communicator}\\n", end="")  # one write: ranks write at once
if FAILS and dist.get_rank() == 1:
    raise ValueError("mine")
dist.barrier()
dist.shutdown()
"""


@pytest.mark.parametrize("fails", [False, True])
def test_a_program(tmp_path: Path, fails: bool) -> None:
    path = tmp_path / "script.py"
    path.write_text(f"FAILS = {fails}\n{SCRIPT}")
    done = subprocess.run(
        [MPIEXEC, "-n", "3", sys.executable, str(path)], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode != 0) is fails, done.stderr
    if fails:
        assert done.stderr.count("Traceback") == 1
        assert "ValueError: mine\nrank 1 ended by this error" in done.stderr
    else:
        assert done.stdout.count("[6.0, 6.0, 6.0, 6.0, 6.0] mpi") == 3


MESSAGES = """
import time
from tensorbus import distributed as dist
import tensorbus as tb
dist.init(timeout=60)
here, size = dist.get_rank(), dist.get_world_size()
to, source = (here + 1) % size, (here - 1) % size
large = 1 << 20  # bytes that MPI sends once the receiver is there
for make in (
    lambda x, y: [dist.isend(x, to), dist.irecv(y, source)],
    lambda x, y: dist.batch_isend_irecv([dist.P2POp(dist.isend, x, to), dist.P2POp(dist.irecv, y, source)]),
):
    x, y = tb.full((large,), float(here), device="cpu"), tb.zeros(large, device="cpu")
    works = make(x, y)
    for work in works:
        work.wait()
    x += 1  # what was sent is not changed any more
    assert (y == source).all(), (here, y)
if here == 0:
    dist.send(x, size - 1)  # and ends, before it is received
if here == size - 1:
    time.sleep(0.5)
    dist.recv(y, 0)
    assert (y == 1).all()
print("received")
"""


def test_messages_that_wait_for_their_receivers(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(MESSAGES)
    done = subprocess.run(
        [MPIEXEC, "-n", "3", sys.executable, str(path)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("received") == 3


FORKS = """
import ctypes, os, sys
from tensorbus import distributed as dist
import tensorbus as tb
dist.init(timeout=60)
dist.all_reduce(tb.ones(5, device="cpu"))
if dist.get_rank() == 1:
    for how in ("exit", "raise", "last line"):
        child = os.fork()
        if child == 0 and how == "exit":
            sys.exit(3)
        if child == 0 and how == "raise":
            raise ValueError("the child's")
        if child == 0:
            break
        print("a child ends by", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
if dist.is_initialized():
    dist.barrier()
    from mpi4py import MPI
    mpi, key = ctypes.CDLL(MPI.__file__), ctypes.c_int()
    abort = ctypes.cast(ctypes.CDLL(None).abort, ctypes.c_void_p)  # when MPI ends, and gives attributes back
    if ABORTS:
        mpi.MPI_Comm_create_keyval(None, abort, ctypes.byref(key), None)
        mpi.MPI_Comm_set_attr(ctypes.c_int(MPI.COMM_SELF.handle), key, None)
    print("a rank ends", flush=True)
"""


@pytest.mark.full
@pytest.mark.parametrize("aborts", [False, True])
def test_only_ranks_end_mpi(tmp_path: Path, aborts: bool) -> None:
    """Children that were forked from one end as they like; ``aborts`` shows that the ranks end it."""
    path = tmp_path / "script.py"
    path.write_text(f"ABORTS = {aborts}\n{FORKS}")
    done = subprocess.run(
        [MPIEXEC, "-n", "2", sys.executable, str(path)], capture_output=True, text=True, timeout=120
    )
    lines = done.stdout.splitlines()
    assert [line for line in lines if line[:8] == "a child "] == [f"a child ends by {n}" for n in (3, 1, 0)]
    assert lines.count("a rank ends") == 2
    assert done.stderr.count("ValueError: the child's") == 1
    assert (done.returncode != 0) is aborts, done.stderr
    assert "forked" not in done.stderr


MODULES = """
from tensorbus import distributed as dist, nn
import tensorbus as tb
dist.init(timeout=60)
modules = [dist.fully_shard(nn.Linear(4, 4, device="cpu")) for _ in range(2)]
dist.barrier()
try:
    modules[dist.get_rank()](tb.ones((2, 4), device="cpu")).sum().item()
except dist.DistributedError as error:
    print(f"rank {dist.get_rank()} by {dist.records()[-1].communicator}: {error}")
"""


@pytest.mark.parametrize(("command", "by"), [
    ([MPIEXEC, "-n", "2", sys.executable], "mpi"),
    ([sys.executable, "-m", "tensorbus", "run", "-n", "2"], "tcp"),
])  # fmt: skip
def test_another_module_of_one_shape_is_told(tmp_path: Path, command: list[str], by: str) -> None:
    path = tmp_path / "script.py"
    path.write_text(MODULES)
    done = subprocess.run([*command, str(path)], capture_output=True, text=True, timeout=120)
    for rank in range(2):
        line = next(line for line in done.stdout.splitlines() if f"rank {rank} by {by}: " in line)
        assert "rank 0: all_gather of float32 in shapes [(10,), (10,)], 'weight', 'bias' of Linear #1" in line
        assert "rank 1: all_gather of float32 in shapes [(10,), (10,)], 'weight', 'bias' of Linear #2" in line


def test_an_mpiexec_of_another_mpi_is_told() -> None:
    alone = {key: value for key, value in os.environ.items() if "PMI" not in key}
    done = subprocess.run(
        [sys.executable, "-c", "from tensorbus import distributed as dist; dist.init(timeout=60)"],
        env={**alone, "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode != 0
    assert "OMPI_COMM_WORLD_SIZE=4, and mpi4py sees 1 processes: mpiexec is of another MPI" in done.stderr
