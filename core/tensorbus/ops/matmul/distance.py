"""Distances and angles between vectors, and the losses that use them.

Names, arguments and values are PyTorch's. ``reduction`` is ``"mean"``, ``"sum"`` or ``"none"``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ...dtypes.promotion import common_dtype
from ...errors import ArgumentError, ShapeError
from ..call_errors import with_form
from ..creation.creation import broadcast_arrays
from ..elementwise.arithmetic import abs, maximum, minimum
from ..elementwise.comparison import equal, greater, not_equal
from ..elementwise.transcendental import power, sqrt
from ..elementwise.where_cast import narrowed, where, widened
from ..fused_function import fuse_in_eager
from ..indexing.gather_scatter import gather
from ..movement.family import normalize_axis
from ..movement.movement import reshape
from ..nn.loss import Reduction, reduced
from ..reduction.reduction import max, min, sum

if TYPE_CHECKING:
    from ...tensor.tensor import Tensor

_CDIST_MODES: Final = tuple(
    f"{word}use_mm_for_euclid_dist{when}" for word, when in (("", "_if_necessary"), ("", ""), ("donot_", ""))
)
"""How PyTorch may compute Euclidean distances."""


@fuse_in_eager
def vector_length(x: Tensor, axis: Any, keepdims: bool = False, p: float = 2.0) -> Tensor:
    """Return the ``p``-norm along ``axis``; its derivative at 0 is 0, not NaN.

    Powers of narrow dtypes are those of float32: the square of 300 is no float16. Complex numbers count by
    their size.
    """
    if x.dtype.is_complex:
        x = abs(x)
    if p in (math.inf, -math.inf):
        return (max if p > 0 else min)(abs(x), axis=axis, keepdims=keepdims)
    wide = widened(x)
    if p == 1:
        wide_length = sum(abs(wide), axis=axis, keepdims=keepdims)
    elif p == 0:
        wide_length = sum(where(not_equal(wide, 0), wide * 0 + 1, 0.0), axis=axis, keepdims=keepdims)
    else:
        total = sum(wide * wide if p == 2 else power(abs(wide), p), axis=axis, keepdims=keepdims)
        none = equal(total, 0)
        safe = where(none, 1.0, total)
        wide_length = where(none, 0.0, sqrt(safe) if p == 2 else power(safe, 1 / p))
    length: Tensor = narrowed(wide_length, x.dtype)
    return length


@with_form
@fuse_in_eager
def normalize(input: Tensor, p: float = 2.0, dim: Any = 1, eps: float = 1e-12) -> Tensor:
    """Return ``input`` divided by its ``p``-norm along ``dim``, or by ``eps`` where that is larger.

    >>> import tensorbus as tb
    >>> tb.nn.functional.normalize(tb.asarray([[3.0, 4.0]])).tolist() == tb.asarray([[0.6, 0.8]]).tolist()
    True
    """
    return input / maximum(vector_length(input, dim, True, p), eps)


@with_form
@fuse_in_eager
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Return the cosine of the angle between vectors along ``dim``; lengths below ``eps`` count as it.

    ``dim`` is an axis of the shape that both are broadcast to.

    >>> import tensorbus as tb
    >>> tb.nn.functional.cosine_similarity(tb.ones((2, 4)), tb.ones(4), dim=1).tolist()
    [1.0, 1.0]
    """
    dtype = common_dtype((x1.dtype, x2.dtype))
    x1, x2 = broadcast_arrays(widened(x1), widened(x2))
    first = x1 / maximum(vector_length(x1, dim, True), eps)
    second = x2 / maximum(vector_length(x2, dim, True), eps)
    cosine: Tensor = narrowed(sum(first * second, axis=dim), dtype)
    return cosine


@with_form
@fuse_in_eager
def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """Return the ``p``-norm of ``x1 - x2 + eps`` along the last axis."""
    return vector_length(x1 - x2 + eps, -1, keepdim, p)


@with_form
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """Return the ``p``-norm of the difference of each pair of rows: ``(n, m)`` gives ``n * (n - 1) / 2``.

    Pairs come in the order of the upper triangle. Raises ``ShapeError`` for another rank, ``ArgumentError``
    for ``p`` below 0.

    >>> import tensorbus as tb
    >>> tb.nn.functional.pdist(tb.asarray([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])).tolist()[:2]
    [5.0, 1.0]
    """
    if len(input.shape) != 2:
        raise ShapeError(f"pdist: a matrix of rows is needed, got shape {input.shape}.")
    if not p >= 0:
        raise ArgumentError(f"pdist: p must be >= 0, got {p!r}.")
    rows = range(input.shape[0])
    pairs = [(i, j) for i in rows for j in rows[i + 1 :]]
    if not pairs:
        return sum(input[:0], axis=1)
    first, second = input.tensor_like_device([i for i, _ in pairs]), input.beside([j for _, j in pairs])
    return vector_length(gather(input, first) - gather(input, second), 1, p=p)


@with_form
@fuse_in_eager
def cdist(
    x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary"
) -> Tensor:
    """Return the ``p``-norm of the difference of each row of ``x1`` and each row of ``x2``.

    ``(*, n, k)`` and ``(*, m, k)`` give ``(*, n, m)``; the axes before them broadcast. Differences are taken
    one by one, so that near rows lose no digits, whatever ``compute_mode`` allows of what PyTorch allows
    there; the derivative at a distance of 0 is 0. Raises ``ShapeError`` where shapes do not fit,
    ``ArgumentError`` for ``p`` below 0 and for another mode.

    >>> import tensorbus as tb
    >>> tb.cdist(tb.asarray([[0.0, 0.0]]), tb.asarray([[3.0, 4.0], [0.0, 1.0]])).tolist()
    [[5.0, 1.0]]
    """
    if len(x1.shape) < 2 or len(x2.shape) < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ShapeError(
            f"cdist: rows of one length are needed, at least 2 dimensions of both, got shapes {x1.shape} and"
            f" {x2.shape}."
        )
    if not p >= 0:
        raise ArgumentError(f"cdist: p must be >= 0, got {p!r}.")
    if compute_mode not in _CDIST_MODES:
        raise ArgumentError(
            f"cdist: compute_mode must be one of {', '.join(_CDIST_MODES)}, got {compute_mode!r}."
        )
    apart = reshape(x1, (*x1.shape[:-1], 1, x1.shape[-1])) - reshape(x2, (*x2.shape[:-2], 1, *x2.shape[-2:]))
    if not apart.shape[-1]:
        return sum(apart, axis=-1)
    return vector_length(apart, -1, p=p)


@with_form
@fuse_in_eager
def dist(x: Tensor, y: Tensor, /, p: float = 2.0) -> Tensor:
    """Return the ``p``-norm of ``x - y``, which broadcast, over all elements; its derivative at 0 is 0.

    >>> import tensorbus as tb
    >>> tb.dist(tb.asarray([0.0, 3.0]), tb.asarray([4.0, 0.0])).item()
    5.0
    """
    return vector_length(x - y, None, p=p)


@with_form
def renorm(x: Tensor, /, p: float, axis: int, maxnorm: float) -> Tensor:
    """Return ``x`` with each part along ``axis`` scaled to the ``p``-norm ``maxnorm`` where it is larger.

    Raises ``ShapeError`` for fewer than 2 dimensions, ``ArgumentError`` for ``p`` not above 0 or ``maxnorm``
    below 0.

    >>> import tensorbus as tb
    >>> tb.renorm(tb.asarray([[3.0, 4.0], [0.0, 1.0]]), 2, 0, 1.0)[1].tolist()
    [0.0, 1.0]
    """
    if len(x.shape) < 2:
        raise ShapeError(f"renorm: at least 2 dimensions are needed, got shape {x.shape}.")
    if not p > 0 or not maxnorm >= 0:
        raise ArgumentError(f"renorm: p must be > 0 and maxnorm >= 0, got {p!r} and {maxnorm!r}.")
    place = normalize_axis("renorm", axis, len(x.shape))
    wide = widened(x)
    norm = vector_length(wide, tuple(k for k in range(len(x.shape)) if k != place), True, p)
    factor = where(greater(norm, maxnorm), maxnorm / (norm + 1e-7), 1.0)
    scaled: Tensor = narrowed(wide * factor, x.dtype)
    return scaled


@with_form
@fuse_in_eager
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, *, reduction: Reduction = "mean"
) -> Tensor:
    """Return one minus the cosine where ``target`` is 1, and the cosine above ``margin`` where it is -1."""
    lengths = (sum(input1 * input1, axis=-1) + 1e-12) * (sum(input2 * input2, axis=-1) + 1e-12)
    cosine = sum(input1 * input2, axis=-1) / sqrt(lengths)
    losses = where(equal(target, 1), 1 - cosine, 0.0) + where(
        equal(target, -1), maximum(cosine - margin, 0.0), 0.0
    )
    return reduced("cosine_embedding_loss", losses, reduction)


@with_form
@fuse_in_eager
def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, *, reduction: Reduction = "mean"
) -> Tensor:
    """Return the distance ``input`` where ``target`` is 1, what it lacks to ``margin`` where it is -1."""
    apart = where(not_equal(target, 1), maximum(margin - input, 0.0), 0.0)
    return reduced("hinge_embedding_loss", apart + where(not_equal(target, -1), input, 0.0), reduction)


@with_form
@fuse_in_eager
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, *, reduction: Reduction = "mean"
) -> Tensor:
    """Return ``max(0, -target * (input1 - input2) + margin)``: 1 asks for a larger first, -1 second."""
    losses = maximum(-target * (input1 - input2) + margin, 0.0)
    return reduced("margin_ranking_loss", losses, reduction)


@with_form
@fuse_in_eager
def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2.0,
    eps: float = 1e-6, swap: bool = False, *, reduction: Reduction = "mean",
) -> Tensor:  # fmt: skip
    """Return how much closer than ``margin`` the negative is than the positive (Balntas et al. 2016).

    ``swap`` takes the distance from the positive to the negative where that is smaller. Raises
    ``ArgumentError`` unless ``margin`` is above 0.
    """
    return triplet_margin_with_distance_loss(
        anchor, positive, negative, distance_function=lambda x, y: pairwise_distance(x, y, p, eps),
        margin=margin, swap=swap, reduction=reduction,
    )  # fmt: skip


@with_form
def triplet_margin_with_distance_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None, margin: float = 1.0,
    swap: bool = False, reduction: Reduction = "mean",
) -> Tensor:  # fmt: skip
    """Return ``triplet_margin_loss`` by any distance; None is ``pairwise_distance``."""
    if not margin > 0:
        raise ArgumentError(f"triplet_margin_loss: margin must be > 0, got {margin!r}.")
    distance = pairwise_distance if distance_function is None else distance_function
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = minimum(far, distance(positive, negative))
    return reduced("triplet_margin_loss", maximum(near - far + margin, 0.0), reduction)
