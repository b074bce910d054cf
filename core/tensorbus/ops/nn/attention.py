"""Attention: averages of values by how well keys answer to queries (Vaswani et al. 2017).

One op, so that a device can have one kernel for it. Names, arguments and values are PyTorch's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...dtypes import definition as dt
from ...dtypes.definition import FLOATING
from ...errors import DtypeError, ShapeError
from ..call_errors import flags
from ..definition import Op, table
from ..elementwise.where_cast import narrowed, widened
from . import sharding
from .attention_gradients import attention_gradients, gradients_and_masks
from .attention_scores import NAME, attention_compute, attention_infer, attention_weights, shared_product

if TYPE_CHECKING:
    from ...tensor.tensor import Tensor


def _arguments(
    query: Any, key: Any, value: Any, /, attn_mask: Any = None, *, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> tuple[tuple[Any, ...], dict[str, Any]]:  # fmt: skip
    masks = () if attn_mask is None else (attn_mask,)
    if masks and is_causal:
        raise ShapeError(f"{NAME}: is_causal makes its own mask; pass it or attn_mask, and not both.")
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None and query.shape and query.shape[-1] else scale
    return (query, key, value, *masks), {
        **flags(NAME, is_causal=is_causal), "scale": 1.0 if factor is None else float(factor),
        **flags(NAME, enable_gqa=enable_gqa),
    }  # fmt: skip


def _decompose(
    query: Any, key: Any, value: Any, *masks: Any, is_causal: bool, scale: float, enable_gqa: bool
) -> Any:
    dtype = query.dtype
    shares = attention_weights(widened(query), widened(key), masks, is_causal, scale)
    return narrowed(shared_product(shares, widened(value)), dtype)


def _vjp(
    g: Any, out: Any, query: Any, key: Any, value: Any, attn_mask: Sequence[Any], is_causal: bool,
    scale: float, enable_gqa: bool, wanted: tuple[bool, ...],
) -> tuple[Any, ...]:  # fmt: skip
    attrs: dict[str, Any] = {"is_causal": is_causal, "scale": scale, "enable_gqa": enable_gqa}
    if any(wanted[3:]):
        return gradients_and_masks(g, out, query, key, value, *attn_mask, **attrs)
    grads = table.run(attention_gradients.name, (g, out, query, key, value, *attn_mask), attrs)
    return (*grads, *(None for _ in attn_mask))


attention = table.add(
    Op(
        name=NAME, family="attention", operands=("query", "key", "value", "*attn_mask"),
        arguments=_arguments, infer=attention_infer, compute=attention_compute, decompose=_decompose,
        vjp=_vjp, dtypes=FLOATING, autocast="narrow", method=False, shard=sharding.attention,
        may_overwrite=("query", "key", "*attn_mask", "out"),
        doc="``softmax(query @ key.mT * scale + attn_mask) @ value`` over the last two axes.",
    )
)  # fmt: skip
scaled_dot_product_attention = attention.function


def check_mask(name: str, mask: Tensor) -> None:
    """Raise ``DtypeError`` for a mask that is neither bool nor floating-point."""
    if mask.dtype is not dt.bool_ and not mask.dtype.is_floating:
        raise DtypeError(f"{name}: a mask is bool, or floating-point and added; got {mask.dtype}.")
