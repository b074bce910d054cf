"""Attention as functions: with dropout, and over several heads with projections.

Names, arguments and values are PyTorch's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from ...errors import ArgumentError, ShapeError
from ...ops.call_errors import flags, with_form
from ...ops.creation.creation import zeros
from ...ops.definition import Spec
from ...ops.elementwise.comparison import not_equal
from ...ops.elementwise.where_cast import narrowed, where, widened
from ...ops.matmul.linear import linear
from ...ops.matmul.matmul import product
from ...ops.movement.movement import broadcast_to, concat, pad, permute_dims, reshape
from ...ops.nn import attention as ops
from ...ops.nn.attention_scores import NAME, attention_infer, attention_weights, shared_product
from ...ops.reduction.reduction import mean
from ...tensor.tensor import Tensor
from ..attention.bias import CausalBias, CausalVariant
from ..attention.block_mask import BlockMask
from ..attention.packed_rows import PackedRows, is_worth_packing, of_packed_rows
from ..attention.sdpa_backends import (
    SdpaCall,
    SDPBackend,
    choose_backend,
    has_many_scores,
    is_restricted,
    notify_backend,
)
from ..attention.tiles import attend_by_tiles, diagonal_of, padding_blocks
from .dropout import dropout


@with_form
def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | CausalBias | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """Return ``softmax(query @ key.mT * scale + attn_mask) @ value`` over the last two axes.

    ``query`` is ``(*, length, width)``, ``key`` ``(*, source, width)``, ``value`` ``(*, source, any)``; the
    result ``(*, length, any)``. A bool mask says which scores count, a float one is added; ``is_causal`` lets
    each place see those up to its own. ``scale`` is ``1 / sqrt(width)`` by default. With ``enable_gqa`` fewer
    heads of key and value serve several of the query each. Where nothing may be seen the result is 0.
    Raises ``ShapeError``, ``DtypeError`` and, unless ``0 <= dropout_p <= 1``, ``ArgumentError``.

    >>> import tensorbus as tb
    >>> x = tb.asarray([[1.0, 0.0], [0.0, 1.0]])
    >>> tb.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)[0].tolist()
    [1.0, 0.0]
    """
    if attn_mask is not None and is_causal:
        raise ShapeError(f"{NAME}: is_causal makes its own mask; pass it or attn_mask, and not both.")
    return _attend(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, None)


def padded_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, blocks: BlockMask) -> Tensor:
    """Return attention of ``(batch, heads, length, width)`` to itself where ``mask`` lets scores count.

    ``blocks`` are those that padding leaves, as ``padding_blocks`` has them: where there are many scores no
    others are computed. What becomes of padding may be anything.
    """
    return _attend(query, key, value, mask, 0.0, False, None, False, blocks)


def _attend(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | CausalBias | None, dropout_p: float,
    is_causal: bool, scale: float | None, enable_gqa: bool, blocks: BlockMask | None,
) -> Tensor:  # fmt: skip
    if min(len(x.shape) for x in (query, key, value)) < 2:
        raise ShapeError(
            f"{NAME}: query, key and value need at least 2 dimensions, got shapes {query.shape}, {key.shape},"
            f" {value.shape}."
        )
    width = query.shape[-1]
    factor = float(scale) if scale is not None else 1 / math.sqrt(width) if width else 1.0
    diagonal, attn_mask = _split_mask(query, key, attn_mask)
    if flags(NAME, is_causal=is_causal)["is_causal"]:
        diagonal = 0
    causal = diagonal is not None and diagonal == 0
    attrs: dict[str, Any] = {"is_causal": causal, "scale": factor, **flags(NAME, enable_gqa=enable_gqa)}
    masks = () if attn_mask is None else (attn_mask,)
    specs = tuple([Spec(x.shape, x.dtype) for x in (query, key, value, *masks)])
    out = attention_infer(specs, **attrs)
    call = SdpaCall(
        specs=specs, out=out, device=query.device, attrs=attrs, dropout=bool(dropout_p),
        learns_mask=attn_mask is not None and attn_mask.requires_grad,
        causal_bias=diagonal is not None and not causal,
    )  # fmt: skip
    backend = choose_backend(call)
    notify_backend(call, backend)
    if backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):
        return attend_by_tiles(query, key, value, attn_mask, diagonal, factor, out.shape[:-2], blocks)
    if call.causal_bias:  # of another corner than is_causal
        lines = query.shape[-2], key.shape[-2]
        masks = (CausalBias(CausalVariant.LOWER_RIGHT, *lines).materialize(query.device),)
    if backend is not SDPBackend.MATH or not (dropout_p or is_restricted()):
        result: Tensor = ops.attention(query, key, value, *masks, **attrs)
        return result
    own_query, own_key = widened(query._apart()), widened(key._apart())
    shares = attention_weights(own_query, own_key, masks, causal, factor)
    shares = dropout(shares, dropout_p) if dropout_p else shares
    thinned: Tensor = narrowed(shared_product(shares, widened(value)), query.dtype)
    return thinned


def _split_mask(query: Tensor, key: Tensor, mask: Any) -> tuple[int | None, Tensor | None]:
    """Return the diagonal of a causal mask, if it is one by its sizes, and a mask that is a tensor."""
    if not isinstance(mask, CausalBias):
        return None, mask
    lines = query.shape[-2], key.shape[-2]
    if mask.shape != lines:
        raise ShapeError(
            f"{NAME}: the causal mask is for {mask.shape[0]} queries and {mask.shape[1]} keys, and there are"
            f" {lines[0]} and {lines[1]}."
        )
    return diagonal_of(mask), None


@with_form
def multi_head_attention_forward(
    query: Tensor, key: Tensor, value: Tensor, embed_dim_to_check: int, num_heads: int,
    in_proj_weight: Tensor | None, in_proj_bias: Tensor | None, bias_k: Tensor | None, bias_v: Tensor | None,
    add_zero_attn: bool, dropout_p: float, out_proj_weight: Tensor, out_proj_bias: Tensor | None,
    training: bool = True, key_padding_mask: Tensor | None = None, need_weights: bool = True,
    attn_mask: Tensor | None = None, use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None, k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None, average_attn_weights: bool = True, is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Return the projected attention of several heads, and the shares of the keys where they are needed.

    ``query``, ``key`` and ``value`` are ``(length, batch, width)``, or all without the batch. In masks, True
    marks what must not be seen, as in PyTorch; float masks are added. Raises ``ShapeError`` for what does not
    fit.
    """
    alone = query.ndim == 2
    if alone:
        query, key, value = of_distinct(
            lambda x: reshape(x, (x.shape[0], 1, *x.shape[1:])), query, key, value
        )
        key_padding_mask = None if key_padding_mask is None else reshape(key_padding_mask, (1, -1))
    if query.ndim != 3 or key.ndim != 3 or value.ndim != 3 or key.shape[:2] != value.shape[:2]:
        raise ShapeError(
            f"multi-head attention: (length, batch, width) is needed, and key and value of one length and"
            f" batch; got {query.shape}, {key.shape} and {value.shape}."
        )
    length, batch, width = query.shape
    if width != embed_dim_to_check or width % num_heads or key.shape[1] != batch:
        raise ShapeError(
            f"multi-head attention: a query of width {embed_dim_to_check}, which {num_heads} heads divide,"
            f" and one batch are needed; got {query.shape} and {key.shape}."
        )
    if is_causal and attn_mask is None:
        raise ArgumentError("multi-head attention: is_causal is a hint about attn_mask, which is needed.")
    weights = _three(in_proj_weight, (q_proj_weight, k_proj_weight, v_proj_weight), width)
    biases: Any = (None,) * 3 if in_proj_bias is None else _thirds(in_proj_bias, width)
    mask = merged_mask(attn_mask, key_padding_mask, batch, num_heads, length, key.shape[0], query)
    seen = None if key_padding_mask is None else seen_keys(key_padding_mask)
    q = linear(query, weights[0], biases[0])
    if seen is not None and _leaves_padding_out(key, value, seen, weights, biases):
        k, v = _project_seen(key, value, seen, weights, biases)
    else:
        k, v = (linear(x, weights[n], biases[n]) for n, x in ((1, key), (2, value)))
    extra = 0
    if bias_k is not None and bias_v is not None:
        k = concat([k, broadcast_to(bias_k, (1, batch, width))], axis=0)
        v = concat([v, broadcast_to(bias_v, (1, batch, width))], axis=0)
        extra += 1
    if add_zero_attn:
        nothing = zeros((1, batch, width), dtype=k.dtype, device=k.device)
        k, v = concat([k, nothing], axis=0), concat([v, nothing], axis=0)
        extra += 1
    if mask is not None and extra:
        mask = pad(mask, (0,) * 4, (0, 0, 0, extra))
    q, k, v = (_by_head(x, num_heads) for x in (q, k, v))
    drop = dropout_p if training else 0.0
    if not need_weights:
        blocks = None
        if seen is not None and not (extra or drop) and has_many_scores(q.shape, k.shape):
            blocks = padding_blocks(seen, length)
        out = _attend(q, k, v, mask, drop, False, None, False, blocks)
        shares = None
    else:
        factor = 1 / math.sqrt(width // num_heads)
        masks = () if mask is None else (mask,)
        shares = attention_weights(q, k, masks, False, factor)
        shares = dropout(shares, drop) if drop else shares
        out = product(shares, v)
    joined = reshape(permute_dims(out, (2, 0, 1, 3)), (length, batch, width))
    result = linear(joined, out_proj_weight, out_proj_bias)
    if shares is not None and average_attn_weights:
        shares = mean(shares, axis=1)
    if alone:
        shares = None if shares is None else reshape(shares, shares.shape[1:])
        result = reshape(result, (length, width))
    return result, shares


def _three(joint: Tensor | None, apart: tuple[Tensor | None, ...], width: int) -> tuple[Tensor, ...]:
    if joint is not None:
        return _thirds(joint, width)
    if any(w is None for w in apart):
        raise ArgumentError("multi-head attention: in_proj_weight, or all three apart, are needed.")
    return tuple(w for w in apart if w is not None)


def _thirds(joint: Tensor, width: int) -> tuple[Tensor, ...]:
    return tuple(joint[k * width : (k + 1) * width] for k in range(3))


def of_distinct(function: Callable[[Tensor], Tensor], *tensors: Tensor) -> Iterator[Tensor]:
    """Return what ``function`` makes of tensors, one result for those that are the same."""
    distinct = {id(x): x for x in tensors}
    results = {key: function(x) for key, x in distinct.items()}
    return (results[id(x)] for x in tensors)


def _leaves_padding_out(
    key: Tensor, value: Tensor, seen: Tensor, weights: tuple[Tensor, ...], biases: tuple[Tensor | None, ...]
) -> bool:
    """Return whether only those keys and values are projected that are no padding."""
    inputs = (key, value)
    if any(x.shape[2] != w.shape[-1] for x, w in zip(inputs, weights[1:], strict=True)):
        return False  # the projection says what is wrong
    products = key.size * weights[1].shape[0] + value.size * weights[2].shape[0]
    return is_worth_packing(products, (*inputs, *weights[1:], *biases[1:]), *inputs, seen)


def _project_seen(
    key: Tensor, value: Tensor, seen: Tensor, weights: tuple[Tensor, ...], biases: tuple[Tensor | None, ...]
) -> tuple[Tensor, Tensor]:
    """Return projected keys and values, ``(source, batch, width)``: 0 in the places that are padding."""
    same = key is value

    def projected(rows: PackedRows, *inputs: Tensor) -> list[Tensor]:
        packed = [rows.pack(permute_dims(x, (1, 0, 2))) for x in inputs]
        return [
            permute_dims(rows.unpack(linear(x, w, b)), (1, 0, 2))
            for x, w, b in zip(packed * (1 + same), weights[1:], biases[1:], strict=True)
        ]

    k, v = of_packed_rows(projected, seen, (key,) if same else (key, value))
    return k, v


def _by_head(x: Tensor, heads: int) -> Tensor:
    """Turn ``(length, batch, width)`` into ``(batch, heads, length, width / heads)``."""
    length, batch, width = x.shape
    return permute_dims(reshape(x, (length, batch, heads, width // heads)), (1, 2, 0, 3))


def seen_keys(padding: Tensor) -> Tensor:
    """Return which places of a batch are no padding, bool, of a mask as modules take it.

    True, or ``-inf`` of one that is added to scores, is padding.
    """
    if padding.dtype.is_floating:
        return not_equal(padding, float("-inf"))
    ops.check_mask("attention", padding)
    seen: Tensor = ~padding
    return seen


def additive(mask: Tensor, like: Tensor) -> Tensor:
    """Return a mask to add to scores: ``-inf`` where a bool one is True."""
    if mask.dtype.is_floating:
        return mask.to(like.dtype)
    ops.check_mask("attention", mask)
    return where(mask, float("-inf"), zeros((), dtype=like.dtype, device=like.device))


def merged_mask(
    attn_mask: Tensor | None, key_padding_mask: Tensor | None, batch: int, heads: int, length: int,
    source: int, like: Tensor,
) -> Tensor | None:  # fmt: skip
    """Return one mask to add, of four axes."""
    mask = None
    if attn_mask is not None:
        if attn_mask.shape not in ((length, source), (batch * heads, length, source)):
            raise ShapeError(
                f"multi-head attention: attn_mask needs shape {(length, source)} or"
                f" {(batch * heads, length, source)}, got {attn_mask.shape}."
            )
        lead = (1, 1) if attn_mask.ndim == 2 else (batch, heads)
        mask = reshape(additive(attn_mask, like), (*lead, length, source))
    if key_padding_mask is not None:
        if key_padding_mask.shape != (batch, source):
            raise ShapeError(
                f"multi-head attention: key_padding_mask needs shape {(batch, source)}, got"
                f" {key_padding_mask.shape}."
            )
        other = reshape(additive(key_padding_mask, like), (batch, 1, 1, source))
        mask = other if mask is None else mask + other
    return mask
