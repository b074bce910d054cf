"""Masks made of functions: whole ones, and block masks, which are computed some rows at a time."""

from __future__ import annotations

from inspect import signature
from typing import Any, Final

from ...devices.device import Device, DeviceLike
from ...dtypes import definition as dt
from ...errors import ArgumentError
from ...ops.creation.creation import iota, resolve, zeros
from ...ops.elementwise.comparison import not_equal
from ...ops.elementwise.where_cast import cast
from ...ops.movement.movement import broadcast_to, concat, pad, reshape
from ...ops.nn.score_program import run_scalars
from ...ops.reduction import reduction
from ...tensor.tensor import Tensor
from .block_mask import BlockMask, block_size
from .score_capture import Mod, capture

_MAX_ELEMENTS: Final = 1 << 22
"""How many elements of a mask are computed at a time."""


def create_mask(
    mod_fn: Mod, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: DeviceLike = None
) -> Tensor:
    """Return the whole mask of a ``mask_mod``, bool, ``(B, H, Q_LEN, KV_LEN)``; None for B or H is 1.

    Of a ``score_mod``, which has five parameters, the mask says which scores do not become -inf.

    >>> import tensorbus as tb
    >>> tb.nn.attention.create_mask(lambda b, h, q, kv: q >= kv, None, None, 2, 2).tolist()
    [[[[True, False], [True, True]]]]
    """
    target = _checked("create_mask", mod_fn, B, H, Q_LEN, KV_LEN, device)
    return _rows(mod_fn, (B or 1, H or 1, Q_LEN, KV_LEN), 0, Q_LEN, target)


def create_block_mask(
    mask_mod: Mod, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: DeviceLike = None,
    BLOCK_SIZE: int | tuple[int, int] = 128,
) -> BlockMask:  # fmt: skip
    """Return the block mask of ``mask_mod(b, h, q_idx, kv_idx)``, a function of four int32 of shape ``()``.

    It returns a bool: whether the score of a query and a key counts. It may index tensors from outside, which
    lie on ``device``: numbers of documents, lengths, tables of pages. ``B`` and ``H`` are the batch and the
    number of heads; None where the mask is the same for all of them. ``BLOCK_SIZE`` is the number of queries
    and keys of a block, or both. The mask is computed some rows at a time, and kept as one number a block.

    Raises ``ArgumentError`` for lengths that are none, ``DtypeError`` for a function that returns no bool.

    >>> import tensorbus as tb
    >>> document = tb.asarray([0] * 100 + [1] * 28)
    >>> same = lambda b, h, q, kv: document[q] == document[kv]
    >>> tb.nn.attention.create_block_mask(same, None, None, 128, 128, BLOCK_SIZE=32).blocks[0, 0].tolist()
    [[2, 2, 2, 1], [2, 2, 2, 1], [2, 2, 2, 1], [1, 1, 1, 1]]
    """
    target = _checked("create_block_mask", mask_mod, B, H, Q_LEN, KV_LEN, device)
    size = block_size("create_block_mask", BLOCK_SIZE)
    shape = (B or 1, H or 1, Q_LEN, KV_LEN)
    tall = max(1, _MAX_ELEMENTS // max(1, shape[0] * shape[1] * KV_LEN * size[0])) * size[0]
    count = -(-Q_LEN // tall)
    parts = []
    for k in range(count):  # a program's, whose lengths may vary, is made for the number of parts alone
        stop = Q_LEN if k == count - 1 else (k + 1) * tall
        parts.append(_states(_rows(mask_mod, shape, k * tall, stop, target), size))
    if not parts:
        parts.append(zeros((*shape[:2], 0, -(-KV_LEN // size[1])), dtype=dt.uint8, device=target))
    blocks = parts[0] if len(parts) == 1 else concat(parts, axis=2)
    return BlockMask(blocks, (Q_LEN, KV_LEN), size, mask_mod)


def _checked(
    name: str, function: Any, B: Any, H: Any, Q_LEN: Any, KV_LEN: Any, device: DeviceLike
) -> Device:  # fmt: skip
    if not callable(function):
        raise ArgumentError(f"{name}: a mask_mod is a function of (b, h, q_idx, kv_idx), got {function!r}.")
    for what, n in (("B", B), ("H", H), ("Q_LEN", Q_LEN), ("KV_LEN", KV_LEN)):
        if n is None and len(what) == 1:
            continue
        if not hasattr(type(n), "__index__") or n < (len(what) == 1):
            raise ArgumentError(f"{name}: {what} is the length of an axis, got {n!r}.")
    return resolve(device)


def _rows(function: Mod, shape: tuple[int, ...], start: int, stop: int, device: Device) -> Tensor:
    """Return the mask of some queries."""
    scored = len(signature(function).parameters) == 5
    captured = capture(function if scored else None, None if scored else function, dt.float32, device)
    lines = []
    for axis, n in enumerate((shape[0], shape[1], stop - start, shape[3])):
        line = iota(n, start if axis == 2 else 0, dtype=dt.int32, device=device)
        lines.append(reshape(line, tuple(n if k == axis else 1 for k in range(4))))
    score = zeros((1, 1, 1, 1), dtype=dt.float32, device=device)
    values = run_scalars(captured.program.graph, (score, *lines, *captured.tensors))[-1]
    mask = not_equal(values, float("-inf")) if scored else values
    whole: Tensor = broadcast_to(mask, (*shape[:2], stop - start, shape[3]))
    return whole


def _states(mask: Tensor, size: tuple[int, int]) -> Tensor:
    """Return the states of the blocks of a mask; one that reaches over an end is partial at most."""
    *lead, queries, keys = mask.shape
    (tall, wide), none = size, [0] * len(mask.shape)
    more = [*[0] * len(lead), -queries % tall, -keys % wide]
    padded = pad(mask, none, more, False) if more != none else mask
    rows, columns = padded.shape[-2] // tall, padded.shape[-1] // wide
    blocks = reshape(padded, (*lead, rows, tall, columns, wide))
    some, whole = reduction.any(blocks, axis=(-3, -1)), reduction.all(blocks, axis=(-3, -1))
    states: Tensor = cast(some, dt.uint8) + cast(whole, dt.uint8)
    return states
