"""The schedules of maps: how the elements of a domain are looped over where none of them waits for another.

Each is a form that any map can be asked about. Those of groups are chosen as rows of the table in ``choose``;
a map that is a part of another schedule, such as the copy before a scatter, takes the first form that applies
in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Final

from ....dtypes.definition import DType
from ....tracing.sym_int import always_same, near
from ...fusion.canonicalize import DomainKernel, canonical
from ...fusion.collapse_dims import before_reshapes, collapse
from ...fusion.materialize import cost_of, is_stack
from ...ir import index_expr as ix
from ...ir.builder import Builder
from ...ir.index_expr import const
from ...ir.kernel_task import KernelLaunch, KernelTask, LaunchList, parallel_loops
from ...ir.loop_ir import Expr
from ...op_sets import calls_function
from ...target import Target
from ..reduction.reducer import State
from ..schedule import Schedule, ScheduleRequest, Verdict
from .elementwise_map import ElementwiseMap, map_of_group, map_of_task
from .grid_stride import grid_stride_loop
from .padded_rows import over_padding
from .stores import aligned_slots, is_nontemporal
from .transpose_tile import lower_transpose_tiles
from .vector_access import emit_vector, vector_width
from .vectorize import VECTOR_DTYPES, VectorLoop, has_vectors, map_vectors


@dataclass(frozen=True, slots=True, kw_only=True)
class MapForm:
    """A way to write any map: ``applies`` and ``build`` as of a ``Schedule``, which it is for groups."""

    name: str
    about: str
    applies: Callable[[ElementwiseMap, Target], Verdict]
    build: Callable[[ElementwiseMap, LaunchList], str | None]

    @property
    def schedule(self) -> Schedule:
        """The schedule that writes groups in this form."""

        def applies(request: ScheduleRequest, target: Target) -> Verdict:
            return self.applies(request.once(_map_of, target), target)

        def build(request: ScheduleRequest, launches: LaunchList) -> str | None:
            before = len(launches.items)
            refused = self.build(request.once(_map_of, launches.target), launches)
            if refused is None:
                _mark(request, launches, before)
            return refused

        return Schedule(name=self.name, about=self.about, kinds=_KIND, applies=applies, build=build)


def lower_map(task: KernelTask, steps: LaunchList) -> None:
    """Append the launch of a map that is a part of another schedule."""
    elements = map_of_task(task, steps.target.heuristics)
    for form in FORMS:
        if form.applies(elements, steps.target) is True and form.build(elements, steps) is None:
            return


def _map_of(request: ScheduleRequest, target: Target) -> ElementwiseMap:
    """Return the group as a map: over its own axes where it is one result in C order."""
    if request.single(target) is not True:
        return map_of_group(request.once(_over_padding, target), target.heuristics)
    task = request.task
    task = collapse(before_reshapes(task) if target.row_per_task else task)
    return map_of_task(task, target.heuristics)


def _over_padding(request: ScheduleRequest, target: Target) -> DomainKernel:
    return over_padding(request.kernel, request.own_slots)


def _mark(request: ScheduleRequest, launches: LaunchList, before: int) -> None:
    """Say of the launch, if there is one, what it reads only at the element that it writes."""
    target = launches.target
    if request.single(target) is not True:
        same = aligned_slots(request.once(_over_padding, target))
    elif request.reuses:
        stored = {k: request.where[k].slot for k in request.group.roots}
        same = aligned_slots(canonical(request.group, request.where, request.scalars, stored))
    else:
        return
    for k, launch in enumerate(launches.items[before:], before):
        assert isinstance(launch, KernelLaunch)
        launches.items[k] = replace(launch, aligned_reads=same, pointwise=True)


def _is_transposed(x: ElementwiseMap, target: Target) -> Verdict:
    if not target.row_per_task:
        return "it is for tasks, which have memory of their own"
    return True if x.transposed is not None else "no operand is transposed"


def _build_tiles(x: ElementwiseMap, steps: LaunchList) -> None:
    assert x.task is not None
    assert x.transposed is not None
    lower_transpose_tiles(x.task, steps, *x.transposed)


def _is_in_vectors(x: ElementwiseMap, target: Target) -> Verdict:
    """Return whether a map is written in vectors, if it can be.

    Where the compiler makes vectors as well, these pay in what calls functions or goes past the caches.
    """
    limits, shape = target.heuristics, x.domain
    if not target.row_per_task:
        return "it is for tasks"
    if x.transposed is not None:
        return "an operand is transposed"
    if not shape or shape[-1] < limits.vector_row_min_length:
        return f"rows are shorter than {limits.vector_row_min_length}"
    if not has_vectors(target, x.dtypes):
        return "the language has no vectors of a result's dtype"
    if target.vector_ops:
        return True
    if not target.pointwise_vector_ops:
        return "the language has no vectors"
    rounds = not VECTOR_DTYPES.issuperset(x.dtypes)
    costly = prod(shape) >= limits.vector_function_min_elements and (
        rounds or any(calls_function(node.op) for node in x.graph)
    )
    # Rows that are not whole vectors end up past the caches too.
    even = len(shape) == 1 or shape[-1] % max(target.pointwise_vector_lanes, 1) == 0
    if costly or (even and any(is_nontemporal(shape, d, limits) for d in x.dtypes)):
        return True
    return "the compiler's vectors are as good: no functions of many elements, no stores past the caches"


def _build_vectors(x: ElementwiseMap, steps: LaunchList) -> str | None:
    piece = steps.target.heuristics.vector_piece
    kernel = x.open(x.vector_name)
    b, lengths = kernel.b, kernel.lengths
    pieces = -(-x.domain[-1] // piece)
    numbers = [*lengths[:-1], b.size("pieces", pieces)]
    outer, loops = parallel_loops(b, numbers, [*x.domain[:-1], pieces])
    start = b.let(ix.multiply(outer[-1], const(piece)), "start")
    stop = b.let(ix.minimum(ix.add(start, const(piece)), lengths[-1]), "stop")

    def emit(k: Expr) -> State:
        kernel.emit((*outer[:-1], k))
        return ()

    if not VectorLoop(vectors=map_vectors(steps.target, x.dtypes), emit=emit).loop(b, start, stop):
        return "what it computes has no form in the language's vectors"
    kernel.finish(steps, loops, task=True)
    return None


def _access_dtypes(x: ElementwiseMap) -> list[DType]:
    """Return the dtypes of what is read and written at each element of the domain."""
    inputs = [n.spec for n in x.graph if n.op == "input"]
    return [*x.wide, *(spec.dtype for spec in inputs if always_same(spec.shape, x.domain))]


def _has_accesses(x: ElementwiseMap, target: Target) -> Verdict:
    limits, shape = target.heuristics, x.domain
    if x.transposed is not None:
        return "an operand is transposed"
    if not shape or near(prod(shape)) < limits.access_min_elements:
        return f"there are fewer than {limits.access_min_elements} elements"
    wide = vector_width(target, shape[-1], _access_dtypes(x)) > 1
    return True if wide else "rows are no whole vectors that a work-item accesses at once"


def _build_accesses(x: ElementwiseMap, steps: LaunchList) -> None:
    """Append a map whose work-items make a vector of neighbours each."""
    kernel, length, dtypes = x.open(x.name), x.domain[-1], _access_dtypes(x)
    b, lengths = kernel.b, kernel.lengths
    lanes = vector_width(steps.target, length, dtypes)
    small = all(d.itemsize <= 2 for d in dtypes)
    if small and length % (2 * lanes) == 0 and any(calls_function(n.op) for n in x.graph):
        lanes *= 2  # what one vector waits for, the other computes
    count = length // lanes
    outer, loops = parallel_loops(b, [*lengths[:-1], b.size("vectors", count)], [*x.domain[:-1], count])
    first = b.let(ix.multiply(outer[-1], const(lanes)), "first")
    emit_vector(b, lanes, lambda u: kernel.emit((*outer[:-1], ix.add(first, u))))
    kernel.finish(steps, loops)


def _is_long_vector(x: ElementwiseMap, target: Target) -> Verdict:
    least = target.heuristics.grid_stride_min_elements
    if target.row_per_task:
        return "it is for work-items"
    long = len(x.domain) == 1 and x.domain[0] >= least
    return True if long else f"it is not one axis of {least} elements or more"


def _build_grid_stride(x: ElementwiseMap, steps: LaunchList) -> None:
    kernel = x.open(x.name)
    length = kernel.lengths[0]
    loops = grid_stride_loop(kernel.b, steps.target, length, x.domain[0], lambda k: kernel.emit((k,)))
    kernel.finish(steps, loops)


def _any(x: ElementwiseMap, target: Target) -> Verdict:
    return True


def _build_each(x: ElementwiseMap, steps: LaunchList) -> None:
    across = None if x.transposed is None else x.transposed[0]
    kernel = x.open(x.name)
    index, loops = parallel_loops(kernel.b, kernel.lengths, x.domain, across)
    kernel.emit(index)
    kernel.finish(steps, loops, tiled=across is not None, fills=kernel.fills)


FORMS: Final = (
    MapForm(
        name="transposed tiles",
        about="an operand is transposed: a task turns a tile at a time in memory of its own",
        applies=_is_transposed, build=_build_tiles,
    ),
    MapForm(
        name="pointwise in vectors",
        about="a task takes a piece of a row in the language's vectors",
        applies=_is_in_vectors, build=_build_vectors,
    ),
    MapForm(
        name="pointwise by vector accesses",
        about="a work-item computes neighbours that it loads and stores at once",
        applies=_has_accesses, build=_build_accesses,
    ),
    MapForm(
        name="grid-stride loop",
        about="a work-item computes elements far apart, whose loads overlap",
        applies=_is_long_vector, build=_build_grid_stride,
    ),
    MapForm(
        name="pointwise",
        about="each element is computed alone, wherever its operands and results lie",
        applies=_any, build=_build_each,
    ),
)  # fmt: skip
"""The forms of maps, in the order in which they are asked."""


def _is_empty(request: ScheduleRequest, target: Target) -> Verdict:
    return True if 0 in request.group.domain else "there are elements"


def _build_nothing(request: ScheduleRequest, launches: LaunchList) -> None:
    pass


def lower_stack(task: KernelTask, steps: LaunchList) -> None:
    """Append the launch that computes all operands of a concat, of one shape, side by side.

    What they have in common is computed once: the words of a random number generator, sine and cosine.
    """
    root, axis = task.root, task.root.attrs["axis"]
    b = Builder("tb_stack")
    inliner, slots = task.inliner(b)
    shape = root.inputs[0].spec.shape
    lengths = inliner.lengths(root.inputs[0])
    index, loops = parallel_loops(b, lengths, shape)
    b.buffer("out", root.spec.dtype, writes=True)
    total = inliner.lengths(root)
    for k, operand in enumerate(root.inputs):
        shift = ix.multiply(const(k), lengths[axis])
        at = (*index[:axis], ix.add(index[axis], shift), *index[axis + 1 :])
        b.store("out", ix.flatten(at, total), inliner.value(operand, index))
    steps.add(b.finish(loops), {**slots, "out": task.out})


def _stacks(request: ScheduleRequest, target: Target) -> Verdict:
    single = request.single(target)
    if single is not True:
        return single
    task, limits = request.task, target.heuristics
    computed = is_stack(task.root, cost_of(task.graph, limits), limits)
    return True if computed else "it is no concatenation of computed operands of one shape"


def _build_stack(request: ScheduleRequest, launches: LaunchList) -> None:
    lower_stack(request.task, launches)


_KIND: Final = frozenset({"pointwise"})
EMPTY: Final = Schedule(
    name="map of nothing",
    about="there are no elements: nothing is launched",
    kinds=_KIND, applies=_is_empty, build=_build_nothing,
)  # fmt: skip
STACK: Final = Schedule(
    name="stack",
    about="operands of one shape are computed side by side, with what they have in common",
    kinds=_KIND, applies=_stacks, build=_build_stack,
)  # fmt: skip
TRANSPOSE_TILES, VECTOR_LOOPS, VECTOR_ACCESSES, GRID_STRIDE, POINTWISE = (form.schedule for form in FORMS)
