"""Choices in loops of one item: a driver's compiler crashes where it makes vectors of such items."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus.kernels import open_shapes

from error_bounds import assert_within, gamma, unit
from opencl_bench import Bench

EDGES = (
    0.0, 6e-8, 3e-8, 2.98e-8, 2.99e-8, 6.1e-5, 6.097e-5, 1.0, 1.0004883, 1.0014648, 2049.0, 65504.0, 65519.99,
    65520.0, 65536.0, 7e4, 1e30, 3e34, 8e34, 1e38, 3.4e38, float("inf"), float("nan"),
)  # fmt: skip
CHOICES: dict[str, Callable[[Any], Any]] = {
    "sign": lambda x: tb.floor(tb.sign(x)),
    "remainder": lambda x: tb.tanh(x) % 2,
    "of a remainder": lambda x: tb.round(x % 3) % 2,
    "floor_divide": lambda x: tb.sqrt((x // 3) * (x // 3)),
    "integer": lambda x: tb.floor((x.to(tb.int32) // 3) * 0.5),
    "rest": lambda x: tb.floor((x.to(tb.int64) % 3) * 0.5),
    "byte": lambda x: tb.floor((tb.abs(x).to(tb.uint8) // 3) * 0.5),
    "long": lambda x: x.to(tb.int64),
    "unsigned": lambda x: tb.abs(x).to(tb.uint64),
    "least": lambda x: tb.minimum(x * 3, x).to(tb.int64),
    "strided": lambda x: x[::2].to(tb.int64) % 5,
    "narrowed": lambda x: (x.to(tb.float64) / 3).to(tb.float16).to(tb.float32),
    "where": lambda x: tb.round(tb.where(x > 1, tb.tanh(x), x / 3)),
    "complex": lambda x: tb.sin((1 / tb.complex(x.to(tb.float32), x.to(tb.float32) + 0.3)).imag),
}


@pytest.mark.parametrize("dtype", [tb.float16, tb.bfloat16, tb.float32], ids=str)
@pytest.mark.parametrize("choose", CHOICES.values(), ids=CHOICES)
def test_what_is_chosen_is_summed(choose: Callable[[Any], Any], dtype: Any) -> None:
    x = tb.asarray((np.arange(200) / 8 - 2).astype("f4")).to(dtype)
    got = tb.compile(lambda x: choose(x).sum())(x.to("opencl"))
    chosen = choose(x)
    terms = tb.abs(chosen.to(tb.float64)).sum().item()
    bound = 2 * gamma(200, "float32") * terms + (unit(dtype) * 4 * terms if dtype is not tb.float32 else 0)
    assert_within(got.item(), chosen.sum().item(), bound)


def test_items_that_are_alone_are_not_made_vectors(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a group of one item, and of a kernel of one, where the driver takes a hint."""
    hinted = "cl_intel_vec_len_hint" in bench.runtime.unit(0).device.extensions.split()
    compiler = bench.runtime.compiler
    sources: list[tuple[str, Any]] = []
    prepare = compiler.prepare

    def noting(source: str, launch: Any, index: int) -> Any:
        sources.append((source, launch))
        return prepare(source, launch, index)

    monkeypatch.setattr(compiler, "prepare", noting)
    monkeypatch.setattr(open_shapes, "SHAPES_BEFORE_PLAN", 99)
    for shape in ((77,), (300, 77), (300, 3)):
        value = bench.put(np.ones(shape, "f4"))
        bench.prepare("sum", (value,), axis=(len(shape) - 1,), keepdims=False)(value)
    if bench.runtime.unit(0).dialect.target.row_per_task:
        assert [launch.kernel.task for _, launch in sources] == [True, True, False]
    for source, launch in sources:
        assert ("intel_vec_len_hint(1)" in source) == (launch.kernel.task and hinted)


def test_each_op_is_rounded_as_a_store_would() -> None:
    """The sum of one number a row, of what is computed in halves, is that number."""
    x = np.array(EDGES, "f4")
    x = np.concatenate([x, -x, np.random.default_rng(0).normal(size=2000).astype("f4") * 1e-4])
    rows = np.concatenate([x[:, None], np.zeros((len(x), 63), "f4")], axis=1)
    operand = tb.asarray(rows, device="opencl")

    @tb.compile
    def rounded(x: Any) -> Any:
        return tb.sum(x.to(tb.float16).to(tb.float32), axis=1)

    with np.errstate(over="ignore"):
        wanted = x.astype("f2").astype("f4")
    for _ in range(3):
        np.testing.assert_array_equal(rounded(operand).numpy(), wanted)
