"""Shared by attention and its derivative: shapes, dtypes, and the scores of keys for queries."""

from __future__ import annotations

from typing import Any, Final

from ...dtypes import definition as dt
from ...dtypes.definition import FLOATING, DType
from ...dtypes.promotion import common_dtype
from ...errors import DtypeError, ShapeError
from ..creation.creation import iota
from ..definition import Spec
from ..elementwise.comparison import greater_equal
from ..elementwise.family import broadcast_shapes, fit
from ..elementwise.where_cast import where
from ..fused_function import fuse_in_eager
from ..matmul.matmul import matrix_transpose, product
from ..movement.movement import reshape
from ..reduction.reduction import max
from ..reduction.softmax import softmax

NAME: Final = "scaled_dot_product_attention"


def attention_infer(specs: tuple[Spec, ...], *, is_causal: bool, scale: float, enable_gqa: bool) -> Spec:
    """The shape and dtype rule."""
    q, k, v, *masks = specs
    if min(len(s.shape) for s in (q, k, v)) < 2:
        raise ShapeError(f"{NAME}: (*, length, width) is needed, got {q.shape}, {k.shape} and {v.shape}.")
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise ShapeError(
            f"{NAME}: query and key need one width, key and value one length; got {q.shape}, {k.shape} and"
            f" {v.shape}."
        )
    heads = [s.shape[:-2] for s in (q, k, v)]
    if enable_gqa:
        if min(map(len, heads)) < 1 or any(not h[-1] or heads[0][-1] % h[-1] for h in heads[1:]):
            raise ShapeError(
                f"{NAME}: with enable_gqa the heads of key and value must divide those of the query; got"
                f" {q.shape}, {k.shape} and {v.shape}."
            )
        heads = [heads[0], *((*h[:-1], heads[0][-1]) for h in heads[1:])]
    lead = broadcast_shapes(*heads)
    scores = (*lead, q.shape[-2], k.shape[-2])
    for mask in masks:
        missing = len(scores) - len(mask.shape)
        if missing < 0 or any(m not in (1, n) for m, n in zip(mask.shape, scores[missing:], strict=True)):
            raise ShapeError(f"{NAME}: a mask of shape {mask.shape} does not broadcast to scores {scores}.")
    return Spec((*lead, q.shape[-2], v.shape[-1]), q.dtype)


def attention_compute(operand_dtypes: tuple[DType, ...], **_: Any) -> tuple[DType, ...]:
    """Return what operands are cast to: one dtype, and a bool mask stays."""
    dtype = fit(NAME, common_dtype(operand_dtypes[:3]), FLOATING)
    for mask in operand_dtypes[3:]:
        if mask is not dt.bool_ and not mask.is_floating:
            raise DtypeError(f"{NAME}: a mask is bool, or floating-point and added; got {mask}.")
    return (dtype,) * 3 + tuple(m if m is dt.bool_ else dtype for m in operand_dtypes[3:])


def merged(x: Any, y: Any) -> Any:
    """Return ``(*, heads, m, k)`` as ``(*, own, heads / own * m, k)``, for ``own`` heads that ``y`` has.

    So the rows of those heads that share one of ``y`` are one behind the other.
    """
    if min(len(x.shape), len(y.shape)) < 3 or x.shape[-3] == y.shape[-3] or x.shape[-3] == 1:
        return x
    *lead, heads, m, k = x.shape
    own = y.shape[-3]
    return reshape(x, (*lead, own, heads // own * m, k))


def shared_product(x: Any, y: Any) -> Any:
    """Return ``x @ y`` where several heads of ``x`` share one of ``y``, which is not repeated for them."""
    rows = merged(x, y)
    out = product(rows, y)
    if rows is x:
        return out
    return reshape(out, (*out.shape[:-3], *x.shape[-3:-1], out.shape[-1]))


def attention_weights(query: Any, key: Any, masks: tuple[Any, ...], is_causal: bool, scale: float) -> Any:
    """Return the share of each key in each query's answer; all 0 where a bool mask leaves none.

    A float mask is added to the scores; a row of it that is all ``-inf`` gives zeros as well.
    """
    scores = shared_product(query * scale, matrix_transpose(key))
    if is_causal and not masks and scores.shape[-1]:
        return causal_weights(scores)
    if is_causal:
        scores = where(_earlier(scores), scores, float("-inf"))
    for mask in masks:
        scores = where(mask, scores, float("-inf")) if mask.dtype is dt.bool_ else scores + mask
    if not masks or not scores.shape[-1]:
        return softmax(scores, axis=-1)
    dead = max(scores.detach(), axis=-1, keepdims=True) == float("-inf")
    return where(dead, 0.0, softmax(where(dead, 0.0, scores), axis=-1))


@fuse_in_eager
def causal_weights(scores: Any) -> Any:
    """Return the share of each key of a query's own place and before: eager code makes no mask for it."""
    return softmax(where(_earlier(scores), scores, float("-inf")), axis=-1)


def _earlier(scores: Any) -> Any:
    """Return which keys each query sees of its own place and before: the first one at least."""
    rows, columns = (iota(n, dtype=dt.int32, device=scores.device) for n in scores.shape[-2:])
    return greater_equal(reshape(rows, (scores.shape[-2], 1)), columns)
