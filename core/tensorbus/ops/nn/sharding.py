"""Sharding rules of attention and convolution, and of their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..definition import Spec
from ..sharding_rules import Specs, Strategies, Strategy, aligned_axis, multilinear


def attention(operands: Specs, results: Sequence[Spec], *, is_causal: bool = False, **_: Any) -> Strategies:
    """The rule of attention, and of its gradients: batches, heads, and queries where none is masked by place.

    Operands are query, key, value and a mask, behind what has the query's shape; heads of keys and values
    may be fewer, and are split where the number of parts divides theirs.
    """
    yield from _attention(operands, results, 0, is_causal)


def attention_gradients(
    operands: Specs, results: Sequence[Spec], *, is_causal: bool = False, **_: Any
) -> Strategies:
    """The rule of the gradients of attention: the result's gradient and the result stand before the rest."""
    yield from _attention(operands, results, 2, is_causal)


def _attention(operands: Specs, results: Sequence[Spec], first: int, is_causal: bool) -> Strategies:
    query, key, value = operands[first : first + 3]
    masks = operands[first + 3 :]
    rank = len(query.shape)
    if not rank == len(key.shape) == len(value.shape):
        return
    for axis in range(rank - 2):
        lengths = query.shape[axis], key.shape[axis], value.shape[axis]
        fewer = min(lengths)
        if fewer != max(lengths) and (axis != rank - 3 or fewer == 1 or key.shape[axis] != value.shape[axis]):
            continue
        marks = [None if m is None else aligned_axis(m.shape, axis, (*query.shape[:-1], key.shape[-2]))
                 for m in masks]  # fmt: skip
        yield Strategy(
            (*(axis,) * (first + 3), *marks), (axis,) * len(results), 0 if fewer == max(lengths) else fewer
        )
    if not first and not is_causal:
        axis = rank - 2
        scores = (*query.shape[:-1], key.shape[-2])
        marks = [None if m is None else aligned_axis(m.shape, axis, scores) for m in masks]
        yield Strategy((axis, None, None, *marks), (axis,))


def convolution(operands: Specs, results: Sequence[Spec], *, groups: int = 1, **_: Any) -> Strategies:
    """The rule of ``conv``: batches, channels of the result, or those that are summed over."""
    yield Strategy((0, None), (0,))
    if groups == 1:
        yield Strategy((None, 0), (1,))
        yield Strategy((1, 1), ("sum",))
    yield from multilinear(operands, results)


def convolution_transpose(
    operands: Specs, results: Sequence[Spec], *, groups: int = 1, **_: Any
) -> Strategies:
    """The rule of ``conv_transpose``."""
    yield Strategy((0, None), (0,))
    if groups == 1:
        yield Strategy((None, 1), (1,))
        yield Strategy((1, 0), ("sum",))
    yield from multilinear(operands, results)


def convolution_weight(operands: Specs, results: Sequence[Spec], *, groups: int = 1, **_: Any) -> Strategies:
    """The rule of ``conv_weight``, the gradient of a convolution's weight."""
    yield Strategy((0, 0), ("sum",))
    if groups == 1:
        yield Strategy((None, 1), (0,))
        yield Strategy((1, None), (1,))
    yield from multilinear(operands, results)
