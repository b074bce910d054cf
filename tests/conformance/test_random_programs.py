"""Randomly generated programs give the same results compiled, twice, and change none of their arguments."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tensorbus as tb

from error_bounds import assert_alike
from random_programs import drawn

ROUNDINGS, AMPLIFIED = 64, 100
"""Of a program of a dozen ops, sums among them; how much more they may become on the way."""
SEEDS = [*range(15), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(15, 60))]


def agree(actual: Any, wanted: Any, text: str) -> None:
    assert len(actual) == len(wanted), text
    for x, y in zip(actual, wanted, strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype), text
        right = y.numpy()
        size = np.abs(right[np.isfinite(right)]).max(initial=1.0)
        assert_alike(x.numpy(), right, ROUNDINGS, size=AMPLIFIED * size, message=text)


@pytest.mark.parametrize("seed", SEEDS)
def test_compiled_as_eager(device: str, seed: int) -> None:
    """Where it writes over what its gradients need, the error is the same, and all else without gradients."""
    program, arrays = drawn(seed)
    operands = [tb.asarray(x, device=device) for x in arrays]
    refused = ""
    try:
        wanted = program.run(*operands)
    except tb.AutogradError as error:
        refused = str(error)
    if refused:
        assert "has overwritten since" in refused, str(program)
        for _ in range(2):
            with pytest.raises(tb.AutogradError, match=re.escape(refused)):
                tb.compile(program.run)(*operands)
        program.gradients = False
        wanted = program.run(*operands)
    compiled = tb.compile(program.run)
    for _ in range(2):
        agree(compiled(*operands), wanted, str(program))
    assert compiled.replays, compiled.reasons
    for x, before in zip(operands, arrays, strict=True):
        np.testing.assert_array_equal(x.numpy(), before, err_msg=str(program))
