"""Randomly generated programs give the same results compiled, twice, and change none of their arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorbus as tb

from random_programs import drawn

SEEDS = [*range(15), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(15, 60))]


def agree(found: Any, wanted: Any, text: str) -> None:
    assert len(found) == len(wanted), text
    for x, y in zip(found, wanted, strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype), text
        right = y.numpy()
        scale = np.abs(right).max(initial=1.0)
        np.testing.assert_allclose(x.numpy(), right, rtol=1e-9, atol=1e-9 * scale, err_msg=text)


@pytest.mark.parametrize("seed", SEEDS)
def test_compiled_as_eager(device: str, seed: int) -> None:
    program, arrays = drawn(seed)
    given = [tb.asarray(x, device=device) for x in arrays]
    wanted, compiled = program.run(*given), tb.compile(program.run)
    for _ in range(2):
        agree(compiled(*given), wanted, str(program))
    assert compiled.replays, compiled.reasons
    for x, before in zip(given, arrays, strict=True):
        np.testing.assert_array_equal(x.numpy(), before, err_msg=str(program))
