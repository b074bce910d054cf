"""From one placement to another: the cheapest sequence of collectives, as one op with a derivative."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from ...dispatch.modes import is_value_mode
from ...dispatch.remarks import remark
from ...eager import functions
from ...errors import AutogradError, DistributedError
from ...library import custom_op
from ...library.custom_op import definition_of
from ...ops.creation.creation import ones_like, zeros_like
from ...tensor.tensor import Tensor
from ...tracing.active_modes import active_modes
from ..collectives import functional
from ..process_group.group import ProcessGroup, get_group
from ..process_group.world import is_initialized
from .device_mesh import DeviceMesh
from .layout import MeshLayout
from .placements import (
    Partial,
    Placement,
    Placements,
    Replicate,
    Shard,
    StridedShard,
    chunk_lengths,
    chunk_of,
    local_shape,
    mixes_reductions,
    plain,
    splits_inside,
)

MAX_GATHERED: Final = 1 << 20
"""Elements of all ranks up to which extremes are taken of what is gathered, by kernels of the program."""
COLLECTIVE_COST: Final = 1 << 16
"""Elements that are sent in the time that a collective takes to begin: it counts as so many more."""
_MAX_SEARCHED_DIMS: Final = 3
"""Of more dimensions of a mesh the steps split a tensor along the target's axes alone: it takes too long."""
_EXTREMES: Final[dict[str, Callable[..., Tensor]]] = {"min": functions.min, "max": functions.max}


class Step(NamedTuple):
    """A change of placement along one dimension of the mesh.

    ``elements`` are those that a rank sends by ``collective``, "" where it sends none.
    """

    mesh_dim: int
    before: Placement
    after: Placement
    elements: int
    collective: str


def redistribute(
    x: Tensor, mesh: DeviceMesh, shape: Sequence[int], source: Placements, target: Placements,
    label: str = "",
) -> Tensor:  # fmt: skip
    """Return this rank's part of a tensor of ``shape`` in ``target``, given that in ``source``.

    ``label`` says what tensor it is, for ranks to compare.

    The derivative is that of the tensor as a whole: what comes back in the target's placements goes to the
    source's; what belongs to terms of a sum is the same on each rank.
    """
    if source == target:
        return x
    _check_ranks()
    groups = "|".join(group.name for group in mesh.groups)
    result: Tensor = _redistribute(x, tuple(shape), _spelled(source), _spelled(target), groups, label)
    return result


def move(x: Tensor, source: MeshLayout, target: MeshLayout, label: str = "") -> Tensor:
    """Return this rank's part in the layout ``target``, given that in ``source``, as ``redistribute`` does.

    Where nothing is recorded the steps are taken at once, without an op around them.
    """
    mesh = source.mesh
    if active_modes or x._node is not None or is_value_mode(x._vtype.device.type):
        return redistribute(x, mesh, source.shape, source.placements, target.placements, label)
    _check_ranks()
    way: Way | None = source.ways.get(target)
    if way is None:
        way = source.ways[target] = _way(source.shape, source.placements, target.placements, mesh.groups)
    remark(lambda: _described(x, source.shape, mesh.shape, source.placements, target.placements))
    result = _taken(x, way, label)
    return result.clone() if way.aliases else result


def _check_ranks() -> None:
    if not is_initialized():
        raise DistributedError(
            "redistribute: the ranks of this distributed tensor have ended, and nobody has the other parts;"
            " to_local() is this rank's. Let the ranks return full_tensor(), or write it by tensorbus.save."
        )


def gradient_placements(placements: Placements) -> Placements:
    """Return where the gradient of a tensor lies: that of each term of a sum is the whole one."""
    return tuple(Replicate() if isinstance(p, Partial) else p for p in placements)


def collectives_between(
    shape: tuple[int, ...], sizes: tuple[int, ...], source: Placements, target: Placements
) -> tuple[list[str], int]:
    """Return the collectives of a change of placements, and how many elements a rank sends."""
    steps = plan(shape, sizes, source, target)
    return [step.collective for step in steps if step.collective], sum(step.elements for step in steps)


@lru_cache(maxsize=4096)
def plan(
    shape: tuple[int, ...], sizes: tuple[int, ...], source: Placements, target: Placements
) -> tuple[Step, ...]:
    """Return the cheapest steps, by the elements that a rank sends and the collectives, then by their number.

    On the way a tensor may be split along any axis: terms of a large sum along two dimensions of a mesh are
    added up in parts.
    """
    heap: list[tuple[int, int, int, Placements, tuple[Step, ...]]] = [(0, 0, 0, source, ())]
    done: set[Placements] = set()
    count = 0
    while True:
        cost, length, _, state, steps = heapq.heappop(heap)
        if state == target:
            return steps
        if state in done:
            continue
        done.add(state)
        for step in _steps(shape, sizes, state, target):
            following = plain((*state[: step.mesh_dim], step.after, *state[step.mesh_dim + 1 :]))
            if mixes_reductions(following) and not mixes_reductions(state):
                continue
            count += 1
            more = step.elements + (COLLECTIVE_COST if step.collective else 0)
            heapq.heappush(heap, (cost + more, length + 1, count, following, (*steps, step)))


def cost_between(
    shape: tuple[int, ...], sizes: tuple[int, ...], source: Placements, target: Placements
) -> tuple[int, int]:
    """Return how many elements a rank sends by ``plan``'s steps, and by how many collectives.

    The ways from a source to all targets are searched once, on a mesh of up to _MAX_SEARCHED_DIMS.
    """
    # What each rank has is made terms of a sum without communication, so that this is where the way ends.
    end = tuple(
        Replicate() if isinstance(after, Partial) and after != before else after
        for before, after in zip(source, target, strict=True)
    )
    if len(sizes) > _MAX_SEARCHED_DIMS or any(isinstance(p, StridedShard) for p in (*source, *end)):
        names, elements = collectives_between(shape, sizes, source, end)
        return elements, len(names)
    return _costs(shape, sizes, source)[end]


@lru_cache(maxsize=1024)
def _costs(
    shape: tuple[int, ...], sizes: tuple[int, ...], source: Placements
) -> dict[Placements, tuple[int, int]]:
    """Return the cost of bringing a tensor from ``source`` to all other placements without new terms."""
    heap: list[tuple[int, int, int, int, Placements]] = [(0, 0, 0, 0, source)]
    costs: dict[Placements, tuple[int, int]] = {}
    count = 0
    while heap:
        cost, _, elements, collectives, state = heapq.heappop(heap)
        if state in costs:
            continue
        costs[state] = elements, collectives
        for step in _steps(shape, sizes, state, source):
            following = (*state[: step.mesh_dim], step.after, *state[step.mesh_dim + 1 :])
            if following not in costs and not mixes_reductions(following):
                count += 1
                begun = 1 if step.collective else 0
                more = step.elements + begun * COLLECTIVE_COST
                entry = (cost + more, count, elements + step.elements, collectives + begun, following)
                heapq.heappush(heap, entry)
    return costs


def _steps(
    shape: tuple[int, ...], sizes: tuple[int, ...], state: Placements, target: Placements
) -> Iterator[Step]:
    """Yield the steps that can be taken: only what splits an axis last is changed."""
    local = math.prod(local_shape(shape, state, sizes, (0,) * len(sizes)))
    wanted = [p for p in dict.fromkeys(target) if isinstance(p, Shard)]
    if len(sizes) <= _MAX_SEARCHED_DIMS:
        wanted += [p for p in map(Shard, range(len(shape))) if p not in wanted]
    for dim, before in enumerate(state):
        if isinstance(before, Shard) and splits_inside(state, dim, before.dim):
            continue
        afters: list[Placement] = [Replicate()]
        if isinstance(before, Replicate) and isinstance(target[dim], Partial):
            afters.append(target[dim])
        for p in wanted:
            stays = isinstance(before, Shard) and before.dim == p.dim
            if not stays and not splits_inside((*state[:dim], p, *state[dim + 1 :]), dim, p.dim):
                afters.append(p)
        for after in afters:
            if after != before:
                yield Step(dim, before, after, *_sent(before, after, local, sizes[dim]))


def _sent(before: Placement, after: Placement, local: int, size: int) -> tuple[int, str]:
    """Return how many elements a rank sends of the ``local`` ones that it has, and by which collective."""
    if isinstance(before, Replicate) or size == 1:
        return 0, ""
    share = local * (size - 1)
    if isinstance(after, Shard):
        return share // size, "all_to_all" if isinstance(before, Shard) else "reduce_scatter"
    if isinstance(before, Shard) or _gathers(before, local, size):
        return share, "all_gather"
    return 2 * share // size, "all_reduce"


def _gathers(terms: Placement, local: int, size: int) -> bool:
    """Return whether the extremes of terms are taken of what is gathered."""
    return isinstance(terms, Partial) and terms.reduction in _EXTREMES and local * size <= MAX_GATHERED


class Way(NamedTuple):
    """The steps of a rank, each with its group and the shape of a part that the group does not split.

    ``aliases``: the result may lie in the memory of what it is made of.
    """

    steps: tuple[tuple[Step, Sequence[int], ProcessGroup], ...]
    aliases: bool


def _way(
    shape: tuple[int, ...], source: Placements, target: Placements, groups: Sequence[ProcessGroup]
) -> Way:
    """Return how this rank, by its groups along the dimensions of the mesh, brings a tensor to ``target``."""
    sizes, coordinate = tuple([group.size for group in groups]), [group.rank for group in groups]
    state, steps = source, []
    for step in plan(shape, sizes, source, target):
        unsplit = (*state[: step.mesh_dim], Replicate(), *state[step.mesh_dim + 1 :])
        steps.append((step, local_shape(shape, unsplit, sizes, coordinate), groups[step.mesh_dim]))
        state = (*state[: step.mesh_dim], step.after, *state[step.mesh_dim + 1 :])
    fresh = bool(steps) and bool(steps[-1][0].collective) and steps[-1][2].size > 1
    return Way(tuple(steps), not fresh)


def _taken(x: Tensor, way: Way, label: str) -> Tensor:
    """Return what the steps make of ``x``, one after the other."""
    for step, extent, group in way.steps:
        x = _take(x, step, extent, group, label)
    return x


def _take(x: Tensor, step: Step, extent: Sequence[int], group: ProcessGroup, label: str) -> Tensor:
    """Do a step; ``extent`` is the shape of a part that this dimension of the mesh does not split."""
    before, after, size = step.before, step.after, group.size
    if size == 1:
        return x
    if isinstance(before, Shard):
        lengths = chunk_lengths(extent[before.dim], size)
        if isinstance(after, Shard):
            send = chunk_lengths(x.shape[after.dim], size)
            return functional.all_to_all(x, after.dim, before.dim, send, lengths, group, label=label)
        return functional.all_gather(x, before.dim, lengths, group, label=label)
    if isinstance(before, Partial):
        if isinstance(after, Shard):
            send = chunk_lengths(x.shape[after.dim], size)
            return functional.reduce_scatter(x, before.reduction, after.dim, send, group, label=label)
        if _gathers(before, x.size, size):
            every = functional.all_gather(x.reshape((1, *x.shape)), 0, (1,) * size, group, label=label)
            return _EXTREMES[before.reduction](every, axis=0)
        return functional.all_reduce(x, before.reduction, group, label=label)
    if isinstance(after, Shard):
        start, length = chunk_of(x.shape[after.dim], size, group.rank)
        part: Tensor = x[(slice(None),) * after.dim + (slice(start, start + length),)]
        return part
    if isinstance(after, Partial) and group.rank and after.reduction in ("sum", "product"):
        return zeros_like(x) if after.reduction == "sum" else ones_like(x)
    return x


def _spelled(placements: Placements) -> str:
    """Return placements as a word, which ops take."""
    words = []
    for p in placements:
        if isinstance(p, Shard):
            words.append(f"T{p.dim}" if isinstance(p, StridedShard) else f"S{p.dim}")
        else:
            words.append(f"P{p.reduction}" if isinstance(p, Partial) else "R")
    return " ".join(words)


def _read(word: str) -> Placements:
    kinds: dict[str, Callable[[str], Placement]] = {
        "S": lambda axis: Shard(int(axis)), "T": lambda axis: StridedShard(int(axis)), "P": Partial,
        "R": lambda _: Replicate(),
    }  # fmt: skip
    return tuple(kinds[p[0]](p[1:]) for p in word.split())


def _described(
    x: Tensor, shape: tuple[int, ...], sizes: tuple[int, ...], source: Placements, target: Placements
) -> str:
    """Return how a tensor is redistributed, in a line."""
    names, elements = collectives_between(shape, sizes, source, target)
    return (
        f"redistribute({x.dtype}{[*shape]}) on a mesh of {sizes}, from {[*source]} to {[*target]}: "
        + (", ".join(names) or "no collective")
        + f", each rank sends {elements * x.dtype.itemsize} bytes"
    )


@custom_op("distributed::redistribute", ordered=True)
def _redistribute(
    x: Tensor, shape: tuple[int, ...], source: str, target: str, groups: str, label: str
) -> Tensor:
    remark(lambda: _described(x, shape, _sizes(groups), _read(source), _read(target)))
    way = _way(shape, _read(source), _read(target), _groups(groups))
    result = _taken(x, way, label)
    return result.clone() if way.aliases else result


def _groups(names: str) -> list[ProcessGroup]:
    return [get_group(name) for name in names.split("|")]


def _sizes(groups: str) -> tuple[int, ...]:
    return tuple(group.size for group in _groups(groups))


def _steps_taken(
    x: Tensor, shape: tuple[int, ...], source: str, target: str, groups: str, label: str, layout: Any = None
) -> Tensor:
    """Do the steps one after the other; of nothing else is the op made where a program takes it apart."""
    return _taken(x, _way(shape, _read(source), _read(target), _groups(groups)), label)


_redistribute.register_kernel("meta", definition_of(_redistribute).function)
definition_of(_redistribute).decompose = _steps_taken


@_redistribute.register_fake
def _(x: Any, shape: tuple[int, ...], source: str, target: str, groups: str, label: str) -> Any:
    ranks = _groups(groups)
    sizes, coordinate = [group.size for group in ranks], [group.rank for group in ranks]
    return local_shape(shape, _read(target), sizes, coordinate), x.dtype


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.arguments = inputs[1:]


def _backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
    shape, source, target, groups, label = ctx.arguments
    before, after = _read(source), _read(target)
    for name, was, becomes in zip(groups.split("|"), before, after, strict=True):
        if was == becomes:
            continue
        for placement in (was, becomes):
            if isinstance(placement, Partial) and placement.reduction not in ("sum", "average"):
                raise AutogradError(
                    f"redistribute: {placement} has no derivative; sums and averages have one."
                )
        if was == Partial("average"):
            g = g / get_group(name).size
        if becomes == Partial("average"):
            g = g * get_group(name).size
    back, to = gradient_placements(after), gradient_placements(before)
    if back != to:
        label = label and f"gradient of {label}"
        g = _redistribute(g, shape, _spelled(back), _spelled(to), groups, label)
    return g, None, None, None, None, None


_redistribute.register_autograd(_backward, setup_context=_keep)


@_redistribute.register_vmap
def _(
    info: Any, in_dims: tuple[Any, ...], x: Tensor, shape: tuple[int, ...], source: str, target: str,
    groups: str, label: str,
) -> tuple[Tensor, int]:  # fmt: skip
    """Examples lie along a new first axis, so the axes of placements move up."""
    words = [
        _spelled(tuple(type(p)(p.dim + 1) if isinstance(p, Shard) else p for p in _read(word)))
        for word in (source, target)
    ]
    return _redistribute(x, (x.shape[0], *shape), *words, groups, label), 0
