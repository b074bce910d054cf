"""Column normalization: dependent reductions over other axes than the last are one kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from fused import CPU, THIN, check, program_of, record, steps_by_name, with_gradients
from tensorbus.dtypes import definition as dt
from tensorbus.lowering.fusion.fusion_groups import strip_width
from tensorbus.ops.definition import Spec

RNG = np.random.default_rng(3)
F = tb.nn.functional


def f(*shape: int) -> Any:
    return RNG.normal(size=shape).astype("f4")


def centered(x: Any) -> Any:
    top = x.max(axis=(0, 1), keepdims=True)
    return x - x.mean(axis=(0, 1), keepdims=True) * tb.exp(top), top


def normed(x: Any, w: Any, b: Any) -> Any:
    return F.batch_norm(x, None, None, w, b, training=True)


CASES: dict[str, tuple[Callable[..., Any], list[Any], str]] = {
    "softmax of columns": (lambda x: tb.softmax(x, axis=0), [f(90, 200)], "tb_rows_divide"),
    "softmax of a middle axis": (lambda x: tb.softmax(x, axis=1), [f(6, 40, 70)], "tb_rows_divide"),
    "softmax of columns, backward": (
        with_gradients(lambda x: tb.softmax(x, axis=0), 1), [f(90, 200), f(90, 200)], "tb_rows_multiply"
    ),
    "two results": (
        lambda x: (tb.log_softmax(x, axis=1), tb.logsumexp(x, axis=1)), [f(4, 10, 160)], "tb_rows_add"
    ),
    "short last axes": (lambda x: tb.log_softmax(x, axis=1), [f(4, 10, 16, 16)], "tb_rows_subtract"),
    "two axes": (centered, [f(8, 6, 97)], "tb_rows_subtract"),
    "batch norm of images": (normed, [f(8, 16, 14, 14), f(16), f(16)], "tb_rows_add"),
    "batch norm of images, backward": (
        with_gradients(normed, 3), [f(8, 16, 14, 14), f(16), f(16), f(8, 16, 14, 14)], "tb_rows_sum"
    ),
    "batch norm of columns": (normed, [f(256, 64), f(64), f(64)], "tb_rows_add"),
    "batch norm, evaluated": (
        F.batch_norm, [f(8, 16, 14, 14), f(16), np.abs(f(16)), f(16), f(16)], "tb_add"
    ),
    "standard scores": (lambda x: (x - x.mean(axis=0)) / x.std(axis=0), [f(300, 70)], "tb_rows_divide"),
    "conditions": (
        lambda x: tb.where((x > 2).any(axis=0), x.max(axis=0) - x, x), [f(100, 70)], "tb_rows_where"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_it_is_one_kernel_and_right(name: str) -> None:
    function, arrays, kernel = CASES[name]
    program = check(function, *arrays, tolerance=2e-4)
    assert steps_by_name(program) == [kernel], str(program)


@pytest.mark.parametrize("name", ["softmax of columns", "batch norm of images", "batch norm, evaluated"])
def test_it_is_one_kernel_of_light_items(name: str) -> None:
    function, arrays, kernel = CASES[name]
    graph = record(function, *(Spec(a.shape, dt.dtype(str(a.dtype))) for a in arrays))
    _, program = program_of(graph, THIN)
    assert steps_by_name(program) == [kernel], str(program)


def test_long_columns_are_walked_by_all_cores_several_times() -> None:
    graph = record(lambda x: tb.softmax(x, axis=0), Spec((100_000, 64), dt.float32))
    assert len(steps_by_name(program_of(graph)[1])) > 1


def test_strips_are_whole_cache_lines_and_enough_for_all_cores() -> None:
    for rows in (40, 100, 700):
        width = strip_width((rows, 4096), (0,), CPU)
        assert width % 32 == 0
        assert 4096 // width >= CPU.groups // 4
    assert strip_width((100, 8), (0,), CPU) == 0
