"""Two ranks over NCCL itself: the kit, and the losses of a model. Where there is one GPU, they share it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest
from tensorbus_conformance.communication.command import FAULTS, VALUES, examine, settings
from tensorbus_cuda import device as cuda

pytest.importorskip("tensorbus_nccl", reason="tensorbus-nccl is not installed")
pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(cuda.why_unavailable() is not None, reason=f"cuda: {cuda.why_unavailable()}"),
]

ROOT = Path(__file__).parent.parent.parent
EXAMPLE = str(ROOT / "examples" / "train_gpt.py")
SMALL = (
    "--steps 20 --every 1 --batch 8 --length 8 --width 16 --heads 4 --layers 1 --characters 20000 --sample 0"
)
WAYS = {"replicate": "--mesh dp=2", "fully_shard": "--mesh dp=2 --fully-shard", "tensor": "--mesh tp=2"}
APART = 1e-5
"""What losses may be apart in the end, of about 4, as in ``tests/conformance/test_train_gpt.py``."""


def with_gpus(command: list[str]) -> list[str]:
    """Return what runs a command as a rank with a GPU."""
    gpus = 0 if cuda.why_unavailable() is not None else cuda.runtime().device_count()
    return [str(Path(__file__).with_name("own_gpu.py")), str(gpus), *command]


@pytest.mark.parametrize("program", [VALUES, *FAULTS])
def test_the_kit(program: str) -> None:
    setting = next(
        s for s in settings("nccl", ["cuda"], ["float32"], ranks=2, quick=True) if s.program == program
    )
    ranks = [sys.executable, "-m", "tensorbus_conformance.communication", "--ranks", "{ranks}"]
    calls, findings = examine(setting, " ".join([*ranks, sys.executable, *with_gpus([])]))
    assert not findings
    assert calls >= 2 or program in ("dies", "killed")  # the others may be ended before they report


@cache
def alone() -> list[float]:
    """Return the losses on one rank, on the host, which go down."""
    with tempfile.TemporaryDirectory() as folder:
        losses = trained([sys.executable, EXAMPLE, *SMALL.split(), "--eager"], Path(folder))
    assert losses[-1] < 0.9 * losses[0]
    return losses


def trained(command: list[str], folder: Path) -> list[float]:
    """Run the example, and return its losses, which it writes into a folder."""
    report = folder / "report.json"
    done = subprocess.run([*command, "--report", str(report)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    losses: list[float] = json.loads(report.read_text())["losses"]
    return losses


@pytest.mark.parametrize("eager", [True, False], ids=["eager", "compiled"])
@pytest.mark.parametrize("way", WAYS)
def test_losses_are_those_of_one_rank(way: str, eager: bool, tmp_path: Path) -> None:
    example = [sys.executable, EXAMPLE, *SMALL.split(), *WAYS[way].split(), "--device", "cuda"]
    run = [sys.executable, "-m", "tensorbus", "run", "-n", "2"]
    losses = trained([*run, *with_gpus(example), *(["--eager"] if eager else [])], tmp_path)
    assert max(abs(a - b) for a, b in zip(losses, alone(), strict=True)) <= APART
