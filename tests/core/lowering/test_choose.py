"""The choice of a schedule: the first of an ordered table that applies, with the reasons of the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import tensorbus as tb
from fused import CPU, THIN, program_of, record, spec
from fused_programs import HALVES, OF_A_TOY, TOY, lowered
from tensorbus.dtypes import definition as dt
from tensorbus.errors import UnsupportedOpError
from tensorbus.lowering.ir.kernel_task import ScheduleChoice
from tensorbus.lowering.program.program import Program, steps_of
from tensorbus.lowering.schedules.choose import TABLE, schedules_for
from tensorbus.lowering.schedules.pointwise.pointwise import FORMS
from tensorbus.lowering.target import Target

WIDE = replace(THIN, subgroup_size=32, vector_bytes=16)


def choices(program: Program) -> list[ScheduleChoice]:
    """Return the choice of each launch."""
    results = [step.choice for item in program.steps for step in steps_of(item)]
    assert all(results)
    return [choice for choice in results if choice is not None]


def chosen(function: Any, *specs: Any, target: Target = CPU) -> list[str]:
    """Return the names of the schedules of a program's launches, each once."""
    return list(dict.fromkeys(c.name for c in choices(program_of(record(function, *specs), target)[1])))


def test_names_in_the_table_are_schedules_of_their_kind() -> None:
    for entry in TABLE:
        loaded = [s for s in schedules_for(entry.kind, CPU) if entry.kind in s.kinds]
        assert len(loaded) == sum(other.kind == entry.kind for other in TABLE)
        assert len({s.name for s in loaded}) == len(loaded)
        assert all(s.about for s in loaded)


def test_parts_of_other_schedules_ask_the_forms_of_maps_in_the_order_of_the_table() -> None:
    rows = [s.name for s in schedules_for("pointwise", CPU)]
    assert rows[-len(FORMS) :] == [form.name for form in FORMS]


@pytest.mark.parametrize(
    ("function", "specs", "cores", "work_items"),
    [
        (lambda x: tb.softmax(x, axis=1), [spec(64, 300)],
         "row normalization", "row normalization by workgroups"),
        (lambda x: tb.softmax(x, axis=0), [spec(90, 200)], "column normalization", "row normalization"),
        (lambda x: x.sum(axis=1), [spec(70, 1000)], "reduction in one pass",
         "row normalization by workgroups"),
        (lambda x: tb.exp(x) + 1, [spec(70)], "pointwise", "pointwise"),
        (lambda x: tb.sort(x, axis=1), [spec(7, 20)], "rank sort", "rank sort"),
        (lambda x: tb.sort(x, axis=1), [spec(7, 2000)], "radix sort", "radix sort by workgroups"),
        (lambda x: tb.sort(x, axis=1), [spec(7, 2000, dtype=dt.bool_)],
         "radix sort", "partition by workgroups"),
        (lambda x: tb.cumulative_sum(x, axis=1), [spec(9, 1000)], "scan in chunks", "scan by workgroups"),
        (lambda x: (tb.exp(x), tb.sin(x)), [spec(70)], "pointwise", "pointwise"),
        (lambda x: (tb.exp(x), tb.sin(x)), [spec(1 << 20)], "pointwise", "pointwise by vector accesses"),
        (lambda x: x * 2, [spec((1 << 20) + 3)], "pointwise", "grid-stride loop"),
        (lambda x, y: x.mT + y, [spec(70, 90), spec(90, 70)], "transposed tiles", "pointwise"),
    ],
)  # fmt: skip
def test_a_group_gets_the_schedule_of_its_target(
    function: Any, specs: list[Any], cores: str, work_items: str
) -> None:
    assert chosen(function, *specs) == [cores]
    assert chosen(function, *specs, target=WIDE) == [work_items]


def test_the_reasons_of_the_refused_ones_are_shown() -> None:
    _, program = program_of(record(lambda x: tb.softmax(x, axis=1), spec(64, 300)))
    (choice,) = choices(program)
    assert dict(choice.refused)["column reduction by workgroups"] == "work-items have no subgroups"
    text = program.schedules()
    assert text.startswith("tb_rows_divide: row normalization: ")
    for name, why in choice.refused:
        assert f"  not {name}: {why}" in text.splitlines()
    assert "  not column normalization: reductions go over the last axis" in text.splitlines()
    assert "  not row normalization by workgroups: rows are reduced by tasks" in text.splitlines()


def test_a_target_brings_a_schedule_of_its_own() -> None:
    _, program = lowered(OF_A_TOY["an even length"])
    (choice,) = choices(program)
    assert (choice.name, choice.refused) == ("halves", ())
    assert {kernel.name for kernel in program.kernels()} == {"halves_multiply"}
    _, odd = lowered(OF_A_TOY["an odd length"])
    (choice,) = choices(odd)
    assert choice == ScheduleChoice(
        name="pointwise", reason=choice.reason,
        refused=(("halves", "it is no vector of even length"), *choice.refused[1:]),
    )  # fmt: skip
    assert "not halves: it is no vector of even length" in odd.schedules()


def test_equal_groups_share_the_choice_and_other_targets_do_not() -> None:
    function = lambda x: tb.exp(x) - 2  # noqa: E731
    assert chosen(function, spec(1000), target=TOY) == chosen(function, spec(1000), target=TOY) == ["halves"]
    assert chosen(function, spec(1000)) == ["pointwise"]


def test_a_schedule_that_cannot_be_written_hands_on_with_its_reason() -> None:
    lazy = replace(HALVES, name="lazy", build=lambda request, launches: "there is nothing to write it with")
    graph = record(lambda x: x * 3, spec(8))
    _, program = program_of(graph, replace(CPU, schedules=(lazy, HALVES)))
    (choice,) = choices(program)
    assert choice.name == "halves"
    assert choice.refused == (("lazy", "there is nothing to write it with"),)


def test_without_a_schedule_the_error_has_all_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorbus.lowering.schedules import choose as module

    monkeypatch.setattr(module, "TABLE", ())
    with pytest.raises(UnsupportedOpError, match=r"(?s)no schedule applies.*halves: it is no vector"):
        program_of(record(lambda x: tb.tanh(x) * 5, spec(31, dtype=dt.float64)), TOY)
