"""Ranks on a Ray cluster: two machines, which are two of Ray's nodes on this one, of two processors each."""

from __future__ import annotations

import importlib.util
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus.backend_api import LaunchRequest
from tensorbus.distributed.launch.supervisor import supervise
from tensorbus.errors import ArgumentError, DistributedError
from tensorbus_ray import run_ranks
from tensorbus_ray.launcher import RayLauncher
from tensorbus_ray.options import Options

from rank_processes import is_running, start_ranks, wait_for_ranks

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")

WRONG = {
    "a word": ({"cpus": "two"}, "cpus='two' cannot be read. cpus: processors of each rank"),
    "negative": ({"cpus": "-1"}, "cpus must be a number >= 0, got -1.0"),
    "no number": ({"cpus": "nan"}, "cpus must be a number >= 0, got nan"),
    "half a GPU": ({"gpus": "0.5"}, "gpus must be whole, got 0.5"),
    "nothing": ({"cpus": "0"}, "cpus, gpus and resources are all 0"),
    "a placement": ({"strategy": "wide"}, "strategy must be one of PACK, SPREAD, .*; got 'WIDE'"),
    "a pair": ({"resources": "fast"}, "resources='fast' cannot be read"),
    "a wait": ({"wait": "inf"}, "wait must be a number of seconds >= 0, got inf"),
}


@pytest.mark.parametrize("name", WRONG)
def test_options_that_make_no_sense_are_named(name: str) -> None:
    texts, words = WRONG[name]
    with pytest.raises(ArgumentError, match=words):
        Options.parse(texts)


def test_options_say_what_a_rank_needs() -> None:
    options = Options.parse(
        {"cpus": "0.5", "gpus": "2", "resources": "fast=1,big=0.25", "strategy": "spread"}
    )
    assert options.needs == {"CPU": 0.5, "GPU": 2.0, "fast": 1.0, "big": 0.25}
    assert options.strategy == "SPREAD"


def test_a_missing_ray_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(DistributedError, match=r"Ray cannot be imported .* pip install tensorbus\[ray\]"):
        run_ranks(dist.get_rank, 2)


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """Ray, connected to a cluster of two nodes."""
    import ray
    from ray.cluster_utils import Cluster

    resources = {"num_cpus": 2, "object_store_memory": 80 << 20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=resources)
    cluster.add_node(**resources)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    before = os.environ.get("RAY_ADDRESS")
    os.environ["RAY_ADDRESS"] = cluster.address
    try:
        yield ray
    finally:
        if before is None:
            del os.environ["RAY_ADDRESS"]
        else:
            os.environ["RAY_ADDRESS"] = before
        ray.shutdown()
        cluster.shutdown()


MEETS = """
import os, sys
import tensorbus as tb
from tensorbus import distributed as dist
dist.init(timeout=60)
if dist.get_rank() == 1 and os.environ["TENSORBUS_RESTART"] == "0":
    {how}
x = tb.ones(3, device="cpu") * (dist.get_rank() + 1)
dist.all_reduce(x)
nodes = [None] * dist.get_world_size()
dist.all_gather_object(nodes, dist.get_local_rank())
print(x.tolist(), nodes, os.environ["LOCAL_WORLD_SIZE"], sys.argv[1:])
dist.shutdown()
"""


def run(
    script: str, size: int, folder: Path, options: Mapping[str, str] = {}, **others: Any
) -> tuple[Any, str, str]:
    path = folder / "script.py"
    path.write_text(script)
    out, err = io.StringIO(), io.StringIO()
    launcher = RayLauncher(Options.parse({"cpus": "0.5", **options}))
    request = LaunchRequest(
        command=(sys.executable, str(path), "--epochs", "3"), size=size, store=others.pop("store", None)
    )
    failed = supervise(launcher, request, out=out, err=err, **others)
    return failed, out.getvalue(), err.getvalue()


PLACES = {
    "over both": ({"strategy": "SPREAD"}, 4, [0, 1, 0, 1]),
    "on one": ({"strategy": "STRICT_PACK"}, 3, [0, 1, 2]),
}


@needs_ray
@pytest.mark.full
@pytest.mark.parametrize("name", PLACES)
def test_ranks_are_placed_and_meet(ray: Any, tmp_path: Path, name: str) -> None:
    options, size, local = PLACES[name]
    failed, out, err = run(MEETS.format(how="pass"), size, tmp_path, options)
    assert (failed, err) == (None, "")
    total = float(size * (size + 1) // 2)
    words = f"{[total] * 3} {local} {local.count(0) and size // local.count(0)} ['--epochs', '3']"
    assert sorted(out.splitlines()) == [f"[{rank}] {words}" for rank in range(size)]


WAYS = {
    "an error": ("raise KeyError('mine')", "rank 1 of 3 ended with exit code 1", "  KeyError: 'mine'"),
    "an exit": ("sys.exit(3)", "rank 1 of 3 ended with exit code 3", ""),
    "a crash": ("os.kill(os.getpid(), 11)", "rank 1 of 3 was ended by SIGSEGV", ""),
}


@needs_ray
@pytest.mark.full
@pytest.mark.parametrize("name", WAYS)
def test_the_rank_that_failed_is_shown_and_all_are_started_again(ray: Any, tmp_path: Path, name: str) -> None:
    how, words, line = WAYS[name]
    failed, out, err = run(MEETS.format(how=how), 3, tmp_path, max_restarts=2)
    assert failed is None
    assert words in err
    assert line in err.splitlines() or not line
    assert "Starting all again (1 of 2 restarts)." in err
    assert "2 of 2" not in err
    assert len(out.splitlines()) == 3


LEAVES = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open(os.path.join(os.path.dirname(__file__), os.environ["RANK"]), "w").write(str(child.pid))
if os.environ["RANK"] == "1":
    sys.exit(3)
time.sleep(600)
"""


@needs_ray
@pytest.mark.full
def test_what_ranks_have_started_ends_with_them(ray: Any, tmp_path: Path) -> None:
    failed, _, _ = run(LEAVES, 2, tmp_path)
    assert (failed.rank, failed.code) == (1, 3)
    for child in filter(Path.exists, (tmp_path / "0", tmp_path / "1")):  # rank 0 may not have come so far
        while (text := child.read_text()) and is_running(int(text)):
            time.sleep(0.01)


@needs_ray
@pytest.mark.full
def test_an_actor_that_dies_is_a_rank_that_failed(ray: Any, tmp_path: Path) -> None:
    failed, _, err = run(MEETS.format(how="os.kill(os.getppid(), 9); os._exit(0)"), 2, tmp_path)
    assert (failed.rank, failed.code) == (1, 1)
    assert "the actor of the rank is gone" in err


@needs_ray
@pytest.mark.full
def test_functions_return_raise_and_crash(ray: Any) -> None:
    def total(x: Any) -> Any:
        dist.all_reduce(x)
        return dist.get_rank(), x.numpy()

    results = run_ranks(total, 3, tb.ones(2, device="cpu"), cpus=0.5)
    assert [(rank, list(x)) for rank, x in results] == [(rank, [3.0, 3.0]) for rank in range(3)]

    def fails(how: str) -> Any:
        if dist.get_rank() == 1:
            if how == "raise":
                raise KeyError("mine")
            if how == "crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            return lambda: iter(threads)  # what follows cannot be pickled
        dist.barrier()
        return None

    threads = []
    with pytest.raises(KeyError, match="mine") as caught:
        run_ranks(fails, 2, "raise", cpus=0.5)
    (note,) = caught.value.__notes__
    assert note.startswith("on rank 1 of 2, at ")
    assert "in fails" in note
    with pytest.raises(DistributedError, match=r"rank 1 of 2 was ended by SIGSEGV, at .* Its last lines"):
        run_ranks(fails, 2, "crash", cpus=0.5)

    with pytest.raises(DistributedError, match=r"returned 'generator', which cannot be pickled"):
        run_ranks(lambda: (x for x in "ab"), 1)
    with pytest.raises(ArgumentError, match="cannot be pickled, which brings them to other machines"):
        run_ranks(dist.get_rank, 1, (x for x in "ab"))
    with pytest.raises(ArgumentError, match="size must be an integer >= 1, got 0"):
        run_ranks(dist.get_rank, 0)


ROOM = {
    "processors": (
        {"cpus": 3},
        "2 ranks were asked for, with 3 CPU each, placed by PACK, and the cluster has room for 0: .*: 2 CPU;",
    ),
    "machines": ({"cpus": 1, "size": 3, "strategy": "STRICT_SPREAD"}, "has room for 2"),
    "one machine": ({"cpus": 1, "size": 3, "strategy": "STRICT_PACK"}, "has room for 2"),
    "GPUs": ({"gpus": 1}, "with 1 CPU, 1 GPU each.* has room for 0"),
    "a resource": ({"resources": {"fast": 1}}, "with 1 CPU, 1 fast each.* has room for 0"),
    "never": ({"cpus": 3, "wait": 1}, "within 1 seconds they did not become free. Free now: 4 CPU"),
    "a cluster": ({"address": "127.0.0.1:1"}, "connected to a cluster already"),
}


@needs_ray
@pytest.mark.full
@pytest.mark.parametrize("name", ROOM)
def test_what_the_cluster_does_not_have_is_said(ray: Any, name: str) -> None:
    arguments, words = ROOM[name]
    with pytest.raises((DistributedError, ArgumentError), match=words):
        run_ranks(dist.get_rank, **{"size": 2, **arguments})


@needs_ray
@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_rank_outlives_the_launcher(ray: Any, tmp_path: Path, number: signal.Signals) -> None:
    start = (
        "from tensorbus.distributed.launch.supervisor import supervise;"
        "from tensorbus.backend_api import LaunchRequest;"
        "from tensorbus_ray.launcher import Factory;"
        "request = LaunchRequest(command=(sys.executable, *sys.argv[1:]), size=2);"
        "supervise(Factory().open({'cpus': '0.5'}), request)"
    )
    with start_ranks(start, tmp_path) as program:
        program.send_signal(number)
        assert program.wait() != 0
    wait_for_ranks(tmp_path)


@needs_ray
@pytest.mark.full
@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere.invalid:6379"])
def test_a_cluster_that_does_not_answer_is_named(address: str) -> None:
    command = [
        sys.executable, "-c", "from tensorbus_ray.launcher import Factory; import sys\n"
        "Factory().open({'address': sys.argv[1]}).start(None, None)", address,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert f"DistributedError: launcher ray: no cluster answers at '{address}'" in done.stderr
