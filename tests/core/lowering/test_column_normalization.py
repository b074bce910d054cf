"""Column normalization: dependent reductions over other axes than the last are one kernel."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tensorbus as tb
from fused import CPU, THIN, program_of, record, steps_by_name
from fused_programs import COLUMNS, steps_of_case
from tensorbus.dtypes import definition as dt
from tensorbus.lowering.fusion.fusion_groups import column_panel_width
from tensorbus.ops.definition import Spec

KERNELS = {
    "softmax of columns": "tb_rows_divide",
    "softmax of a middle axis": "tb_rows_divide",
    "softmax of columns, backward": "tb_rows_multiply",
    "two results": "tb_rows_add",
    "short last axes": "tb_rows_subtract",
    "two axes": "tb_rows_subtract",
    "batch norm of images": "tb_rows_add",
    "batch norm of images, backward": "tb_rows_sum",
    "batch norm of columns": "tb_rows_add",
    "batch norm, evaluated": "tb_add",
    "standard scores": "tb_rows_divide",
    "conditions": "tb_rows_where",
}


@pytest.mark.parametrize("name", COLUMNS)
def test_it_is_one_kernel(name: str) -> None:
    assert steps_of_case(COLUMNS[name]) == [KERNELS[name]]


@pytest.mark.parametrize("name", ["softmax of columns", "batch norm of images", "batch norm, evaluated"])
def test_it_is_one_kernel_of_light_items(name: str) -> None:
    assert steps_of_case(replace(COLUMNS[name], target=THIN)) == [KERNELS[name]]


def test_long_columns_are_walked_by_all_cores_several_times() -> None:
    graph = record(lambda x: tb.softmax(x, axis=0), Spec((100_000, 64), dt.float32))
    assert len(steps_by_name(program_of(graph)[1])) > 1


def test_panels_are_whole_cache_lines_and_enough_for_all_cores() -> None:
    for rows in (40, 100, 700):
        width = column_panel_width((rows, 4096), (0,), CPU)
        assert width % 32 == 0
        assert 4096 // width >= CPU.groups // 4
    assert column_panel_width((100, 8), (0,), CPU) == 0
