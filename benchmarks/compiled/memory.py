"""The memory that a whole training step needs once it is compiled: the peak of later steps, not of the first.

Each figure comes from a process of its own: ``python -m benchmarks.compiled.memory MODULE VARIANT OPTIONS``.
The system's own count of the peak is set back before each step (Linux).
"""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from benchmarks.compiled.costs import PEERS, WHOLE, Cost
from benchmarks.compiled.rows import OURS
from benchmarks.compiled.threads import environment

STEPS: Final = 6
"""How many steps are run; the peak of the last one counts."""
PATIENCE: Final = 1800.0


def peaks() -> dict[str, float | None]:
    """Return each peer's peak in MB; None where it is not there."""
    results: dict[str, float | None] = {}
    for name, (module, variant) in PEERS.items():
        command = [sys.executable, "-m", "benchmarks.compiled.memory", module, variant, json.dumps(WHOLE)]
        with tempfile.TemporaryDirectory() as folder:
            env = environment(False) | {"TENSORBUS_CACHE_DIR": folder, "TORCHINDUCTOR_CACHE_DIR": folder}
            try:
                done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                done = None
        message = done.stdout.splitlines() if done is not None and done.returncode == 0 else []
        results[name] = float(message[-1]) if message else None
    return results


def _met(values: dict[str, float | None]) -> bool:
    peer = values["torch.compile"]
    return peer is None or (values[OURS] or 0.0) <= peer


MEMORY = (
    Cost(
        name="peak memory of a GPT-2-small train step, once compiled", unit="MB", asked="torch.compile",
        met=_met, values=peaks,
    ),
)  # fmt: skip


def _peak() -> float:
    """Return the most memory that this process had since the count was set back, in MB."""
    match = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(match[1]) / 1024 if match is not None else float("nan")


def main() -> None:
    """Run the steps of one peer and print the peak of the last one."""
    module, variant, options = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    peer: Any = importlib.import_module(f"benchmarks.compiled.peers.{module}").Peer(variant)
    call = peer.gpt(**json.loads(options))
    for _ in range(STEPS):
        Path("/proc/self/clear_refs").write_text("5")
        call()
    print(_peak(), file=answers)


if __name__ == "__main__":
    main()
