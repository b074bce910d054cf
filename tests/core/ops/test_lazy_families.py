"""``linalg`` and ``fft`` cost nothing until they are named, and are found by whoever looks for an op."""

from __future__ import annotations

import subprocess
import sys


def _run(program: str) -> None:
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_they_are_imported_when_first_named() -> None:
    _run(
        "import sys, tensorbus as tb\n"
        "own = lambda: {m for m in sys.modules if 'linalg' in m or m.endswith('.fft')}\n"
        "assert not own(), own()\n"
        "tb.linalg.inv, tb.fft.rfft\n"
        "assert {'tensorbus.linalg', 'tensorbus.fft'} <= own()\n"
    )


def test_the_table_finds_their_ops_by_name() -> None:
    _run(
        "import tensorbus\n"
        "from tensorbus.ops.definition import table\n"
        "assert table['svd'].results == ('U', 'S', 'Vh')\n"
    )


def test_they_can_be_imported_by_name() -> None:
    _run("from tensorbus import fft, linalg; from tensorbus.linalg import svd; assert linalg.svd is svd")
