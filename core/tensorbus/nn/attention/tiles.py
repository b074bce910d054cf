"""``scaled_dot_product_attention`` by tiles: its masks as score programs of ``flex_attention``.

A causal mask is a comparison of two numbers and a tensor is read where it counts, so that nothing has the
size of queries times keys but a mask that is handed over as such.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any, Final

from ...backend_interface.graph import Graph, Node
from ...dispatch.kernel_tables import is_served
from ...dispatch.modes import is_value_mode
from ...dtypes import definition as dt
from ...dtypes.definition import DType
from ...ops.creation.creation import iota
from ...ops.definition import Spec, table
from ...ops.elementwise.comparison import greater_equal, less
from ...ops.elementwise.where_cast import cast
from ...ops.movement.movement import broadcast_to, pad, reshape
from ...ops.nn.attention_blocks import NAME as FLEX
from ...ops.nn.flex_attention import flex_attention
from ...ops.nn.score_program import LEAD, CapturedRead, ScoreProgram
from ...ops.reduction import reduction
from ...tensor.tensor import Tensor
from ...tracing.active_tracer import active_tracer
from .bias import CausalBias
from .block_mask import BlockMask

BLOCK: Final = 64
"""How many queries and keys the blocks of a causal mask have."""


def attend_by_tiles(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, diagonal: int | None, scale: float,
    lead: tuple[int, ...], blocks: BlockMask | None = None,
) -> Tensor:  # fmt: skip
    """Return attention of operands that the op takes, ``lead`` being the axes of the result before a query's.

    ``diagonal`` is the number of the last key that the first query sees; None: there is no causal mask.
    ``blocks`` are those of a mask that says no more than ``mask`` does: see ``padding_blocks``.
    """
    length, source, width = query.shape[-2], key.shape[-2], value.shape[-1]
    q = _four_axes(query, lead, lead)
    k, v = (_four_axes(x, _own(lead, x.shape[:-2]), lead) for x in (key, value))
    wide = dt.float64 if query.dtype is dt.float64 else dt.float32
    extra: list[Any] = []
    block: dict[str, Any] = {"block_size": None, "visits": None}
    if diagonal is not None:
        extra.append(_causal_states(length, source, diagonal, q))
        block = {"block_size": (BLOCK, BLOCK), "visits": _visits(length, source, diagonal, q)}
    elif blocks is not None:
        extra.append(blocks.blocks)
        block = {"block_size": blocks.BLOCK_SIZE, "visits": blocks.visits if _is_walked(q) else None}
    if mask is not None:
        mask = _mask_of_four_axes(mask, lead)
        extra.append(mask)
    shape, dtype = (None, None) if mask is None else (mask.shape, mask.dtype)
    plain = all(type(n) is int for n in (*(shape or ()), diagonal or 0))
    program = (_program if plain else _program.__wrapped__)(wide, diagonal, shape, dtype)
    out = flex_attention(
        q, k, v, *extra, program=program, scale=scale, enable_gqa=q.shape[1] != k.shape[1], **block
    )[0]
    whole = (*lead, length, width)
    return out if out.shape == whole else reshape(out, whole)


def _own(lead: tuple[int, ...], own: tuple[int, ...]) -> tuple[int, ...]:
    """Return the leading axes of keys for queries of ``lead``: those that heads share stay as few."""
    heads = own[-1:] if own else (1,) * bool(lead)
    return (*lead[:-1], *heads)


def _four_axes(x: Tensor, lead: tuple[int, ...], whole: tuple[int, ...]) -> Tensor:
    """Return an operand with a batch and heads before its last two axes."""
    if len(whole) == 2 and len(x.shape) == 4 and x.shape[:2] == lead:
        return x
    if x.shape[:-2] != lead:
        x = broadcast_to(x, (*lead, *x.shape[-2:]))
    if len(lead) == 2:
        return x
    batch, heads = (prod(lead[:-1]), lead[-1]) if lead else (1, 1)
    return reshape(x, (batch, heads, *x.shape[-2:]))


def _mask_of_four_axes(mask: Tensor, lead: tuple[int, ...]) -> Tensor:
    """Return a mask of four axes, each of the length of the scores' or 1."""
    shape = (*[1] * (2 - len(mask.shape)), *mask.shape)
    before, last = shape[:-2], shape[-2:]
    before = (*[1] * (len(lead) - len(before)), *before)
    if len(before) > 2 and any(n != 1 for n in before[:-1]):
        mask = broadcast_to(mask, (*lead[:-1], before[-1], *last))
        before = (*lead[:-1], before[-1])
    four = (prod(before[:-1]), before[-1] if before else 1, *last)
    return mask if mask.shape == four else reshape(mask, four)


def _causal_states(length: int, source: int, diagonal: int, like: Tensor) -> Tensor:
    """Return the states of the blocks of a causal mask, uint8, ``(1, 1, blocks of queries, of keys)``."""
    rows, columns = -(-length // BLOCK), -(-source // BLOCK)
    first = reshape(iota(rows, diagonal, BLOCK, dtype=dt.int64, device=like.device), (1, 1, rows, 1))
    start = reshape(iota(columns, 0, BLOCK, dtype=dt.int64, device=like.device), (1, 1, 1, columns))
    some = less(start, first + BLOCK)  # the last query of the block sees the first key
    whole = greater_equal(first, start + (BLOCK - 1))
    states: Tensor = cast(some, dt.uint8) + cast(whole, dt.uint8)
    return states


def padding_blocks(keep: Tensor, queries: int | None = None) -> BlockMask:
    """Return the blocks of attention to keys of which ``keep``, bool, ``(batch, length)``, are no padding.

    Those are empty that are padding alone. There are as many ``queries``, or the batch attends to itself, so
    that blocks of queries that are padding are empty as well. What a partial block counts is said by the
    mask that goes with it.
    """
    batch, length = keep.shape
    more = -length % BLOCK
    padded = pad(keep, [0, 0], [0, more], False) if more else keep
    count = (length + more) // BLOCK
    blocks = reshape(padded, (batch, count, BLOCK))
    some = cast(reduction.any(blocks, axis=2), dt.uint8)
    both = reshape(some + cast(reduction.all(blocks, axis=2), dt.uint8), (batch, 1, 1, count))
    if queries is not None:
        rows = -(-queries // BLOCK)
        return BlockMask(broadcast_to(both, (batch, 1, rows, count)), (queries, length), BLOCK)
    return BlockMask(reshape(some, (batch, 1, count, 1)) * both, (length, length), BLOCK)


def _is_walked(like: Tensor) -> bool:
    """Return whether Python walks over the blocks of a call, and has to know which are not empty."""
    kind = like.device.type
    return active_tracer() is None and not is_value_mode(kind) and not is_served(kind, FLEX)


def _visits(length: int, source: int, diagonal: int, like: Tensor) -> tuple[int, ...] | None:
    """Return which blocks of keys the blocks of queries see, as bits, where Python walks over them."""
    if not _is_walked(like):
        return None
    columns = -(-source // BLOCK)
    counts = [(row + BLOCK - 1 + diagonal) // BLOCK + 1 for row in range(0, length, BLOCK)]
    return tuple([(1 << max(0, min(columns, n))) - 1 for n in counts])


@lru_cache(maxsize=256)
def _program(
    wide: DType, diagonal: int | None, shape: tuple[int, ...] | None, dtype: DType | None
) -> ScoreProgram:
    """Return the program of a causal mask, or of one that is a tensor of four axes."""
    inputs = [_input(k, Spec((), wide if k == 0 else dt.int32)) for k in range(LEAD)]
    reads: tuple[CapturedRead, ...] = ()
    additions: tuple[Node, ...] = ()
    score = inputs[0]
    outputs = [score]
    if shape is not None and dtype is not None:
        captured = _input(LEAD, Spec(shape, dtype))
        inputs.append(captured)
        zero = Node(op="constant", attrs={"value": 0}, spec=Spec((), dt.int32))
        places = tuple([zero if _is_one(n) else inputs[k + 1] for k, n in enumerate(shape)])
        element = _node("gather", captured, *places)
        if dtype is dt.bool_:
            outputs.append(element)
        else:
            if dtype is not wide:
                element = Node(op="cast", inputs=(element,), attrs={"dtype": wide}, spec=Spec((), wide))
            outputs[0] = _node("add", score, element)
            additions = places
            reads = (CapturedRead(captured=0, gradient=1, indices=(2, 3, 4, 5)),)
    if diagonal is not None:
        last = inputs[3]
        if not (type(diagonal) is int and diagonal == 0):
            offset = Node(op="constant", attrs={"value": diagonal}, spec=Spec((), dt.int32))
            last = _node("add", last, offset)
        outputs.append(_node("greater_equal", last, inputs[4]))
    seed = _input(0, Spec((), wide))
    back = (seed, seed, *additions) if reads else (seed,)
    return ScoreProgram(
        graph=Graph(inputs=tuple(inputs), outputs=tuple(outputs)), masked=len(outputs) == 2,
        derivative=Graph(inputs=(seed, *inputs), outputs=back), reads=reads,
    )  # fmt: skip


def _is_one(n: Any) -> bool:
    return type(n) is int and n == 1


def _input(index: int, spec: Spec) -> Node:
    return Node(op="input", attrs={"index": index}, spec=spec)


def _node(op: str, *inputs: Node) -> Node:
    return Node(op=op, inputs=inputs, spec=table[op].specs(tuple([x.spec for x in inputs]), {})[0])


def diagonal_of(bias: CausalBias) -> int | None:
    """Return the diagonal of a causal mask; None where every query sees all keys."""
    diagonal = bias.diagonal
    return None if type(diagonal) is int and diagonal >= bias.seq_len_kv - 1 else diagonal
