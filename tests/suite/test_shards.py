"""Every test is in exactly one shard, whichever number of shards there is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shards import Shard

ROOT = Path(__file__).parents[2]
SUBJECT = "tests/core/graph"
NAMES = [f"tests/core/test_{k % 7}.py::test_{k}[case-{k * k}]" for k in range(3000)]


@pytest.mark.parametrize("count", [1, 2, 3, 8, 12, 100])
def test_shards_are_a_partition(count: int) -> None:
    shards = [Shard(number, count) for number in range(1, count + 1)]
    assert all(sum(shard.holds(name) for shard in shards) == 1 for name in NAMES)


@pytest.mark.parametrize("count", [2, 8, 12])
def test_shards_are_about_equally_large(count: int) -> None:
    sizes = [sum(map(Shard(number, count).holds, NAMES)) for number in range(1, count + 1)]
    assert min(sizes) > 0.75 * len(NAMES) / count
    assert max(sizes) < 1.25 * len(NAMES) / count


def test_a_test_stays_in_its_shard() -> None:
    """Nothing random, and nothing that other tests decide, stands in the hash."""
    assert [next(k for k in range(1, 9) if Shard(k, 8).holds(name)) for name in NAMES[:5]] == [4, 1, 3, 1, 5]


def test_a_shard_is_a_number_and_a_count() -> None:
    assert Shard.parse("3/12") == Shard(3, 12)
    for text in ("3", "0/4", "5/4", "/", "a/b", "-1/4", "1/0"):
        with pytest.raises(ValueError, match="is no shard"):
            Shard.parse(text)


def collected(*options: str) -> list[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", SUBJECT]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if "::" in line]


def test_shards_of_this_suite_are_a_partition() -> None:
    whole = collected()
    parts = [collected(f"--suite-shard={number}/2") for number in (1, 2)]
    assert all(parts)
    assert sorted(parts[0] + parts[1]) == sorted(whole)
    assert len(set(whole)) == len(whole) > 10


def test_a_wrong_shard_is_refused() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", SUBJECT]
    done = subprocess.run(
        [*command, "--suite-shard=3"], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "--suite-shard: '3' is no shard" in done.stderr
