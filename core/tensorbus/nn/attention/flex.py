"""``flex_attention``: attention whose scores a Python function changes, and another one masks.

Names, arguments and values are those of ``torch.nn.attention.flex_attention``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ...dispatch.kernel_tables import is_served
from ...dispatch.modes import base_device, is_value_mode
from ...dtypes import definition as dt
from ...errors import ArgumentError, DeviceError, ShapeError
from ...ops.call_errors import with_form
from ...ops.nn.flex_attention import flex_attention as op
from ...tensor.tensor import Tensor
from ...tracing.active_tracer import active_tracer
from .block_mask import BlockMask
from .program_cache import capture_again


@with_form
def flex_attention(
    query: Tensor, key: Tensor, value: Tensor, score_mod: Callable[..., Any] | None = None,
    block_mask: BlockMask | None = None, scale: float | None = None, enable_gqa: bool = False,
    return_lse: bool = False, kernel_options: Mapping[str, Any] | None = None,
) -> Any:  # fmt: skip
    """Return ``softmax(score_mod(query @ key.mT * scale)) @ value`` where ``block_mask`` lets scores count.

    ``query`` is ``(batch, heads, length, width)``, ``key`` ``(batch, heads, source, width)``, ``value``
    ``(batch, heads, source, any)``; the result is ``(batch, heads, length, any)`` in the dtype of the query.
    Keys and values may have a batch of 1, and with ``enable_gqa`` fewer heads, which several of the query
    share. ``scale`` is ``1 / sqrt(width)`` by default.

    ``score_mod(score, b, h, q_idx, kv_idx)`` gets one score (float32; float64 for float64 operands) and the
    numbers of its batch, head of the query, query and key, all of shape ``()``, and returns the new score. It
    is a function of elementwise ops, and may index tensors from outside: biases, slopes, tables of pages.
    Those that require a gradient get it. ``block_mask`` (see ``create_block_mask``) says which scores count;
    its empty blocks are neither computed nor read. A query that no key answers has the result 0.
    No tensor of the size of ``length * source`` is made, forward or backward.

    With ``return_lse`` the result is a pair; the second is the logarithm of each query's sum of exponentials,
    ``(batch, heads, length)``, float32 or float64, -inf where no key answers; it has a gradient too.
    ``kernel_options`` tune PyTorch's kernels and are taken for its sake: they change nothing here.

    Raises ``ShapeError`` for shapes that do not fit, ``DtypeError``, ``DeviceError`` for tensors on several
    devices, ``UnsupportedOpError`` for a ``score_mod`` that does more than elementwise ops and indexing.

    >>> import tensorbus as tb
    >>> x = tb.ones((1, 1, 3, 2))
    >>> value = tb.asarray([[[[0.0], [1.0], [2.0]]]])
    >>> causal = lambda b, h, q_idx, kv_idx: q_idx >= kv_idx
    >>> mask = tb.nn.attention.create_block_mask(causal, None, None, 3, 3)
    >>> tb.nn.attention.flex_attention(x, x, value, block_mask=mask).ravel().tolist()
    [0.0, 0.5, 1.0]
    """
    if score_mod is not None and not callable(score_mod):
        raise ArgumentError(
            f"flex_attention: score_mod is a function of (score, b, h, q_idx, kv_idx), got"
            f" {type(score_mod).__name__}."
        )
    if block_mask is not None and not isinstance(block_mask, BlockMask):
        raise ArgumentError(
            f"flex_attention: block_mask is what create_block_mask returns, got {type(block_mask).__name__};"
            " a function of indices becomes one by create_block_mask(mask_mod, B, H, Q_LEN, KV_LEN)."
        )
    if kernel_options is not None and not isinstance(kernel_options, Mapping):
        raise ArgumentError(f"flex_attention: kernel_options is a dict or None, got {kernel_options!r}.")
    states = None if block_mask is None else _states(block_mask, query, key)
    if scale is None:
        width = query.shape[-1] if query.shape else 1
        scale = 1 / math.sqrt(width) if width else 1.0
    for x in (query, value):  # kernels are made for the widths of heads: an open one becomes known
        _ = [int(n) for n in x.shape[-1:]]
    wide = dt.float64 if query.dtype is dt.float64 else dt.float32
    mask_mod = None if block_mask is None else block_mask.mask_mod
    captured = capture_again(score_mod, mask_mod, wide, query.device)
    extra = captured.tensors if states is None else (states, *captured.tensors)
    result = op(
        query, key, value, *extra, program=captured.program, scale=scale, enable_gqa=bool(enable_gqa),
        block_size=None if block_mask is None else block_mask.BLOCK_SIZE,
        visits=None if block_mask is None else _visits(block_mask, query),
    )  # fmt: skip
    return (result[0], result[1]) if return_lse else result[0]


def _states(mask: BlockMask, query: Tensor, key: Tensor) -> Tensor:
    """Return the states of a mask's blocks, of four axes. Raises where it is not for these operands."""
    if min(len(query.shape), len(key.shape)) >= 2:
        lengths = query.shape[-2], key.shape[-2]
        if lengths != mask.seq_lengths:
            raise ShapeError(
                f"flex_attention: the block mask is for {mask.seq_lengths[0]} queries and"
                f" {mask.seq_lengths[1]} keys, and there are {lengths[0]} and {lengths[1]}. Create one for"
                " these lengths; its upper left corner is block_mask.cropped(q_len, kv_len)."
            )
    if base_device(mask.blocks.device) != base_device(query.device):
        raise DeviceError(
            f"flex_attention: the query is on {query.device} and the block mask on {mask.blocks.device}; move"
            f" it with .to({str(query.device)!r})."
        )
    if len(mask.blocks.shape) != 4:
        raise ShapeError(
            f"flex_attention: a block mask of shape {mask.shape} has no axes of batches and heads; index it"
            " by slices, as block_mask[0:1, 0:1]."
        )
    return mask.blocks


def _visits(mask: BlockMask, query: Tensor) -> tuple[int, ...] | None:
    """Return which blocks of keys some head of some batch sees, as bits, for each block of queries.

    Who skips empty blocks from Python has to know them: not where a kernel sees them by itself, and not while
    a program is captured, which serves other masks too.
    """
    kind = query.device.type
    if active_tracer() is not None or is_value_mode(kind) or is_served(kind, op.name):
        return None
    return mask.visits
