"""The order of ranks' parts of parameters in what they exchange: a rank's in a row, rank after rank."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from ...ops.creation.creation import zeros
from ...ops.movement.movement import concat, reshape
from ...tensor.tensor import Tensor
from ...tracing.known_by_identity import KnownByIdentity
from ..tensor.placements import chunk_of, chunk_runs

FILLED: Final = 1.25
"""How many times the elements of parameters a rank's parts may come to, filled up to one size."""


class Run(NamedTuple):
    """Ranks in a row that have as much of each parameter: how many, what one sends, its part of each."""

    ranks: int
    length: int
    sizes: tuple[int, ...]


class FlatParts(KnownByIdentity):
    """The order of the elements of whole parameters of ``shapes`` that ``ranks`` ranks have parts of.

    Joining and dividing go by runs of ranks, of which there are few, however many ranks there are. There are
    two at least: so whole parameters are joined of pieces, which puts them into memory of their own. One that
    is read out of all ranks' parts by each kernel that takes it costs more: its elements lie apart, and
    libraries take none that does. A rank sends as many elements as any other where filling up adds little,
    since what libraries do best is parts of one size.
    """

    def __init__(self, shapes: Sequence[tuple[int, ...]], ranks: int) -> None:
        self.shapes = tuple(shapes)
        ends = {end for shape in shapes for end in accumulate(n for n, _ in chunk_runs(shape[0], ranks))}
        if len(ends) == 1 and ranks > 1:
            ends.add(ranks // 2)
        bounds = [*pairwise(sorted({0, *ends}))]
        sizes = [tuple(_size(shape, ranks, start) for shape in shapes) for start, _ in bounds]
        lengths = [sum(size) for size in sizes]
        total = sum((end - start) * n for (start, end), n in zip(bounds, lengths, strict=True))
        if max(lengths) * ranks <= FILLED * total:
            lengths = [max(lengths)] * len(lengths)
        self.runs = [
            Run(end - start, length, size)
            for (start, end), length, size in zip(bounds, lengths, sizes, strict=True)
        ]

    @property
    def lengths(self) -> tuple[int, ...]:
        """The number of elements that each rank sends."""
        return sum(((run.length,) * run.ranks for run in self.runs), ())

    def whole(self, flat: Tensor) -> list[Tensor]:
        """Return the whole parameters, given all ranks' parts."""
        pieces: list[list[Tensor]] = [[] for _ in self.shapes]
        begin = 0
        for count, length, sizes in self.runs:
            table = reshape(flat[begin : begin + count * length], (count, length))
            begin += count * length
            for mine, start, size in zip(pieces, accumulate(sizes, initial=0), sizes, strict=False):
                mine.append(reshape(table[:, start : start + size], (count * size,)))
        return [reshape(concat(mine), shape) for mine, shape in zip(pieces, self.shapes, strict=True)]

    def part(self, tensors: Sequence[Tensor], rank: int) -> Tensor:
        """Return one rank's part of whole parameters, in memory of its own."""
        ranks = sum(run.ranks for run in self.runs)
        parts = []
        for x in tensors:
            start, length = chunk_of(x.shape[0], ranks, rank)
            parts.append(reshape(x[start : start + length], (length * math.prod(x.shape[1:]),)))
        parts += filling(parts, self.lengths[rank])
        return concat(parts) if len(parts) > 1 else parts[0].to(parts[0].device, copy=True)

    def divided(self, tensors: Sequence[Tensor]) -> Tensor:
        """Return all ranks' parts of whole parameters or gradients."""
        flat = [reshape(x, (x.size,)) for x in tensors]
        starts = [0] * len(flat)
        pieces: list[Tensor] = []
        for count, length, sizes in self.runs:
            ends = [start + count * size for start, size in zip(starts, sizes, strict=True)]
            mine = [x[start:end] for x, start, end in zip(flat, starts, ends, strict=True)]
            starts = ends
            if count == 1:
                pieces += [*mine, *filling(mine, length)]
                continue
            rows = [reshape(x, (count, size)) for x, size in zip(mine, sizes, strict=True)]
            missing = length - sum(sizes)
            rows += [zeros((count, missing), dtype=rows[0].dtype, device=rows[0].device)] if missing else []
            pieces.append(reshape(concat(rows, axis=1), (count * length,)))
        return concat(pieces)


def filling(parts: Sequence[Tensor], length: int) -> list[Tensor]:
    """Return the zeros that are missing behind flat parts to ``length`` elements, [] for none."""
    missing = length - sum(x.size for x in parts)
    return [zeros((missing,), dtype=parts[0].dtype, device=parts[0].device)] if missing else []


def _size(shape: tuple[int, ...], ranks: int, rank: int) -> int:
    return chunk_of(shape[0], ranks, rank)[1] * math.prod(shape[1:])
