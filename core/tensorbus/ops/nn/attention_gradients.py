"""The derivative of attention as an op: a device may have one kernel for it that keeps no scores.

With the shares ``p`` of the keys, the gradient of the scores is ``p * (g @ value.mT - d)``, where ``d`` is
the sum over a row of ``g * out`` (Dao et al. 2022), so that no row of scores is needed as a whole.
"""

from __future__ import annotations

from typing import Any

from ...dtypes.definition import FLOATING, DType, bool_
from ...errors import ShapeError
from ..definition import Op, Spec, table
from ..elementwise.where_cast import narrowed, widened
from ..matmul.matmul import matrix_transpose, product
from ..movement.movement import sum_to
from ..reduction.reduction import sum
from . import sharding
from .attention_scores import attention_compute, attention_infer, attention_weights, merged, shared_product

_NAME = "attention_gradients"


def _arguments(
    grad: Any, out: Any, query: Any, key: Any, value: Any, /, attn_mask: Any = None, *,
    is_causal: bool = False, scale: float = 1.0, enable_gqa: bool = False,
) -> tuple[tuple[Any, ...], dict[str, Any]]:  # fmt: skip
    masks = () if attn_mask is None else (attn_mask,)
    return (grad, out, query, key, value, *masks), {
        "is_causal": bool(is_causal), "scale": float(scale), "enable_gqa": bool(enable_gqa),
    }  # fmt: skip


def _infer(
    specs: tuple[Spec, ...], *, is_causal: bool, scale: float, enable_gqa: bool
) -> tuple[Spec, Spec, Spec]:
    grad, out, query, key, value, *masks = specs
    spec = attention_infer(
        (query, key, value, *masks), is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
    )
    if not grad.shape == out.shape == spec.shape:
        raise ShapeError(
            f"{_NAME}: these operands of attention give {spec.shape}; a gradient and a result of that shape"
            f" are needed, got {grad.shape} and {out.shape}."
        )
    return query, key, value


def _compute(operand_dtypes: tuple[DType, ...], **_: Any) -> tuple[DType, ...]:
    dtype, *rest = attention_compute(operand_dtypes[2:])
    return (dtype,) * 3 + tuple(rest)


def _over_rows(x: Any, y: Any, shared: Any) -> Any:
    """Return ``x.mT @ y``, summed over those heads that share one of ``shared``."""
    if x.shape[-3:-2] == y.shape[-3:-2]:  # else one of them is broadcast, and heads are summed afterwards
        x, y = merged(x, shared), merged(y, shared)
    return product(matrix_transpose(x), y)


def gradients_and_masks(
    grad: Any, out: Any, query: Any, key: Any, value: Any, *masks: Any, is_causal: bool, scale: float,
    enable_gqa: bool,
) -> tuple[Any, ...]:  # fmt: skip
    """Return the gradients of query, key and value, and of masks that are added; None for bool masks."""
    q, k, v, g = (widened(x) for x in (query, key, value, grad))
    shares = attention_weights(q, k, masks, is_causal, scale)
    behind = shared_product(g, matrix_transpose(v)) - sum(g * widened(out), axis=-1, keepdims=True)
    scores = shares * behind
    grads = (
        sum_to(shared_product(scores, k) * scale, query.shape),
        sum_to(_over_rows(scores, q, k) * scale, key.shape),
        sum_to(_over_rows(shares, g, v), value.shape),
    )
    added = (None if m.dtype is bool_ else narrowed(sum_to(scores, m.shape), m.dtype) for m in masks)
    return (*(narrowed(x, query.dtype) for x in grads), *added)


def _decompose(*operands: Any, **attrs: Any) -> tuple[Any, ...]:
    return gradients_and_masks(*operands, **attrs)[:3]


attention_gradients = table.add(
    Op(
        name=_NAME, family="attention", operands=("grad", "out", "query", "key", "value", "*attn_mask"),
        results=("query", "key", "value"), arguments=_arguments, infer=_infer, compute=_compute,
        decompose=_decompose, dtypes=FLOATING, method=False, shard=sharding.attention_gradients,
        doc="The gradients of attention's operands, from its result ``out`` and the result's gradient.",
    )
)  # fmt: skip
