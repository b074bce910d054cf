"""The example's GPT has the same losses on one rank and on four, however it is spread over them."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tensorbus import distributed as dist

from mpi_launcher import NEEDED, mpiexec

from .installed import available

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "train_gpt.py"
APART = 1e-5
"""What losses may be apart in the end, of about 4: some 20 roundings in float32, one for each step."""
SMALL = (
    "--steps 20 --every 1 --batch 8 --length 8 --width 16 --heads 4 --layers 1 --characters 20000 --sample 0"
)
WAYS = {
    "replicate": "--mesh dp=4",
    "fully_shard": "--mesh dp=4 --fully-shard",
    "tensor": "--mesh tp=4",
    "fully_shard and tensor": "--mesh dp=2,tp=2 --fully-shard",
    "replicate and tensor": "--mesh dp=2,tp=2",
}
FAST = ("fully_shard and tensor", "threads", "cpu", "--eager")
CASES = [
    (way, ranks, devices, eager)
    for way in WAYS
    for ranks, devices, eager in (
        ("threads", "cpu", ""), ("threads", "cpu", "--eager"), ("threads", "refdev", "--eager"),
        ("threads", "cpu,opencl", ""), ("mpi", "cpu", ""), ("processes", "cpu", ""),
        ("threads", "refdev:{rank}", "--eager"),
    )
    if "rank" not in devices or "," not in WAYS[way]  # two ranks, each with a device of its own
]  # fmt: skip


@cache
def program() -> Any:
    """Return the example, as a module."""
    spec = importlib.util.spec_from_file_location("train_gpt", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def on_threads(words: str, ranks: int) -> list[list[float]]:
    """Return the losses that each rank has seen; ranks are threads."""
    chosen = program().options().parse_args(words.split())
    return dist.run_ranks(program().train, ranks, chosen, timeout=120)


@cache
def alone() -> list[float]:
    """Return the losses on one rank, which go down."""
    (losses,) = on_threads(f"{SMALL} --eager", 1)
    assert len(losses) == 20
    assert losses[-1] < 0.9 * losses[0]
    return losses


@pytest.mark.parametrize(
    ("way", "ranks", "devices", "eager"),
    [pytest.param(*case, marks=() if case == FAST else pytest.mark.full) for case in CASES],
)
def test_losses_are_those_of_one_rank(way: str, ranks: str, devices: str, eager: str, tmp_path: Path) -> None:
    if not {name.partition(":")[0] for name in devices.split(",")} <= {*available()}:
        pytest.skip(f"{devices} are needed")
    words, size = f"{SMALL} {WAYS[way]} --device {devices} {eager}", 4
    if "rank" in devices:
        words, size = words.replace("=4", "=2"), 2
    if ranks == "threads":
        seen = on_threads(words, size)
    else:
        if ranks == "mpi" and not mpiexec():
            pytest.skip(NEEDED)
        launcher = [mpiexec()] if ranks == "mpi" else [sys.executable, "-m", "tensorbus", "run"]
        python = [sys.executable] if ranks == "mpi" else []
        report = tmp_path / "report.json"
        done = subprocess.run(
            [*launcher, "-n", str(size), *python, str(EXAMPLE), *words.split(), "--report", str(report)],
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        seen = [json.loads(report.read_text())["losses"]]
    for losses in seen:
        assert max(abs(a - b) for a, b in zip(losses, alone(), strict=True)) <= APART


MISTAKES = {
    "needs dp * tp = 4 ranks, and there are 1": "--mesh dp=2,tp=2",
    "--lr must be a number >= 0, got nan": "--lr nan",
    "there is no folder /nowhere": "--report /nowhere/losses.json",
    "--heads must be a multiple of tp": "--threads 3 --mesh tp=3",
    "--batch must be a multiple of dp": "--threads 3 --mesh dp=3",
    "a mesh is written as dp=2,tp=2": "--mesh 2x2",
}


@pytest.mark.full
@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_say_what_to_do(message: str) -> None:
    command = [sys.executable, str(EXAMPLE), *MISTAKES[message].split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_it_writes_text(capsys: pytest.CaptureFixture[str]) -> None:
    size = "--batch 2 --length 4 --width 8 --heads 2 --layers 1"
    on_threads(f"--steps 2 --sample 9 --mesh dp=2 --eager {size}", 2)
    progress, _, text = capsys.readouterr().out.partition(" tokens/s\n")
    assert progress.startswith("step 2/2  loss ")
    announced, _, text = text.partition("\n")
    assert announced == "writing 9 characters ..."
    assert text.startswith('"""R')  # how the sources begin
    assert len(text) == 4 + 9 + 1
