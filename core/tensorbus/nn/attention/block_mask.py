"""Block masks: which blocks of scores count, in part or whole, and the function that decides about parts.

A mask of a block of queries by a block of keys is one number, so that a mask takes the memory of its blocks
and not of its scores. Names, arguments and values are PyTorch's.
"""

from __future__ import annotations

import itertools
from functools import cached_property
from math import prod
from typing import Any

from ...devices.device import Device, DeviceLike
from ...dtypes import definition as dt
from ...errors import ArgumentError, DtypeError, ShapeError, StateError
from ...ops.creation.creation import iota
from ...ops.elementwise.comparison import equal, less, logical_and, not_equal
from ...ops.elementwise.where_cast import cast, where
from ...ops.indexing.gather_scatter import gather
from ...ops.movement.movement import pad, permute_dims, reshape
from ...ops.nn.attention_blocks import EMPTY, FULL, PARTIAL
from ...ops.ordering.sorting import argsort
from ...ops.reduction import reduction
from ...tensor.tensor import Tensor
from .mask_mods import noop_mask
from .score_capture import Mod


def _sliced_mask_mod(batch: Any, head: Any, token_q: Any, token_kv: Any) -> Any:
    raise StateError(
        "this BlockMask is an indexed part of another one, whose mask_mod counts the batches, heads and"
        " queries of the whole. Set the mask_mod of the part: part.mask_mod = whole.mask_mod where the"
        " indices are the same, else a function that shifts them."
    )


class BlockMask:
    """The scores of ``flex_attention`` that count, block by block: made by ``create_block_mask``.

    ``blocks`` (uint8, ``(batch, heads, blocks of queries, blocks of keys)``) says of each block whether no
    score of it counts (0), ``mask_mod`` decides about each (1), or all count (2). ``BLOCK_SIZE`` is the
    number of queries and of keys of a block, ``seq_lengths`` the number of all queries and keys. A batch or
    number of heads of 1 is for all of them. ``mask_mod`` may be set. Printing one shows its blocks.

    >>> import tensorbus as tb
    >>> mask = tb.nn.attention.create_block_mask(lambda b, h, q, kv: q >= kv, None, None, 512, 512)
    >>> mask
    BlockMask(blocks=(1, 1, 4, 4), BLOCK_SIZE=(128, 128), shape=(1, 1, 512, 512), sparsity=37.50%, ...)
    >>> print(mask.to_string().replace(" ", "."))
    (0,.0)
    ██......
    ████....
    ██████..
    ████████
    <BLANKLINE>
    """

    def __init__(
        self, blocks: Tensor, seq_lengths: tuple[int, int], BLOCK_SIZE: int | tuple[int, int] = 128,
        mask_mod: Mod | None = None,
    ) -> None:  # fmt: skip
        """Make a mask of the states of its blocks. Raises ``ShapeError`` where the lengths do not fit."""
        size = block_size("BlockMask", BLOCK_SIZE)
        needed = tuple(-(-n // s) for n, s in zip(seq_lengths, size, strict=True))
        if len(blocks.shape) < 2 or blocks.shape[-2:] != needed:
            raise ShapeError(
                f"BlockMask: {seq_lengths[0]} queries and {seq_lengths[1]} keys in blocks of {size} are"
                f" {needed} blocks; got states of shape {blocks.shape}."
            )
        if blocks.dtype is not dt.uint8:
            raise DtypeError(f"BlockMask: states of blocks are uint8, got {blocks.dtype}.")
        self.blocks = blocks
        self.seq_lengths = (seq_lengths[0], seq_lengths[1])
        self.BLOCK_SIZE = size
        self.mask_mod: Mod = noop_mask if mask_mod is None else mask_mod

    @classmethod
    def from_kv_blocks(
        cls, kv_num_blocks: Tensor, kv_indices: Tensor, full_kv_num_blocks: Tensor | None = None,
        full_kv_indices: Tensor | None = None, BLOCK_SIZE: int | tuple[int, int] = 128,
        mask_mod: Mod | None = None, seq_lengths: tuple[int, int] | None = None,
    ) -> BlockMask:  # fmt: skip
        """Return the mask of PyTorch's lists of blocks.

        ``kv_indices`` ``(*, blocks of queries, blocks of keys)`` has first the numbers of the
        ``kv_num_blocks`` ``(*, blocks of queries)`` blocks of keys that ``mask_mod`` decides about; those
        called ``full`` are of blocks whose scores all count. What stands behind them is not looked at.
        ``seq_lengths`` are by default those of whole blocks. Raises ``IndexingError`` for a number of a block
        that there is not, and for more blocks in a row than there are.
        """
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise ArgumentError(
                "from_kv_blocks: give both full_kv_num_blocks and full_kv_indices, or neither."
            )
        size = block_size("from_kv_blocks", BLOCK_SIZE)
        if len(kv_indices.shape) < 2 or kv_num_blocks.shape != kv_indices.shape[:-1]:
            raise ShapeError(
                "from_kv_blocks: kv_indices is (*, blocks of queries, blocks of keys) and kv_num_blocks has"
                f" its shape but for the last axis; got {kv_indices.shape} and {kv_num_blocks.shape}."
            )
        blocks = where(_listed(kv_num_blocks, kv_indices), PARTIAL, EMPTY)
        if full_kv_num_blocks is not None and full_kv_indices is not None:
            blocks = where(_listed(full_kv_num_blocks, full_kv_indices), FULL, blocks)
        lengths = seq_lengths or (blocks.shape[-2] * size[0], blocks.shape[-1] * size[1])
        return cls(cast(blocks, dt.uint8), lengths, size, mask_mod)

    @property
    def shape(self) -> tuple[int, ...]:
        """``(batch, heads, queries, keys)``."""
        return (*self.blocks.shape[:-2], *self.seq_lengths)

    @property
    def device(self) -> Device:
        """The device of the states of the blocks."""
        return self.blocks.device

    def numel(self) -> int:
        """Return how many scores there are, whether or not they count."""
        return prod(self.shape)

    @property
    def kv_num_blocks(self) -> Tensor:
        """The number of blocks of keys that ``mask_mod`` decides about, for each block of queries; int32."""
        return _counts(equal(self.blocks, PARTIAL))

    @property
    def kv_indices(self) -> Tensor:
        """The numbers of these blocks, in order, before those of the others; int32."""
        return _numbers(equal(self.blocks, PARTIAL))

    @property
    def full_kv_num_blocks(self) -> Tensor:
        """The number of blocks of keys that count whole, for each block of queries; int32."""
        return _counts(equal(self.blocks, FULL))

    @property
    def full_kv_indices(self) -> Tensor:
        """The numbers of these blocks, in order, before those of the others; int32."""
        return _numbers(equal(self.blocks, FULL))

    @property
    def q_num_blocks(self) -> Tensor:
        """The number of blocks of queries that ``mask_mod`` decides about, for each block of keys; int32."""
        return _counts(_transposed(equal(self.blocks, PARTIAL)))

    @property
    def q_indices(self) -> Tensor:
        """The numbers of these blocks, in order, before those of the others; int32."""
        return _numbers(_transposed(equal(self.blocks, PARTIAL)))

    @property
    def full_q_num_blocks(self) -> Tensor:
        """The number of blocks of queries that count whole, for each block of keys; int32."""
        return _counts(_transposed(equal(self.blocks, FULL)))

    @property
    def full_q_indices(self) -> Tensor:
        """The numbers of these blocks, in order, before those of the others; int32."""
        return _numbers(_transposed(equal(self.blocks, FULL)))

    @cached_property
    def visits(self) -> tuple[int, ...]:
        """For each block of queries the blocks of keys that some head of some batch sees, as bits."""
        seen = not_equal(self.blocks, EMPTY)
        rows = reduction.any(seen, axis=tuple(range(len(seen.shape) - 2))) if len(seen.shape) > 2 else seen
        return tuple([_bits(row) for row in rows.tolist()])

    def sparsity(self) -> float:
        """Return how much of all scores is in empty blocks, in percent.

        Blocks at the ends count whole, so that it is below 0 where lengths are no multiples of blocks and
        nothing is empty.
        """
        if not self.numel():
            return 0.0
        blocks: Any = reduction.sum(cast(not_equal(self.blocks, EMPTY), dt.int64)).item()
        share: float = blocks * prod(self.BLOCK_SIZE) / self.numel()
        return 100 * (1 - share)

    def to_dense(self) -> Tensor:
        """Return which blocks are not empty, int32, of the shape of the blocks."""
        return cast(not_equal(self.blocks, EMPTY), dt.int32)

    def to_string(self, grid_size: int | tuple[int, int] = (20, 20), limit: int = 4) -> str:
        """Return a picture of the blocks of each batch and head, the first ``limit`` of them.

        A full square stands for blocks that are all there, a light one for some, a space for none. Blocks are
        joined so that there are ``grid_size`` rows and columns at most; -1: as many as there are blocks.
        """
        *lead, rows, columns = self.blocks.shape
        if grid_size == -1:
            most = rows, columns
        else:
            most = (grid_size, grid_size) if isinstance(grid_size, int) else grid_size
        steps = [-(-n // m) or 1 for n, m in zip((rows, columns), most, strict=True)]
        pictures = []
        for number, index in enumerate(itertools.product(*map(range, lead))):
            if number == limit:
                pictures.append(
                    "...\nTo print out more, set BlockMask.to_string(limit=N)\n"
                    "You can also index (BlockMask[batch, head]) to choose a specific batch or head"
                )
                break
            states = self.blocks[index].tolist() if index else self.blocks.tolist()
            pictures.append(f"{index}\n{_picture(states, *steps)}")
        return "\n".join(pictures)

    def __str__(self) -> str:
        return (
            f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%, \n{self.to_string().strip()}\n)"
        )

    def __repr__(self) -> str:
        name = getattr(self.mask_mod, "__name__", self.mask_mod)
        return (
            f"BlockMask(blocks={self.blocks.shape}, BLOCK_SIZE={self.BLOCK_SIZE}, shape={self.shape},"
            f" sparsity={self.sparsity():.2f}%, mask_mod={name}, device={self.device})"
        )

    def __getitem__(self, index: Any) -> BlockMask:
        """Return the mask of some batches, heads and blocks of queries.

        An integer keeps its axis, with a length of 1, as in PyTorch. The part has no ``mask_mod`` until you
        set it: that of the whole counts as before.
        """
        asked = index if isinstance(index, tuple) else (index,)
        lead = len(self.blocks.shape) - 1
        if len(asked) > lead or any(x is Ellipsis or x is None for x in asked):
            raise ArgumentError(
                f"BlockMask: it is indexed by batch, head and block of queries, by integers, slices and"
                f" tensors; got {index!r}."
            )
        blocks, queries = self.blocks, self.seq_lengths[0]
        for axis, at in enumerate(asked):
            if isinstance(at, int) and not isinstance(at, bool):
                n = blocks.shape[axis]
                if not -n <= at < n:
                    raise IndexError(f"BlockMask: index {at} is out of range for axis {axis} of length {n}.")
                at = slice(at % n, at % n + 1)
            blocks = blocks[(*[slice(None)] * axis, at)]
        if len(asked) == lead:
            queries = self._queries(asked[-1], blocks.shape[-2])
        return BlockMask(blocks, (queries, self.seq_lengths[1]), self.BLOCK_SIZE, _sliced_mask_mod)

    def _queries(self, at: Any, blocks: int) -> int:
        """Return how many queries there are in the blocks that an index took."""
        length, tall = self.seq_lengths[0], self.BLOCK_SIZE[0]
        rows = self.blocks.shape[-2]
        if isinstance(at, (int, slice)):
            numbers = [*range(rows)][at] if isinstance(at, slice) else [at % rows]
            if rows - 1 in numbers[-1:]:
                return blocks * tall - (rows * tall - length)
        return blocks * tall

    def cropped(self, q_len: int, kv_len: int) -> BlockMask:
        """Return the mask of the first ``q_len`` queries and ``kv_len`` keys, or of more than there are.

        Blocks of queries and keys behind the last are empty. ``mask_mod`` is the same.
        """
        tall, wide = self.BLOCK_SIZE
        blocks = self.blocks
        for axis, needed in ((-2, -(-q_len // tall)), (-1, -(-kv_len // wide))):
            at = len(blocks.shape) + axis
            blocks = blocks[(*[slice(None)] * at, slice(0, needed))]
            if blocks.shape[at] < needed:
                none, more = [0] * len(blocks.shape), [0] * len(blocks.shape)
                more[at] = needed - blocks.shape[at]
                blocks = pad(blocks, none, more, EMPTY)
        return BlockMask(blocks, (q_len, kv_len), self.BLOCK_SIZE, self.mask_mod)

    _adjust = cropped

    def to(self, device: DeviceLike) -> BlockMask:
        """Return the mask on another device. What ``mask_mod`` captured stays where it is."""
        return BlockMask(self.blocks.to(device), self.seq_lengths, self.BLOCK_SIZE, self.mask_mod)


def block_size(name: str, size: Any) -> tuple[int, int]:
    """Return how many queries and keys a block has. Raises ``ArgumentError``."""
    both = (size, size) if isinstance(size, int) else size
    if (
        not isinstance(both, (tuple, list))
        or len(both) != 2
        or not all(isinstance(n, int) and n > 0 for n in both)
    ):
        raise ArgumentError(
            f"{name}: BLOCK_SIZE is a positive int, or one for queries and one for keys; got {size!r}."
        )
    return (both[0], both[1])


def _listed(counts: Tensor, numbers: Tensor) -> Tensor:
    """Return which blocks are among the first ``counts`` of ``numbers``, for each row."""
    columns = numbers.shape[-1]
    place = iota(columns, dtype=numbers.dtype, device=numbers.device)
    counts = reshape(_checked(counts, columns + 1), (*counts.shape, 1))
    among = less(place, counts)
    numbers = _checked(where(among, numbers, 0), columns)
    named = equal(reshape(numbers, (*numbers.shape, 1)), place)
    named_at: Tensor = reduction.any(logical_and(reshape(among, (*among.shape, 1)), named), axis=-2)
    return named_at


def _checked(numbers: Tensor, limit: int) -> Tensor:
    """Return integers, each of which an ``IndexingError`` keeps from 0 up to ``limit``."""
    known = iota(limit, dtype=numbers.dtype, device=numbers.device)
    return reshape(gather(known, reshape(numbers, (-1,))), numbers.shape)


def _counts(blocks: Tensor) -> Tensor:
    count: Tensor = reduction.sum(cast(blocks, dt.int32), axis=-1, dtype=dt.int32)
    return count


def _numbers(blocks: Tensor) -> Tensor:
    return cast(argsort(cast(blocks, dt.int32), axis=-1, descending=True, stable=True), dt.int32)


def _transposed(blocks: Tensor) -> Tensor:
    rank = len(blocks.shape)
    transposed: Tensor = permute_dims(blocks, (*range(rank - 2), rank - 1, rank - 2))
    return transposed


def _bits(row: list[bool]) -> int:
    bits = 0
    for k, seen in enumerate(row):
        bits |= seen << k
    return bits


def _picture(states: list[list[int]], tall: int, wide: int) -> str:
    lines = []
    for row in range(0, len(states), tall):
        line = ""
        for column in range(0, len(states[row]), wide):
            part = [
                bool(x) for states_of in states[row : row + tall] for x in states_of[column : column + wide]
            ]
            line += 2 * ("█" if all(part) else "░" if any(part) else " ")
        lines.append(line + "\n")
    return "".join(lines)
