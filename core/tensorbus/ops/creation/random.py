"""Random numbers: one stream for one seed on every device.

The bits come from Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3",
SC 2011), a function of a key (the seed) and a counter, written in integer ops: every device computes the same
bits.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Final

from ...dtypes import definition as dt
from ...errors import ShapeError
from .. import sharding_rules
from ..definition import Op, Shape, Spec, table
from ..elementwise.comparison import bitwise_and, bitwise_right_shift, bitwise_xor, equal
from ..elementwise.where_cast import cast, where
from ..fused_function import fuse_in_eager
from ..movement.family import as_shape
from ..movement.movement import broadcast_to, concat, reshape, slice
from .creation import check_shape, iota

if TYPE_CHECKING:
    pass

_MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
_WEYL: Final = (0x9E3779B9, 0xBB67AE85)
_WORD: Final = 0xFFFFFFFF


def _bits_arguments(state: Any, shape: int | tuple[int, ...], /) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (state,), {"shape": check_shape("random_bits", as_shape("random_bits", shape))}


def _bits_infer(specs: tuple[Spec, ...], *, shape: Shape) -> Spec:
    if specs[0] != Spec((2,), dt.uint64):
        raise ShapeError(f"random_bits: the state is uint64[2], the key and the first block; got {specs[0]}.")
    return Spec(shape, dt.uint32)


def _philox(state: Any, shape: Shape) -> Any:
    """Ten rounds over blocks of four 32-bit words, held in 64 bits so that products keep their high half.

    Axes of ``state`` in front of the last are those of several streams.
    """
    blocks, lead = -(-prod(shape) // 4), state.shape[:-1]
    zeros, ones = (0,) * len(lead), (1,) * (len(lead) + 1)
    key, counter = (slice(state, (*zeros, k), (*lead, 1), ones) for k in (0, 1))
    place = iota(blocks, dtype=dt.uint64, device=state.device) + counter
    zero = place * 0
    x0, x1, x2, x3 = _low(place), _high(place), zero, zero
    k0, k1 = _low(key), _high(key)
    for _ in range(10):
        left, right = x0 * _MULTIPLIERS[0], x2 * _MULTIPLIERS[1]
        x0, x1, x2, x3 = (
            bitwise_xor(bitwise_xor(_high(right), x1), k0),
            _low(right),
            bitwise_xor(bitwise_xor(_high(left), x3), k1),
            _low(left),
        )
        k0, k1 = _low(k0 + _WEYL[0]), _low(k1 + _WEYL[1])
    columns = [reshape(cast(x, dt.uint32), (*lead, blocks, 1)) for x in (x0, x1, x2, x3)]
    words = reshape(concat(columns, axis=len(lead) + 1), (*lead, 4 * blocks))
    return reshape(slice(words, (*zeros, 0), (*lead, prod(shape)), ones), (*lead, *shape))


def _streams(operands: Any, batched: Any, *, shape: Shape) -> Any:
    """The batching rule: several streams at once."""
    return _philox(operands[0], shape)


def _low(x: Any) -> Any:
    return bitwise_and(x, _WORD)


def _high(x: Any) -> Any:
    return bitwise_right_shift(x, 32)


random_bits = table.add(
    Op(
        name="random_bits",
        family="random",
        operands=("state",),
        arguments=_bits_arguments,
        infer=_bits_infer,
        decompose=_philox,
        batch=_streams,
        shard=sharding_rules.whole,
        dtypes=(dt.uint64,),
        cost="function",
        method=False,
        doc="The uint32 words of Philox4x32-10; ``state`` is uint64: the key, then the first block.",
    )
)


def bits_of_part(state: Any, part: sharding_rules.ShardPart) -> Any:
    """Return the elements of ``random_bits(state, part.whole)`` that lie in a part of it.

    Those behind the last axis that is divided stand side by side, a run of words, for which the counter
    begins where the run does: a rank draws its own numbers only, and up to three words more for each run.
    """
    shape, start, whole = part
    divided = [axis for axis, length in enumerate(whole) if shape[axis] != length]
    if not divided or not prod(shape):
        return random_bits(state, shape)
    axis = divided[-1]
    behind = prod(whole[axis + 1 :])
    run, row, first = shape[axis] * behind, whole[axis] * behind, start[axis] * behind
    if prod(shape[:axis]) > 1:
        return reshape(_runs(state, shape[:axis], start[:axis], whole[:axis], run, row, first), shape)
    place = sum(start[k] * prod(whole[k + 1 :]) for k in range(axis + 1))
    moved = state + iota(2, dtype=dt.uint64, device=state.device) * (place // 4)
    words = random_bits(moved, (place % 4 + run,))
    return reshape(slice(words, (place % 4,), (run,), (1,)), shape)


@fuse_in_eager
def _runs(state: Any, rows: Shape, start: Shape, whole: Shape, run: int, row: int, first: int) -> Any:
    """Return the words ``first`` to ``first + run`` of some rows of ``row`` words: one run for each row."""
    number: Any = 0
    for k, length in enumerate(rows):
        along = iota(length, dtype=dt.uint64, device=state.device, start=start[k]) * prod(whole[k + 1 :])
        number = reshape(along, (length,) + (1,) * (len(rows) - 1 - k)) + number
    column = (prod(rows), 1)
    places = reshape(number, column) * row + first
    key, counter = (slice(state, (k,), (1,), (1,)) for k in (0, 1))
    blocks = bitwise_right_shift(places, 2) + counter
    states = concat([broadcast_to(reshape(key, (1, 1)), column), blocks], axis=1)
    aligned = row % 4 == 0
    words = _philox(states, ((first % 4 if aligned else 3) + run,))
    skips = (first % 4,) if aligned else range(4)
    out = None
    for skip in skips:
        at = slice(words, (0, skip), (column[0], run), (1, 1))
        out = at if out is None else where(equal(bitwise_and(places, 3), skip), at, out)
    return out
