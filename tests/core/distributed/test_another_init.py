"""Processes that are ranks more than once: by mistake, in other numbers, and what a fork of one is."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from tensorbus.distributed.launch import launcher

BEGIN = """
import os, sys
import tensorbus as tb
from tensorbus import distributed as dist

def total(**where):
    dist.init(timeout=30, **where)
    x = tb.ones(2, device="cpu")
    dist.all_reduce(x)
    dist.shutdown()
    return x.tolist()

me, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
"""
PROGRAMS = {
    "twice, by mistake": """
dist.init(timeout=30)
try:
    dist.init(timeout=30)
except dist.DistributedError as error:
    assert "is rank" in str(error) and "call tensorbus.distributed.shutdown()" in str(error), error
dist.barrier()
dist.shutdown()
dist.shutdown()
print(total())
""",
    "devices by their type": """
os.environ["TENSORBUS_DEFAULT_DEVICE"] = "refdev"
first = tb.ones(1).device
dist.init(timeout=30)
own = f"refdev:{me % 2}"
made = [tb.ones(1), tb.ones(1, device="refdev"), tb.ones(1, device="cpu").to("refdev")]
tb.set_default_device("refdev:0")
made += [tb.ones(1), tb.ones(1, device=tb.Device("refdev"))]
dist.shutdown()
tb.set_default_device("refdev")
made += [tb.ones(1)]
assert [str(x.device) for x in made] == [own] * 3 + ["refdev:0"] * 3, (me, made)
assert str(first) == "refdev:0" and str(tb.ones(1, device="cpu").device) == "cpu:0"
dist.init(timeout=30)
assert str(tb.ones(1).device) == own
mesh = dist.init_device_mesh("refdev", (count,))
tb.fallback("allow")
parts = dist.distribute_tensor(tb.arange(6, device="cpu"), mesh, [dist.Shard(0)])
module = tb.nn.Linear(4, 4, device="cpu")
dist.fully_shard(module, mesh=mesh)
for part in (parts, *module.parameters(), dist.zeros(4, device_mesh=mesh)):
    assert str(part.to_local().device) == own, (me, part)
dist.shutdown()
print(total())
""",
    "fewer, then all again": """
total()
if me < count - 1:
    assert total(rank=me, world_size=count - 1) == [count - 1.0] * 2
print(total())
""",
    "more than before": """
if me < count - 1:
    assert total(rank=me, world_size=count - 1) == [count - 1.0] * 2
print(total())
""",
    "a fork": """
dist.init(timeout=30)
group, x = dist.new_group(range(count)), tb.ones(2, device="cpu")
for which in (None, group):
    dist.all_reduce(tb.ones(2, device="cpu"), group=which)
if me == 0:
    child = os.fork()
    if child == 0:
        assert not dist.is_initialized()
        for call in (dist.get_rank, lambda: dist.all_reduce(x), lambda: dist.all_reduce(x, group=group)):
            try:
                call()
                sys.exit(3)
            except dist.DistributedError as error:
                assert "was forked from process" in str(error), error
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
dist.all_reduce(x)
dist.shutdown()
print(x.tolist())
""",
    "a message that nobody waits for": """
dist.init(timeout=30)
dist.barrier()
x = tb.full((300_000,), me + 1.0, device="cpu")
if me == 0:
    for _ in range(3):
        dist.isend(x, 1)
elif me == 1:
    for _ in range(3):
        dist.recv(x, 0)
    assert x.tolist() == [1.0] * 300_000
dist.shutdown()
print([3.0, 3.0])
""",
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if "by mistake" in name else [pytest.mark.full]) for name in PROGRAMS],
)
def test_ranks(tmp_path: Path, name: str) -> None:
    path = tmp_path / "script.py"
    path.write_text(BEGIN + PROGRAMS[name])
    out, err = io.StringIO(), io.StringIO()
    code = launcher.run([sys.executable, str(path)], 3, out=out, err=err)
    assert code == 0, err.getvalue()
    assert sorted(out.getvalue().splitlines()) == [f"[{rank}] [3.0, 3.0]" for rank in range(3)]
