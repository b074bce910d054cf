"""The hardware as schedules see it; packages written for former names of its fields go on working."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields, replace

import pytest
import tensorbus as tb
from fused import CPU, program_of, record, spec
from tensorbus.backend_api import CASTS, EXPRESSIONS, Dialect, Heuristics, Target, TypeRule

FORMER = {
    "groups": "tasks_to_fill", "items": "work_items_to_fill", "solo_rows": "row_per_task",
    "chunk": "min_chunk", "tile": "tile_rows", "register": "register_bytes", "wide_ops": "vector_ops",
    "map_ops": "pointwise_vector_ops", "map_lanes": "pointwise_vector_lanes", "packet": "vector_bytes",
    "swap": "subgroup_size", "buffers": "max_buffers", "combined": "atomics", "team": "max_workgroup",
    "shared": "local_memory", "ends": "last_task_epilogue", "counts": "workgroup_counters",
}  # fmt: skip


@pytest.mark.parametrize("former", FORMER)
def test_a_field_is_given_and_read_by_its_former_name(former: str) -> None:
    field = FORMER[former]
    assert field in {f.name for f in fields(Target)}
    target = Target(**{former: 7})
    assert getattr(target, field) == getattr(target, former) == 7
    assert target == Target(**{field: 7}) == replace(Target(), **{former: 7})


def test_shuffles_are_taken_by_their_former_name() -> None:
    rule = TypeRule(storage="long", register="long")
    shuffle = {"float": "swapped({0}, 1)"}
    dialect = Dialect(
        name="C", types={}, index=rule, expressions={**EXPRESSIONS, "swap_1": shuffle}, casts=CASTS,
        kernel="", task="", buffer="",
    )  # fmt: skip
    assert dialect.expressions["shuffle_xor_1"] is shuffle
    assert "shuffle_xor_1" not in replace(dialect, expressions=EXPRESSIONS).expressions


def test_autotuning_reaches_the_target_and_its_heuristics() -> None:
    result = Target().tuned({"tasks_to_fill": 3, "tile": 2, "panel_width": 512, "way": 4, "most@tb_sum": 64})
    assert (result.tasks_to_fill, result.tile_rows, result.heuristics.panel_width) == (3, 2, 512)
    assert result == Target(tasks_to_fill=3, tile_rows=2, heuristics=Heuristics(panel_width=512))
    assert Target().tuned({}) == Target()


def test_a_device_of_other_thresholds_gets_other_schedules() -> None:
    graph = record(lambda x: tb.sort(x, axis=1), spec(7, 40))
    sorts = [program_of(graph, CPU.tuned({"rank_sort_max_length": n}))[1].schedules() for n in (39, 40)]
    assert ["not rank sort" in text for text in sorts] == [True, False]
    assert "not rank sort: rows are longer than 39" in sorts[0]


def test_each_threshold_is_a_positive_number_with_a_line_that_says_what_it_bounds() -> None:
    assert all(getattr(Heuristics(), f.name) > 0 for f in fields(Heuristics))
    source = inspect.getsource(Heuristics)
    for f in fields(Heuristics):
        assert re.search(rf'^    {f.name}: int = [^\n]*\n    """[A-Z]', source, re.MULTILINE), f.name
