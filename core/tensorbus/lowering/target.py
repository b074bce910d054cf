"""The shape of a device's parallelism, as schedules need to know it. Numbers, no names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal, Protocol

from ..dtypes.definition import DType
from ..system.former_names import former_names
from .heuristics import Heuristics


class AnySchedule(Protocol):
    """The fields of ``schedules.schedule.Schedule``: a way to write the kernels of some fusion groups."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def about(self) -> str:
        """The case in which it is the right one."""
        ...

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of groups that it is for."""
        ...

    @property
    def applies(self) -> Callable[[Any, Target], Literal[True] | str]:
        """Whether it is for a group on a target, or the reason why not."""
        ...

    @property
    def build(self) -> Callable[[Any, Any], str | None]:
        """Appends the launches, or returns the reason why it cannot."""
        ...


@former_names(
    groups="tasks_to_fill",
    items="work_items_to_fill",
    solo_rows="row_per_task",
    chunk="min_chunk",
    tile="tile_rows",
    register="register_bytes",
    wide_ops="vector_ops",
    map_ops="pointwise_vector_ops",
    map_lanes="pointwise_vector_lanes",
    packet="vector_bytes",
    swap="subgroup_size",
    buffers="max_buffers",
    combined="atomics",
    team="max_workgroup",
    shared="local_memory",
    ends="last_task_epilogue",
    counts="workgroup_counters",
)
@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The shape of a device's parallelism.

    A kernel is split into *tasks*, where one thread of a processor with vector units has an equal share of
    the outermost loop each, or into *work-items*, which run in workgroups and subgroups (CUDA's blocks and
    warps, Metal's threadgroups and SIMD groups).

    ``tasks_to_fill``: how many tasks keep every core busy. ``work_items_to_fill``: how many work-items do.
    ``lanes``: how many elements a task computes side by side, in its vector unit. ``row_per_task``: whether a
    row of a reduction is best reduced by one task (cores with vector units) or split among work-items (many
    thin cores). ``min_chunk``: how many elements of a reduction that is split a work-item takes at least.
    ``tile_rows``: how many rows of a product a work-item or task makes at once, in vectors of at most
    ``register_bytes``.
    ``vector_ops``: the ops that the language applies to whole vectors of float32 and float64, ``load_`` and
    ``store_`` of a narrow dtype among them.
    ``pointwise_vector_ops``: where compilers make the vectors (``vector_ops`` is empty), the ops of float32
    that are written in vectors of ``pointwise_vector_lanes`` all the same: in kernels that store past the
    caches or call functions of elements. ``load_``, ``store_`` and ``round_`` of a narrow dtype among them
    say that its vectors are ones of float32 whose results are rounded.
    ``vector_bytes``: the bytes of the widest access of a work-item; 0: it accesses one element at a time.
    ``subgroup_size``: how many neighbouring work-items, a power of two, can read each other's registers by
    the ops ``shuffle_xor_1``, ``shuffle_xor_2`` ..., which give the value of the work-item whose number
    differs in that bit; 0: none can.
    ``scan_lanes``: of how many float32 in a vector the language gives the running sums; 0: of none. Beside
    them a scan needs no more than ``scan_ops`` then.
    ``max_buffers``: how many buffers a kernel may have, beside that of errors; 0: any number.
    ``atomics``: the ops, with the dtype, by which work-items may all update one place, in whatever order.
    ``max_workgroup``: the most work-items of a workgroup; ``local_memory``: the bytes of the arrays that they
    share at most.
    ``last_task_epilogue``: whether the last task to end sees what the others stored, and may go on with that.
    ``workgroup_counters``: at how many places workgroups can be counted, so that the last of them may do so;
    0: at none.
    ``schedules``: schedules of the device's own, which are asked before those of the core: see
    ``schedules.choose``. ``heuristics``: the thresholds at which schedules change.
    """

    tasks_to_fill: int = 16
    work_items_to_fill: int = 1024
    lanes: int = 16
    row_per_task: bool = True
    tile_rows: int = 8
    register_bytes: int = 64
    vector_ops: frozenset[str] = frozenset()
    pointwise_vector_ops: frozenset[str] = frozenset()
    pointwise_vector_lanes: int = 0
    vector_bytes: int = 0
    subgroup_size: int = 0
    scan_lanes: int = 0
    scan_ops: frozenset[str] = frozenset()
    max_buffers: int = 0
    atomics: frozenset[tuple[str, DType]] = frozenset()
    max_workgroup: int = 256
    local_memory: int = 1 << 15
    last_task_epilogue: bool = False
    workgroup_counters: int = 0
    min_chunk: int = 64
    schedules: tuple[AnySchedule, ...] = ()
    heuristics: Heuristics = field(default_factory=Heuristics)

    def tuned(self, chosen: Mapping[str, int]) -> Target:
        """Return the target with the numbers that autotuning chose: fields of it, or of its heuristics.

        Former names are taken too. What is named otherwise is nothing of the target's.
        """
        own: dict[str, Any] = {k: v for k, v in chosen.items() if k in _NUMBERS}
        limits = {k: v for k, v in chosen.items() if k in _THRESHOLDS}
        return replace(self, heuristics=replace(self.heuristics, **limits), **own)


_NUMBERS: Final = frozenset(name for name in vars(Target) if not name.startswith("_")) - {"tuned"}
_THRESHOLDS: Final = frozenset(f.name for f in fields(Heuristics))
