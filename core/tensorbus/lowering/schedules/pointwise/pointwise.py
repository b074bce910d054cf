"""The schedule of a map: one item for each element of the result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from math import prod
from typing import Final

from ....backend_interface.graph import Graph
from ....dtypes.definition import DType
from ...fusion.canonicalize import DomainKernel, canonical
from ...fusion.collapse_dims import before_reshapes, collapse
from ...fusion.materialize import cost_of, is_stack
from ...ir import index_expr as ix
from ...ir.builder import Builder
from ...ir.index_expr import const
from ...ir.inline import Index, Inliner
from ...ir.kernel_task import KernelLaunch, KernelTask, LaunchList, Loops, element_offset, parallel_loops
from ...ir.layout import Layout, Shape, packed
from ...ir.loop_ir import Expr
from ...op_sets import calls_function
from ...target import Target
from ..reduction.reducer import State
from ..schedule import Schedule, ScheduleRequest, Verdict
from .grid_stride import grid_stride_loop, is_long_vector
from .padded_rows import over_padding
from .stores import aligned_slots, domain_lengths, is_nontemporal, store_offset
from .transpose_tile import lower_transpose_tiles, transposed_inputs
from .vector_access import emit_vector, vector_width
from .vectorize import WIDE, VectorLoop, has_vectors, map_vectors


def lower_map(task: KernelTask, steps: LaunchList) -> None:
    """Append the launch that computes a root of elementwise and movement ops."""
    turned = transposed_inputs(task)
    if turned is not None and steps.target.row_per_task:
        lower_transpose_tiles(task, steps, *turned)
        return
    if turned is None and lower_in_vectors(task, steps):
        return
    b = Builder(f"tb_{task.root.op}")
    inliner, slots = task.inliner(b)
    shape = task.root.spec.shape
    lengths = inliner.lengths(task.root)
    across = None if turned is None else turned[0]
    b.buffer("out", task.root.spec.dtype, writes=True)
    layout = packed(task.out, shape) if task.strides is None else Layout(task.out, shape, task.strides)

    def emit(at: Index) -> None:
        b.store("out", element_offset(b, "out", at, lengths, layout), inliner.value(task.root, at))

    dtype = task.root.spec.dtype
    if turned is None and (loops := _packed(steps, b, inliner, task.graph, shape, lengths, [dtype], emit)):
        steps.add(b.finish(loops), {**slots, "out": task.out})
        return
    if is_long_vector(steps, shape):

        def one(k: Expr) -> None:
            with inliner.scope():
                b.store(
                    "out", element_offset(b, "out", (k,), lengths, layout), inliner.value(task.root, (k,))
                )

        steps.add(
            b.finish(grid_stride_loop(b, steps.target, lengths[0], shape[0], one)), {**slots, "out": task.out}
        )
        return
    index, loops = parallel_loops(b, lengths, shape, across)
    value = inliner.value(task.root, index)
    b.store("out", element_offset(b, "out", index, lengths, layout), value)
    fills = {"out": 1} if layout.is_contiguous else {}
    steps.add(b.finish(loops, tiled=across is not None, fills=fills), {**slots, "out": task.out})


def _packed(
    steps: LaunchList, b: Builder, inliner: Inliner, graph: Graph, domain: Shape, lengths: Sequence[Expr],
    dtypes: Sequence[DType], emit: Callable[[Index], None],
) -> Loops:  # fmt: skip
    """Emit a map whose items make a vector of neighbours each; return its loops, none where it is none."""
    limits = steps.target.heuristics
    if not domain or prod(domain) < limits.access_min_elements:
        return []
    leaves = [n.spec.dtype for n in graph if n.op == "input" and n.spec.shape == domain]
    lanes = vector_width(steps.target, domain[-1], [*dtypes, *leaves])
    if lanes == 1:
        return []
    small = all(d.itemsize <= 2 for d in (*dtypes, *leaves))
    if small and domain[-1] % (2 * lanes) == 0 and any(calls_function(n.op) for n in graph):
        lanes *= 2  # what one vector waits for, the other computes
    count = domain[-1] // lanes
    outer, loops = parallel_loops(b, [*lengths[:-1], b.size("vectors", count)], [*domain[:-1], count])
    first = b.let(ix.multiply(outer[-1], const(lanes)), "first")

    def one(u: Expr) -> None:
        with inliner.scope():
            emit((*outer[:-1], ix.add(first, u)))

    emit_vector(b, lanes, one)
    return loops


def _in_vectors(steps: LaunchList, shape: Shape, graph: Graph, dtypes: Collection[DType]) -> bool:
    """Return whether a map is written in vectors, if it can be.

    Where the compiler makes vectors as well, these pay in what calls functions or goes past the caches.
    """
    limits = steps.target.heuristics
    target = steps.target
    if not target.row_per_task or not shape or shape[-1] < limits.vector_row_min_length:
        return False
    if target.vector_ops:
        return True
    rounds = not WIDE.issuperset(dtypes)
    costly = prod(shape) >= limits.vector_function_min_elements and (
        rounds or any(calls_function(node.op) for node in graph)
    )
    # Rows that are not whole vectors end up past the caches too.
    even = len(shape) == 1 or shape[-1] % max(target.pointwise_vector_lanes, 1) == 0
    nontemporal = even and any(is_nontemporal(shape, d) for d in dtypes)
    return bool(target.pointwise_vector_ops) and (costly or nontemporal)


def lower_in_vectors(task: KernelTask, steps: LaunchList) -> bool:
    """Append the launch of a map that tasks walk in vectors; False, and nothing, where none can."""
    limits = steps.target.heuristics
    target, shape, dtype = steps.target, task.root.spec.shape, task.root.spec.dtype
    if not has_vectors(target, (dtype,)) or not _in_vectors(steps, shape, task.graph, (dtype,)):
        return False
    b = Builder(f"tb_{task.root.op}_wide")
    inliner, slots = task.inliner(b)
    lengths = inliner.lengths(task.root)
    pieces = -(-shape[-1] // limits.vector_piece)
    numbers = [*lengths[:-1], b.size("pieces", pieces)]
    outer, loops = parallel_loops(b, numbers, [*shape[:-1], pieces])
    start = b.let(ix.multiply(outer[-1], const(limits.vector_piece)), "start")
    stop = b.let(ix.minimum(ix.add(start, const(limits.vector_piece)), lengths[-1]), "stop")
    out = b.buffer("out", dtype, writes=True)
    layout = packed(task.out, shape) if task.strides is None else Layout(task.out, shape, task.strides)

    def emit(k: Expr) -> State:
        index = (*outer[:-1], k)
        with inliner.scope():
            value = inliner.value(task.root, index)
            b.store(
                out,
                element_offset(b, "out", index, lengths, layout),
                value,
                nontemporal=is_nontemporal(shape, dtype),
            )
        return ()

    walk = VectorLoop(vectors=map_vectors(target, (dtype,)), emit=emit)
    if not walk.loop(b, start, stop):
        return False
    steps.add(b.finish(loops, task=True), {**slots, "out": task.out})
    return True


def lower_maps(fused: DomainKernel, steps: LaunchList) -> None:
    """Append the launch that computes several results over one domain, element by element."""
    limits = steps.target.heuristics
    target, domain = steps.target, fused.domain
    b = Builder(f"tb_{fused.outputs[-1].node.op}_{len(fused.outputs)}")
    inliner, slots = fused.inliner(b)
    lengths = domain_lengths(b, inliner, fused)
    names = [
        b.buffer(f"out{k}" if k else "out", o.node.spec.dtype, writes=True)
        for k, o in enumerate(fused.outputs)
    ]

    def emit(index: Index) -> None:
        # All values first: an output may take the place of an operand.
        values = b.all([inliner.at(o.node, index) for o in fused.outputs])
        for name, o, e in zip(names, fused.outputs, values, strict=True):
            nontemporal = is_nontemporal(domain, o.node.spec.dtype)
            b.store(name, store_offset(b, name, o, index, lengths, fused), e, nontemporal=nontemporal)

    named = {**slots, **{name: o.slot for name, o in zip(names, fused.outputs, strict=True)}}
    kinds = {o.node.spec.dtype for o in fused.outputs}
    if has_vectors(target, kinds) and _in_vectors(steps, domain, fused.graph, kinds):
        before = len(b.block)
        pieces = -(-domain[-1] // limits.vector_piece)
        numbers = [*lengths[:-1], b.size("pieces", pieces)]
        outer, loops = parallel_loops(b, numbers, [*domain[:-1], pieces])
        start = b.let(ix.multiply(outer[-1], const(limits.vector_piece)), "start")
        stop = b.let(ix.minimum(ix.add(start, const(limits.vector_piece)), lengths[-1]), "stop")

        def each(k: Expr) -> State:
            with inliner.scope():
                emit((*outer[:-1], k))
            return ()

        walk = VectorLoop(vectors=map_vectors(target, kinds), emit=each)
        if walk.loop(b, start, stop):
            steps.add(b.finish(loops, task=True), named, aligned_slots(fused), pointwise=True)
            return
        del b.block[before:]
    dtypes = [o.node.spec.dtype for o in fused.outputs if fused.spans_domain(o.node)]
    if loops := _packed(steps, b, inliner, fused.graph, domain, lengths, dtypes, emit):
        steps.add(b.finish(loops), named, aligned_slots(fused), pointwise=True)
        return
    if is_long_vector(steps, domain):

        def alone(k: Expr) -> None:
            with inliner.scope():
                emit((k,))

        loops = grid_stride_loop(b, steps.target, lengths[0], domain[0], alone)
        steps.add(b.finish(loops), named, aligned_slots(fused), pointwise=True)
        return
    index, loops = parallel_loops(b, lengths, domain)
    emit(index)
    fills = {
        name: 1 for name, o in zip(names, fused.outputs, strict=True)
        if Layout(o.slot, o.node.spec.shape, o.strides).is_contiguous and fused.spans_domain(o.node)
    }  # fmt: skip
    steps.add(b.finish(loops, fills=fills), named, aligned_slots(fused), pointwise=True)


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


def _is_single(request: ScheduleRequest, target: Target) -> Verdict:
    return request.single(target)


def _build_one(request: ScheduleRequest, launches: LaunchList) -> None:
    task, before = request.task, len(launches.items)
    if not prod(task.root.spec.shape):
        return
    lower_map(collapse(before_reshapes(task) if launches.target.row_per_task else task), launches)
    if request.reuses and len(launches.items) == before + 1:
        stored = {k: request.where[k].slot for k in request.group.roots}
        same = aligned_slots(canonical(request.group, request.where, request.scalars, stored))
        made = launches.items[-1]
        assert isinstance(made, KernelLaunch)
        launches.items[-1] = replace(made, aligned_reads=same, pointwise=True)


def _always(request: ScheduleRequest, target: Target) -> Verdict:
    return True


def _build_several(request: ScheduleRequest, launches: LaunchList) -> None:
    lower_maps(over_padding(request.kernel, launches.sizes), launches)


STACK: Final = Schedule(
    name="stack",
    about="operands of one shape are computed side by side, with what they have in common",
    kinds=frozenset({"pointwise"}), applies=_stacks, build=_build_stack,
)  # fmt: skip
POINTWISE: Final = Schedule(
    name="pointwise",
    about="each element of the one result is computed alone",
    kinds=frozenset({"pointwise"}), applies=_is_single, build=_build_one,
)  # fmt: skip
MULTI_POINTWISE: Final = Schedule(
    name="pointwise, several results",
    about="results over one domain are computed element by element, wherever they lie",
    kinds=frozenset({"pointwise"}), applies=_always, build=_build_several,
)  # fmt: skip
