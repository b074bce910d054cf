"""Threads that call one compiled function wait for each other, whatever layouts their values have."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus.compiler.programs import program_cache as executables
from tensorbus_cpu.compiler import NATIVE

from error_bounds import assert_within, gamma, of_product, of_sum

pytestmark = pytest.mark.skipif(NATIVE.compiler() is None, reason="there is no C compiler")
RNG = np.random.default_rng(5)


def test_programs_on_cpu_wait_by_themselves() -> None:
    run = tb.compile(lambda x: tb.sin(x) * 3)
    run(tb.ones((5,), device="cpu"))
    assert list(executables._programs.values())[-1].waits


@pytest.mark.parametrize("rows", [3, 1500])
def test_each_thread_gets_its_own_result(rows: int) -> None:
    @tb.compile
    def run(x: Any, y: Any) -> Any:
        return tb.sum(tb.tanh(x @ y), axis=1) + tb.cumulative_sum(x, axis=1)[:, -1]

    values = [RNG.standard_normal((rows, 256), dtype=np.float32) for _ in range(8)]
    y = tb.asarray(RNG.standard_normal((256, 128), dtype=np.float32), device="cpu")
    wide = y.numpy().astype("f8")
    right = [np.tanh(v @ wide).sum(1) + v.sum(1, dtype="f8") for v in values]
    # tanh changes by no more than its argument does
    room = [
        of_product(v, wide, "float32").sum(1) + 128 * gamma(130, "float32") + of_sum(v, 1, "float32")
        for v in values
    ]

    def calls(k: int) -> None:
        x = tb.asarray(values[k], device="cpu")
        if k % 2:  # other strides: a program of its own
            x = tb.flip(tb.asarray(values[k][::-1].copy(), device="cpu"), axis=0)
        for _ in range(12):
            assert_within(run(x, y).numpy(), right[k], room[k])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(calls, range(8)))


def test_layouts_that_come_while_others_run_drop_no_program_in_use() -> None:
    run = tb.compile(lambda x: tb.exp(tb.sin(x)).sum())
    whole = tb.asarray(RNG.standard_normal((72, 72, 72), dtype=np.float32), device="cpu")
    views = [tb.permute_dims(whole, order) for order in permutations(range(3))]
    views += [v[:, ::-1] for v in views]
    assert len({v.numpy().strides for v in views}) == 12
    terms = np.exp(np.sin(whole.numpy().astype(np.float64)))

    def calls(k: int) -> None:
        for v in (views[k:] + views[:k]) * 3:
            assert_within(run(v).numpy(), terms.sum(), of_sum(terms, None, "float32", extra=4))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(calls, range(4)))
