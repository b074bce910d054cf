"""A store of a package, as the documents write it: found by the scheme of its URL, and met at by ranks."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from store_kinds import free_port
from throwaway import Site

DOCUMENT = Path(__file__).parents[3] / "docs" / "distributed.md"
RANK = """
import tensorbus as tb
from tensorbus import distributed as dist
dist.init(timeout=60)
n, r = dist.get_world_size(), dist.get_rank()
x = tb.ones(2, device="cpu") * (r + 1)
dist.all_reduce(x)
assert x.tolist() == [n * (n + 1) / 2] * 2
store = dist.open_store("{url}")
assert type(store).__name__.startswith("AutoProxy")
store.set(f"mine {{r}}", b"\\0")
store.wait([f"mine {{k}}" for k in range(n)], 60)
dist.barrier()
print("met", r)
dist.shutdown()
"""


def extension() -> str:
    """Return the extension that the document writes."""
    lines = DOCUMENT.read_text(encoding="utf-8").partition("of Python's own managers:\n\n")[2].splitlines()
    end = next(number for number, line in enumerate(lines) if line and not line.startswith("    "))
    return textwrap.dedent("\n".join(lines[:end]))


def test_ranks_meet_at_a_store_of_a_package(site: Site, tmp_path: Path) -> None:
    site.install("mine", group="tensorbus.stores", extension=extension())
    url = f"mine://127.0.0.1:{free_port()}"
    script = tmp_path / "rank.py"
    script.write_text(RANK.format(url=url))
    path = os.pathsep.join([str(site.folder), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-m", "tensorbus", "run", "-n", "3", "--store", url, str(script)],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == [f"[{rank}] met {rank}" for rank in range(3)]


FAULTS = """
from tensorbus import distributed as dist
import tb_faulty.extension as faulty

for value, words in [
    (lambda: None, "the stores faulty://: open returned 'NoneType', which has no set, get, add, wait"),
    (faulty.sunk, "the stores faulty://: open raised OSError: sunk."),
]:
    faulty.opened = value
    error = error_of(lambda: dist.open_store("faulty://x"))
    check(type(error).__name__ == "PluginError" and words in str(error), error)
faulty.opened = dist.MemoryStore
check(dist.open_store("faulty://x").add("n", 2) == 2)
"""
EXTENSION = """
from tensorbus.backend_api import hookimpl

def sunk():
    raise OSError("sunk")

class Factory:
    def open(self, url, *, serve, timeout):
        return opened()

@hookimpl
def tensorbus_store(scheme):
    return Factory()
"""


def test_a_store_that_is_none_is_named(site: Site) -> None:
    site.install("faulty", group="tensorbus.stores", extension=EXTENSION)
    site.run(FAULTS)
