"""A compiled function that goes through its work in chunks has the memory of a few chunks at a time."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import Tensor
from tensorbus.nn import LinearCrossEntropyOptions
from tensorbus.nn import functional as F  # noqa: N812 - what everybody calls it

from error_bounds import assert_alike
from installed import available

ROWS, CLASSES, WIDTH = 1024, 2048, 32
DEVICES = [d for d in ("cpu", "opencl") if d in available()]
"""Those whose programs are lowered as a whole."""


def measured(device: str) -> None:
    """Print the peaks of a step in one chunk and in eight; their results agree."""
    rng, where = np.random.default_rng(0), tb.device(device)
    target = tb.asarray(rng.integers(0, CLASSES, ROWS), device=device)
    arrays = [rng.standard_normal((n, WIDTH), np.float32) / 8 for n in (ROWS, CLASSES)]

    def measure(size: int) -> tuple[int, list[np.ndarray]]:
        def step(x: Tensor, matrix: Tensor) -> tuple[Tensor, ...]:
            loss = F.linear_cross_entropy(x, matrix, target, options=LinearCrossEntropyOptions(size))
            return loss, *tb.grad(loss, [x, matrix])

        compiled = tb.compile(step)
        x, matrix = (tb.asarray(a, device=device).requires_grad_() for a in arrays)
        for _ in range(3):
            compiled(x, matrix)  # which compiles, and sizes the pools
        where.synchronize()
        tb.empty_cache(where)  # what freed blocks would hold, a run would not add
        where.reset_peak_memory_stats()
        stats = where.memory_stats()
        before = stats.allocated + stats.reserved
        results = compiled(x, matrix)
        where.synchronize()
        return where.memory_stats().peak - before, [r.detach().numpy() for r in results]

    whole, expected = measure(ROWS)
    peak, results = measure(ROWS // 8)
    for a, b in zip(results, expected, strict=True):
        assert_alike(a, b, WIDTH + CLASSES + ROWS)  # sums over all three
    print(whole, peak)


@pytest.mark.full
@pytest.mark.parametrize("device", DEVICES)
def test_the_logits_of_a_compiled_loss_are_never_all_in_memory(device: str) -> None:
    """Neither are they kept for the gradients, nor are those of the weight, one for each chunk.

    In a process of its own: the cpu device's memory is that of the process.
    """
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, __file__, device], env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    whole, peak = map(int, done.stdout.split())
    weights_bytes, logits_bytes = CLASSES * WIDTH * 4, ROWS * CLASSES * 4
    assert whole >= logits_bytes
    assert peak <= logits_bytes / 4 + 7 * weights_bytes
    assert peak <= whole / 3


if __name__ == "__main__":
    measured(sys.argv[1])
