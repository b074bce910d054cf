"""The hardware as schedules see it; packages written for former names of its fields go on working."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from tensorbus.backend_api import CASTS, EXPRESSIONS, Dialect, Target, TypeRule

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
    made = Target(**{former: 7})
    assert getattr(made, field) == getattr(made, former) == 7
    assert made == Target(**{field: 7}) == replace(Target(), **{former: 7})


def test_shuffles_are_taken_by_their_former_name() -> None:
    rule = TypeRule(storage="long", register="long")
    shuffle = {"float": "swapped({0}, 1)"}
    made = Dialect(
        name="C", types={}, index=rule, expressions={**EXPRESSIONS, "swap_1": shuffle}, casts=CASTS,
        kernel="", solo="", buffer="",
    )  # fmt: skip
    assert made.expressions["shuffle_xor_1"] is shuffle
    assert "shuffle_xor_1" not in replace(made, expressions=EXPRESSIONS).expressions
