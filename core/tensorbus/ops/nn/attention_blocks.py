"""Attention block by block: the scores of some queries and some keys at a time, whatever the lengths.

Shared by ``flex_attention`` and its derivative where a device has no kernel for them: shapes and dtypes,
which blocks there are, and the scores of one. Nothing here has the size of queries times keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...dtypes import definition as dt
from ...dtypes.definition import FLOATING, DType
from ...dtypes.promotion import common_dtype
from ...errors import DtypeError, ShapeError
from ..creation.creation import iota
from ..definition import Spec
from ..elementwise.comparison import equal, logical_and, logical_or
from ..elementwise.family import broadcast_shapes, fit
from ..elementwise.where_cast import where
from ..matmul.matmul import matrix_transpose
from ..movement.movement import broadcast_to, reshape, slice
from .attention_scores import shared_product
from .score_program import ScoreProgram, run_scalars

NAME: Final = "flex_attention"
EMPTY, PARTIAL, FULL = 0, 1, 2
"""What a block mask says of a block: no score of it counts, the mask decides, all count."""
_KEYS: Final = 128
"""How many keys a block has at most: wide enough for products, and no more than a cache holds."""
FEW_QUERIES: Final = 8
"""Up to so many queries all scores take no more memory than keys do, and no tile is full."""
_MAX_CHUNKS: Final = 16
"""Into how many chunks queries are divided at most, each with blocks of keys of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attrs:
    """The attributes of ``flex_attention`` and of its derivative, which are the same."""

    program: ScoreProgram
    scale: float
    enable_gqa: bool = False
    block_size: tuple[int, int] | None = None
    visits: tuple[int, ...] | None = None


def flex_infer(specs: Sequence[Spec], attrs: Attrs) -> tuple[Spec, Spec]:
    """Return the specs of the result and of the logarithms of its denominators."""
    query, key, value, *extra = specs
    if not len(query.shape) == len(key.shape) == len(value.shape) == 4:
        raise ShapeError(
            f"{NAME}: query, key and value need 4 dimensions (batch, heads, length, width); got"
            f" {query.shape}, {key.shape} and {value.shape}."
        )
    if query.shape[3] != key.shape[3] or key.shape[:3] != value.shape[:3]:
        raise ShapeError(
            f"{NAME}: query and key need one width, key and value one batch, number of heads and length; got"
            f" {query.shape}, {key.shape} and {value.shape}."
        )
    (batch, heads, length, _), (own_batch, own_heads) = query.shape, key.shape[:2]
    if own_batch not in (1, batch):
        raise ShapeError(
            f"{NAME}: the batch of key and value is that of the query or 1; got {query.shape} and"
            f" {key.shape}."
        )
    if attrs.enable_gqa and (not own_heads or heads % own_heads):
        raise ShapeError(
            f"{NAME}: with enable_gqa the heads of key and value must divide those of the query; got"
            f" {query.shape} and {key.shape}."
        )
    if not attrs.enable_gqa and heads != own_heads:
        raise ShapeError(
            f"{NAME}: query and key have {heads} and {own_heads} heads; pass enable_gqa=True for keys that"
            " several heads of the query share."
        )
    if attrs.block_size is not None:
        _check_blocks(query.shape, key.shape, extra[0], attrs.block_size)
    wide = dt.float64 if query.dtype is dt.float64 else dt.float32
    out = Spec((batch, heads, length, value.shape[3]), query.dtype)
    return out, Spec((batch, heads, length), wide)


def _check_blocks(query: Any, key: Any, blocks: Spec, size: tuple[int, int]) -> None:
    needed = (-(-query[2] // size[0]), -(-key[2] // size[1]))
    lead = all(m in (1, n) for m, n in zip(blocks.shape[:2], query[:2], strict=True))
    if len(blocks.shape) != 4 or not lead or blocks.shape[2:] != needed:
        raise ShapeError(
            f"{NAME}: a block mask of {blocks.shape} blocks of {size} is not for a query of {query} and a key"
            f" of {key}, which need {needed} blocks for each batch and head, or for all of them."
        )


def has_few_queries(query: Sequence[Any]) -> bool:
    """Return whether a query of this shape has few lines: one, where tokens are generated."""
    return type(query[-2]) is int and query[-2] <= FEW_QUERIES


def takes_products(query: Sequence[Any], attrs: Mapping[str, Any]) -> bool:
    """Return whether a call is two products and a softmax, which libraries make faster than tiles of scores.

    Not with a block mask, whose empty blocks only tiles leave out.
    """
    return has_few_queries(query) and attrs["block_size"] is None


def flex_compute(operand_dtypes: tuple[DType, ...], **_: Any) -> tuple[DType, ...]:
    """Return what operands are cast to: query, key and value to one dtype; what is captured stays."""
    dtype = fit(NAME, common_dtype(operand_dtypes[:3]), FLOATING)
    if dtype not in (*dt.NARROW, dt.float32, dt.float64):
        raise DtypeError(f"{NAME}: not defined for {dtype}.")
    return (dtype,) * 3 + tuple(operand_dtypes[3:])


@dataclass(frozen=True, slots=True)
class Range:
    """Places ``start`` to ``stop`` of an axis."""

    start: int
    stop: int

    @property
    def size(self) -> int:
        """Their number."""
        return self.stop - self.start

    def of(self, x: Any, axis: int) -> Any:
        """Return these places of an axis of ``x``."""
        if self.size == x.shape[axis]:
            return x
        start, size = [0] * len(x.shape), list(x.shape)
        start[axis], size[axis] = self.start, self.size
        return slice(x, start, size, (1,) * len(x.shape))


@dataclass(frozen=True, slots=True)
class BlockScores:
    """The scores of a block: as products give them, as the program makes them, and which of them count.

    ``inputs`` are those of the program; ``keep`` is None where all count. All broadcast with each other.
    """

    inputs: tuple[Any, ...]
    scores: Any
    keep: Any


class Blocks:
    """The blocks of one call: chunks of queries, and for each those blocks of keys that are not empty."""

    def __init__(self, query: Any, key: Any, extra: Sequence[Any], attrs: Attrs) -> None:
        """Walk ``query`` and ``key``, both widened; ``extra`` are the other operands of the op."""
        self.query, self.key, self.attrs = query, key, attrs
        self.states = extra[0] if attrs.block_size is not None else None
        self.captured = tuple(extra if attrs.block_size is None else extra[1:])
        self.queries, self.keys = query.shape[2], key.shape[2]

    def chunks(self) -> Iterator[tuple[Range, list[Range]]]:
        """Yield the chunks of queries, each with its blocks of keys."""
        size, visits = self.attrs.block_size, self.attrs.visits
        if visits is None and has_few_queries(self.query.shape) and self.keys:
            yield Range(0, self.queries), [Range(0, self.keys)]
            return
        if size is None or visits is None:
            yield Range(0, self.queries), [*self._columns(-1)]
            return
        rows = -(-len(visits) // _MAX_CHUNKS)
        for first in range(0, len(visits), rows):
            bits = 0
            for visit in visits[first : first + rows]:
                bits |= visit
            stop = min((first + rows) * size[0], self.queries)
            yield Range(first * size[0], stop), [*self._columns(bits)]

    def _columns(self, bits: int) -> Iterator[Range]:
        """Yield the ranges of keys: parts of a block of the mask, or several of them, none of them empty."""
        wide = _KEYS if self.attrs.block_size is None else self.attrs.block_size[1]
        step = wide if wide > _KEYS else _KEYS // wide * wide
        for begin in range(0, self.keys, step):
            end = min(begin + step, self.keys)
            first, last = begin // wide, -(-end // wide)
            if bits >> first & ((1 << (last - first)) - 1):
                for start in range(begin, end, _KEYS):
                    yield Range(start, min(start + _KEYS, end))

    def block(self, rows: Range, columns: Range) -> BlockScores:
        """Return the scores of a block."""
        query, device = rows.of(self.query, 2), self.query.device
        key = columns.of(self.key, 2)
        scores = shared_product(query, matrix_transpose(key)) * self.attrs.scale
        batch, heads = query.shape[:2]
        program = self.attrs.program

        def line(count: int, axis: int, start: int = 0) -> Any:
            if axis + 1 not in program.numbers:
                return None
            shape = tuple(count if k == axis else 1 for k in range(4))
            return reshape(iota(count, start, dtype=dt.int32, device=device), shape)

        inputs = (
            scores, line(batch, 0), line(heads, 1), line(rows.size, 2, rows.start),
            line(columns.size, 3, columns.start), *self.captured,
        )  # fmt: skip
        outputs = run_scalars(program.graph, inputs)
        keep = outputs[1] if program.masked else None
        if self.states is not None:
            keep = self._counted(rows, columns, keep)
        return BlockScores(inputs, outputs[0], keep)

    def masked(self, block: BlockScores) -> Any:
        """Return the scores of a block, ``-inf`` where they do not count."""
        scores = block.scores if block.keep is None else where(block.keep, block.scores, float("-inf"))
        shape = broadcast_shapes(scores.shape, block.inputs[0].shape)
        return scores if scores.shape == shape else broadcast_to(scores, shape)

    def _counted(self, rows: Range, columns: Range, keep: Any) -> Any:
        """Return which scores count by the mask, where the state of their block lets it decide."""
        assert self.attrs.block_size is not None
        tall, wide = self.attrs.block_size
        states = self.states
        lines = Range(rows.start // tall, -(-rows.stop // tall))
        across = Range(columns.start // wide, -(-columns.stop // wide))
        states = across.of(lines.of(states, 2), 3)
        *lead, m, n = states.shape
        deep = tall if m > 1 else rows.size
        far = wide if n > 1 else columns.size
        states = broadcast_to(reshape(states, (*lead, m, 1, n, 1)), (*lead, m, deep, n, far))
        states = reshape(states, (*lead, m * deep, n * far))
        states = Range(0, columns.size).of(Range(0, rows.size).of(states, 2), 3)
        full = equal(states, FULL)
        partial = equal(states, PARTIAL)
        return logical_or(full, partial if keep is None else logical_and(partial, keep))
