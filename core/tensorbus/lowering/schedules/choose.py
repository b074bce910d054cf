"""The choice of a schedule for a fusion group: the first of one ordered table that applies to it on a target.

A target may bring schedules of its own (``Target.schedules``), which are asked first. Each entry answers
whether it applies or why not; the answers up to the one that was taken stand in the ``schedules`` stage of a
program, which ``TENSORBUS_DUMP`` shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from typing import Final

from ...errors import UnsupportedOpError
from ..ir.kernel_task import KernelLaunch, LaunchList, ScheduleChoice
from ..target import AnySchedule, Target
from .schedule import Schedule, ScheduleRequest


@dataclass(frozen=True, slots=True)
class _Entry:
    """A schedule for groups of one kind: its name in a module, imported with the first such group."""

    kind: str
    module: str
    name: str


TABLE: Final = (
    _Entry("matmul", "matmul", "TILED_MATMUL"),
    _Entry("attention", "attention.key_parts", "KEYS_IN_PARTS"),
    _Entry("attention", "attention.forward", "FLEX_ATTENTION"),
    _Entry("attention", "attention.gradients", "FLEX_ATTENTION_GRADIENTS"),
    # Scatters: sums add up in the order of the indices, so that they never depend on timing.
    _Entry("scatter", "scatter.scatter_row_gpu", "ROW_PER_WORKGROUP"),
    _Entry("scatter", "scatter.scatter", "COPY_ONLY"),
    _Entry("scatter", "scatter.scatter", "ATOMICS"),
    _Entry("scatter", "scatter.scatter", "LAST_INDEX_WINS"),
    _Entry("scatter", "scatter.scatter", "BY_RANK"),
    _Entry("scatter", "scatter.scatter", "SORTED_SEGMENTS"),
    _Entry("scatter", "scatter.scatter", "BUCKET_PER_OWNER"),
    _Entry("scatter", "scatter.scatter", "EVERY_OWNER_READS_ALL"),
    _Entry("sort", "sort.sort", "RANK_SORT"),
    _Entry("sort", "sort.sort", "PARTITION_SORT"),
    _Entry("sort", "sort.sort", "WORKGROUP_RADIX_SORT"),
    _Entry("sort", "sort.sort", "RADIX_SORT"),
    _Entry("scan", "scan.scan_gpu", "WORKGROUP_SCAN"),
    _Entry("scan", "scan.scan", "CHUNKED_SCAN"),
    _Entry("reduction", "reduction.column_reduction_gpu", "COLUMNS_BY_WORKGROUPS"),
    # One reduction alone, in C order.
    _Entry("reduction", "reduction.reduction", "COLUMN_PANELS"),
    _Entry("reduction", "reduction.reduction", "ONE_PASS"),
    _Entry("reduction", "reduction.reduction", "LAST_WORKGROUP_JOINS"),
    _Entry("reduction", "reduction.reduction", "TWO_STAGES"),
    # Groups of reductions, with values stored on the way and an epilogue.
    _Entry("reduction", "normalization.column_normalization", "COLUMN_NORMALIZATION"),
    _Entry("reduction", "normalization.row_normalization_gpu", "ROW_PER_WORKGROUP"),
    _Entry("reduction", "normalization.row_normalization", "PERSISTENT_ROWS"),
    _Entry("reduction", "reduction.multi_reduction", "MULTI_COLUMN_PANELS"),
    _Entry("reduction", "reduction.multi_reduction", "MULTI_REDUCTION"),
    _Entry("pointwise", "pointwise.pointwise", "EMPTY"),
    _Entry("pointwise", "pointwise.pointwise", "STACK"),
    _Entry("pointwise", "pointwise.pointwise", "TRANSPOSE_TILES"),
    _Entry("pointwise", "pointwise.pointwise", "VECTOR_LOOPS"),
    _Entry("pointwise", "pointwise.pointwise", "VECTOR_ACCESSES"),
    _Entry("pointwise", "pointwise.pointwise", "GRID_STRIDE"),
    _Entry("pointwise", "pointwise.pointwise", "POINTWISE"),
)
"""The schedules of the core, in the order in which they are asked."""


@cache
def _load(entry: _Entry) -> Schedule:
    schedule = getattr(import_module(f".{entry.module}", __package__), entry.name)
    assert isinstance(schedule, Schedule)
    return schedule


def schedules_for(kind: str, target: Target) -> Iterator[AnySchedule]:
    """Yield the schedules that are asked about groups of a kind, in order: the target's own first."""
    for own in target.schedules:
        if kind in own.kinds:
            yield own
    for entry in TABLE:
        if entry.kind == kind:
            yield _load(entry)


def build(request: ScheduleRequest, launches: LaunchList) -> ScheduleChoice:
    """Append the launches of a group by the first schedule that applies and can be written; return it."""
    refused: list[tuple[str, str]] = []
    for schedule in schedules_for(request.kind, launches.target):
        before = len(launches.items)
        verdict = schedule.applies(request, launches.target)
        if verdict is True:
            verdict = schedule.build(request, launches) or True
        if verdict is True:
            choice = ScheduleChoice(name=schedule.name, reason=schedule.about, refused=tuple(refused))
            launches.items[before:] = [
                replace(item, choice=choice) if isinstance(item, KernelLaunch) else item
                for item in launches.items[before:]
            ]
            return choice
        refused.append((schedule.name, verdict))
    raise _no_schedule(request, refused)


def _no_schedule(request: ScheduleRequest, refused: list[tuple[str, str]]) -> UnsupportedOpError:
    reasons = "".join(f"\n  {name}: {why}" for name, why in refused)
    return UnsupportedOpError(f"{request.root.op}: no schedule applies.{reasons}")
