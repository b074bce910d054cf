"""Running sums and sums down columns by work-items that shuffle registers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus.backend_interface.graph import Graph, Node
from tensorbus.dtypes import definition as dt
from tensorbus.lowering.codegen.render import render
from tensorbus.lowering.ir.layout import packed
from tensorbus.lowering.library import Library
from tensorbus.lowering.program.lower import lower
from tensorbus.lowering.program.program import Program
from tensorbus.ops.definition import Spec, table
from tensorbus_cuda import device as cuda
from tensorbus_cuda.dialect import dialect

DIALECT = dialect(132)
CUDA = "cuda"
needs_card = pytest.mark.skipif(cuda.why_unavailable() is not None, reason=f"cuda: {cuda.why_unavailable()}")


def program(op: str, shape: tuple[int, ...], one: tuple[int, ...], dtype: Any, **attrs: Any) -> Program:
    x = Node(op="input", spec=Spec(shape, dtype))
    out = Node(op=op, inputs=(x,), attrs=attrs, spec=Spec(one, dtype))
    graph = Graph(inputs=(x,), outputs=(out,))
    return lower(graph, [packed(0, shape)], DIALECT.target, library=Library(frozenset(), DIALECT.types))


@pytest.mark.parametrize(("dtype", "lanes"), [(dt.float32, 4), (dt.bfloat16, 8)], ids=str)
def test_a_scan_waits_twice_for_each_tile(dtype: Any, lanes: int) -> None:
    (step,) = program("cumulative_sum", (600, 4096), (600, 4096), dtype, axis=1).steps
    text = render(step.launch.kernel, DIALECT).removeprefix(DIALECT.prologue)
    assert text.count("__syncthreads") == 2
    assert text.count("tb_shuffle_xor(") == 5
    assert text.count("tb_move<16>") == 2
    assert re.search(rf"own_\d+\[{lanes}\]", text)


def test_rows_of_a_length_without_vectors_are_read_one_by_one() -> None:
    (step,) = program("cumulative_sum", (600, 4095), (600, 4095), dt.float32, axis=1).steps
    text = render(step.launch.kernel, DIALECT).removeprefix(DIALECT.prologue)
    assert "tb_move" not in text
    assert text.count("tb_shuffle_xor(") == 5


def test_stretches_of_columns_have_no_rows_left_over() -> None:
    """Rows behind the last turn of a stretch would be waited for one by one."""
    (step,) = program("sum", (8192, 4096), (4096,), dt.bfloat16, axis=(0,), keepdims=False).steps
    size, groups = step.launch.grid
    assert size == 256
    below = groups // (4096 // 64)  # eight vectors of eight columns stand side by side
    assert 8192 // (below * 32) % 8 == 0


def test_few_rows_of_many_columns_have_an_item_for_each_vector() -> None:
    (step,) = program("sum", (16, 1 << 20), (1 << 20,), dt.bfloat16, axis=(0,), keepdims=False).steps
    assert step.launch.grid == (256, (1 << 20) // 8 // 256)
    assert "__shared__" not in render(step.launch.kernel, DIALECT)


def test_columns_that_one_group_goes_down_need_one_kernel() -> None:
    (step,) = program("sum", (256, 1024), (1024,), dt.float32, axis=(0,), keepdims=False).steps
    assert step.launch.group == 256


@pytest.mark.cuda
@needs_card
@pytest.mark.parametrize("length", [64, 65, 100, 255, 1000, 1024, 1025, 4096, 4100, 100000])
@pytest.mark.parametrize("rows", [1, 3, 50])
def test_scans_agree_with_float64(rows: int, length: int) -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((rows, length)).astype(np.float32)
    x, sums = tb.asarray(a, device=CUDA), np.cumsum(a.astype(np.float64), 1)
    limit = 1e-5 * (1 + np.abs(sums).max())
    assert np.abs(tb.cumulative_sum(x, axis=1).numpy() - sums).max() < 3 * limit
    halves = tb.cumulative_sum(x.to(tb.bfloat16), axis=1).to(tb.float32).numpy()
    exact = np.cumsum(x.to(tb.bfloat16).to(tb.float32).numpy().astype(np.float64), 1)
    assert (np.abs(halves - exact) <= 2.0**-8 * np.abs(exact) + limit).all()
    whole = rng.integers(-9, 9, (rows, length))
    assert np.array_equal(tb.cumulative_sum(tb.asarray(whole, device=CUDA), axis=1).numpy(), whole.cumsum(1))
    largest = table.function("cumulative_max")(x, axis=1).numpy()
    assert np.array_equal(largest, np.maximum.accumulate(a, 1))


@pytest.mark.cuda
@needs_card
@pytest.mark.parametrize(
    "shape",
    [(8192, 4096), (8191, 776), (1000, 1024), (517, 4104), (8192, 768), (1 << 20, 16), (400_000, 2)],
    ids=str,
)
def test_sums_down_columns_agree_with_float64(shape: tuple[int, int]) -> None:
    a = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    actual = tb.compile(lambda x: tb.sum(x, axis=0))(tb.asarray(a, device=CUDA)).numpy()
    assert np.abs(actual - a.astype(np.float64).sum(0)).max() < 1e-5 * np.abs(a).sum(0).max()


def test_eager_sums_of_rows_share_them_among_items() -> None:
    """As in programs: an item by itself would read every so manieth cache line."""
    x = Node(op="input", spec=Spec((8192, 4096), dt.bfloat16))
    attrs = {"axis": (1,), "keepdims": False}
    out = Node(op="sum", inputs=(x,), attrs=attrs, spec=Spec((8192,), dt.bfloat16))
    graph = Graph(inputs=(x,), outputs=(out,))
    (step,) = lower(graph, [packed(0, x.spec.shape)], DIALECT.target, True).steps
    assert step.launch.group >= 32
    assert "tb_move<16>" in render(step.launch.kernel, DIALECT)


@pytest.mark.cuda
@needs_card
@pytest.mark.parametrize("columns", [8, 12, 260, 768, 1000, 4096])
@pytest.mark.parametrize("rows", [40, 513, 8192, 70000])
@pytest.mark.parametrize("name", ["float32", "bfloat16", "int32"])
def test_reductions_of_both_axes_agree_with_numpy(rows: int, columns: int, name: str) -> None:
    if rows * columns > 1 << 25:
        rows = (1 << 25) // columns
    rng = np.random.default_rng(1)
    whole = rng.integers(-8, 9, (rows, columns))
    x = tb.asarray(whole, device=CUDA).to(name)
    for axis in (0, 1):
        sums = tb.sum(x.to("float32") if name == "bfloat16" else x, axis=axis)
        assert np.array_equal(sums.numpy(), whole.sum(axis))
        assert np.array_equal(tb.max(x, axis=axis).to("float32").numpy(), whole.max(axis))
        assert np.array_equal(tb.argmin(x, axis=axis).numpy(), whole.argmin(axis))
        result = tb.compile(lambda x: (tb.argmax(x, axis=axis), tb.min(x, axis=axis)))(x)  # noqa: B023
        assert np.array_equal(result[0].numpy(), whole.argmax(axis))
        assert np.array_equal(result[1].to("float32").numpy(), whole.min(axis))
        if name == "bfloat16":
            close = tb.sum(x, axis=axis).to("float32").numpy()
            assert (np.abs(close - whole.sum(axis)) <= 2.0**-8 * np.abs(whole.sum(axis))).all()
    assert tb.compile(tb.argmax)(x).item() == whole.argmax()
