"""The placement of a tensor along a dimension of a mesh: in parts, whole on each rank, or as terms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ...errors import ArgumentError, AxisError

PARTIAL_REDUCTIONS: Final = ("sum", "average", "product", "min", "max")
LINEAR_REDUCTIONS: Final = {"sum", "average"}
"""Those that come to the same in any order."""


class Placement:
    """A tensor's placement along one dimension of a mesh: ``Shard``, ``Replicate`` or ``Partial``."""

    def is_shard(self, dim: int | None = None) -> bool:
        """Return whether ranks have parts; with ``dim``: along that axis."""
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        """Return whether each rank has the whole."""
        return isinstance(self, Replicate)

    def is_partial(self, reduction: str | None = None) -> bool:
        """Return whether ranks have terms; with ``reduction``: of that one."""
        return isinstance(self, Partial) and reduction in (None, self.reduction, self.reduce_op)


@dataclass(frozen=True)
class Shard(Placement):
    """Each rank has a part along axis ``dim``, as ``chunk`` splits it: the last may be short.

    ``dim`` is an int, which may be negative; anything else raises ``ArgumentError``.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank() -> list[int]:
    ...     mesh, x = dist.init_device_mesh("cpu", (2,)), tb.arange(3, device="cpu")
    ...     return dist.distribute_tensor(x, mesh, [dist.Shard(0)]).to_local().tolist()
    >>> dist.run_ranks(rank, 2)
    [[0, 1], [2]]
    """

    dim: int

    def __post_init__(self) -> None:
        if type(self.dim) is not int:
            raise ArgumentError(f"{type(self).__name__}: dim must be an int, got {self.dim!r}.")


@dataclass(frozen=True)
class StridedShard(Shard):
    """``Shard``, of the parts into which later dimensions of the mesh split the same axis.

    So ``fully_shard`` divides what ``parallelize_module`` has split: along ``("dp", "tp")`` a weight lies as
    ``(StridedShard(0), Shard(0))``, and its parts along ``"dp"`` make up the part of one rank of ``"tp"``.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank() -> list[int]:
    ...     mesh, lies = dist.init_device_mesh("cpu", (2, 2)), [dist.StridedShard(0), dist.Shard(0)]
    ...     return dist.distribute_tensor(tb.arange(4, device="cpu"), mesh, lies).to_local().tolist()
    >>> dist.run_ranks(rank, 4)
    [[0], [2], [1], [3]]
    """


@dataclass(frozen=True)
class Replicate(Placement):
    """Each rank has the whole tensor.

    >>> Replicate() == Replicate(), Replicate().is_replicate(), Replicate().is_shard()
    (True, True, False)
    """


@dataclass(frozen=True)
class Partial(Placement):
    """Each rank has a tensor of the whole shape; the ``reduction`` of all of them is the value.

    ``reduction`` is ``"sum"``, ``"average"``, which may be called ``"avg"``, ``"product"``, ``"min"`` or
    ``"max"``; anything else raises ``ArgumentError``. Along several dimensions of a mesh it is the same, or
    sums and averages: others give another value in another order.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank() -> list[float]:
    ...     mesh, mine = dist.init_device_mesh("cpu", (2,)), tb.ones(2, device="cpu") * dist.get_rank()
    ...     return dist.DTensor.from_local(mine, mesh, [dist.Partial("max")]).full_tensor().tolist()
    >>> dist.run_ranks(rank, 2)
    [[1.0, 1.0], [1.0, 1.0]]
    """

    reduction: str = "sum"

    def __post_init__(self) -> None:
        if self.reduction == "avg":
            object.__setattr__(self, "reduction", "average")
        if self.reduction not in PARTIAL_REDUCTIONS:
            raise ArgumentError(
                f"Partial: reduction must be one of {', '.join(PARTIAL_REDUCTIONS)}, got {self.reduction!r}."
            )

    @property
    def reduce_op(self) -> str:
        """The reduction by PyTorch's name."""
        return "avg" if self.reduction == "average" else self.reduction


Placements = tuple[Placement, ...]


def checked_placements(name: str, placements: Sequence[Placement], mesh_ndim: int, ndim: int) -> Placements:
    """Return placements, one a dimension of the mesh, with axes that are not negative."""
    chosen = placements if isinstance(placements, Placement) else tuple(placements)
    if isinstance(chosen, Placement):
        raise ArgumentError(
            f"{name}: placements are a list, one for each dimension of the mesh, got {chosen!r}; write"
            f" [{chosen!r}]."
        )
    if len(chosen) != mesh_ndim or not all(isinstance(p, Shard | Replicate | Partial) for p in chosen):
        raise ArgumentError(
            f"{name}: a placement (Shard, Replicate or Partial) is needed for each of the mesh's {mesh_ndim}"
            f" dimensions, got {[*chosen]}."
        )
    if mixes_reductions(chosen):
        raise ArgumentError(
            f"{name}: {[*chosen]} are reduced in different ways along dimensions of the mesh, and the value"
            f" depends on which comes first. Sums and averages go together; lay out the other dimensions by"
            f" Shard or Replicate."
        )
    for p in chosen:
        if isinstance(p, Shard) and not -ndim <= p.dim < ndim:
            raise AxisError(f"{name}: {p} was asked of a tensor of {ndim} dimensions.")
    return plain(type(p)(p.dim % ndim) if isinstance(p, Shard) else p for p in chosen)


def mixes_reductions(placements: Iterable[Placement]) -> bool:
    """Return whether terms come to another value where the mesh's dimensions are reduced in another order."""
    reductions = {p.reduction for p in placements if isinstance(p, Partial)}
    return len(reductions) > 1 and not reductions <= LINEAR_REDUCTIONS


def plain(placements: Iterable[Placement]) -> Placements:
    """Return the same placements, with ``Shard`` for ``StridedShard`` where both split alike."""
    chosen = list(placements)
    for dim, p in enumerate(chosen):
        if not isinstance(p, StridedShard):
            continue
        if StridedShard(p.dim) not in chosen[:dim] and Shard(p.dim) not in chosen[dim + 1 :]:
            chosen[dim] = Shard(p.dim)
    return tuple(chosen)


def splitting_order(placements: Sequence[Placement]) -> list[int]:
    """Return the mesh's dimensions in the order in which they split axes: those of ``StridedShard`` last."""
    return sorted(range(len(placements)), key=lambda dim: isinstance(placements[dim], StridedShard))


def splits_inside(placements: Sequence[Placement], dim: int, axis: int) -> bool:
    """Return whether a dimension of the mesh splits the parts of ``axis`` that ``dim`` makes, or would."""
    order = splitting_order(placements)
    inner = [placements[other] for other in order[order.index(dim) + 1 :]]
    return any(isinstance(p, Shard) and p.dim == axis for p in inner)


def chunk_lengths(length: int, size: int) -> tuple[int, ...]:
    """Return the lengths of ``size`` parts of an axis, as ``chunk`` splits it; the last may be 0."""
    runs = chunk_runs(length, size)
    return sum(((part,) * count for count, part in runs), ())


def chunk_runs(length: int, size: int) -> list[tuple[int, int]]:
    """Return the same lengths as runs of equal ones, at most three: how many, and the length of each."""
    part = -(-length // size)
    full, rest = divmod(length, part) if part else (0, 0)
    runs = [(full, part), (1 if rest else 0, rest), (size - full - (1 if rest else 0), 0)]
    return [run for run in runs if run[0]]


def chunk_of(length: int, size: int, place: int) -> tuple[int, int]:
    """Return where one of those parts begins, and its length."""
    part = -(-length // size)
    start = min(part * place, length)
    return start, min(part, length - start)


def local_shape(
    shape: Sequence[int], placements: Sequence[Placement], sizes: Sequence[int], coordinate: Sequence[int]
) -> tuple[int, ...]:
    """Return the shape of a rank's part."""
    return local_part(shape, placements, sizes, coordinate)[0]


def local_part(
    shape: Sequence[int], placements: Sequence[Placement], sizes: Sequence[int], coordinate: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shape of a rank's part and where it begins along each axis.

    Later dimensions of the mesh split the parts of earlier ones.
    """
    lengths, starts = list(shape), [0] * len(shape)
    for dim in splitting_order(placements):
        placement = placements[dim]
        if isinstance(placement, Shard):
            begin, length = chunk_of(lengths[placement.dim], sizes[dim], coordinate[dim])
            starts[placement.dim] += begin
            lengths[placement.dim] = length
    return tuple(lengths), tuple(starts)
