"""Processes whose tensors lie on several devices, in a group that is connected on one of them already."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json, sys
import tensorbus as tb
from tensorbus import distributed as dist, plugins
from tensorbus.backend_api import hookimpl

class Own:
    priority = 50
    @hookimpl
    def tensorbus_communicator(self, name):
        return self
    def verdict(self, device_type, rendezvous):
        return device_type == "refdev" or "it connects refdev"
    def connect(self, rendezvous):
        return plugins.communicators()["tcp"].connect(rendezvous)

dist.register_communicator("own", Own())
dist.init(timeout=60)
results, rank = [], dist.get_rank()
with tb.fallback("allow"):
    for kinds, root in json.loads(sys.argv[1]):
        x = tb.full((2,), float(rank + 1), device=kinds[rank])
        dist.all_reduce(x) if root is None else dist.broadcast(x, root)
        results.append(x.tolist()[0])
    dist.barrier()
print(json.dumps([results, sorted({record.communicator for record in dist.records()})]))
dist.shutdown()
"""


@pytest.mark.full
@pytest.mark.parametrize("root", [None, 1])
def test_processes_on_several_devices(root: int | None, tmp_path: Path) -> None:
    """Rank 1 waits in its call, or is done with it at once."""
    pytest.importorskip("tensorbus_tcp", reason="tensorbus-tcp is not installed")
    (tmp_path / "script.py").write_text(SCRIPT)
    program = [
        (("cpu", "cpu"), None),
        (("refdev", "cpu"), root),
        (("cpu", "refdev"), None),
        (("refdev",) * 2, None),
    ]
    environment = {**os.environ, "WORLD_SIZE": "2", "TENSORBUS_STORE": f"file://{tmp_path}/store"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(tmp_path / "script.py"), json.dumps(program)], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env={**environment, "RANK": str(rank)},
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        for rank in ranks:
            answer, complaints = rank.communicate()
            assert rank.returncode == 0, complaints
            assert json.loads(answer) == [[3.0, 3.0 if root is None else 2.0, 3.0, 3.0], ["tcp"]]
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
