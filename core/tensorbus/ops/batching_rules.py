"""Batching rules that ops share: how an op runs on many examples at once.

A rule ``(operands, batched, **attrs)`` gets operands of which those marked have an additional axis 0 of
examples; the others are the same for every example. It returns the result with axis 0 of examples.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from math import prod
from typing import Any, Final

from ..system.user_frame import user_frame
from .definition import Shape, Spec, table

Rule = Callable[..., Any]
_looped: Final[dict[str, object]] = {}
"""The ops that a warning has told of, by name."""


loops_expected: Final[ContextVar[bool]] = ContextVar("tensorbus_loops_expected", default=False)
"""Whether a loop over examples is no surprise here."""


class LoopWarning(UserWarning):
    """An op without a batching rule ran once for each example inside of ``vmap``."""


def examples(operands: Sequence[Any], batched: Sequence[bool]) -> int:
    """Return how many examples there are."""
    return next(int(x.shape[0]) for x, b in zip(operands, batched, strict=True) if b)


def spread(operands: Sequence[Any], batched: Sequence[bool]) -> list[Any]:
    """Return the operands, each with the axis of examples."""
    count = examples(operands, batched)
    return [
        x if b else table["broadcast_to"](x, (count, *x.shape))
        for x, b in zip(operands, batched, strict=True)
    ]


def lead(x: Any, rank: int) -> Any:
    """Return ``x`` with axes of length 1 behind axis 0, so that it has ``rank`` axes after it."""
    missing = rank - len(x.shape) + 1
    return table["reshape"](x, (x.shape[0], *(1,) * missing, *x.shape[1:])) if missing else x


def aligned(name: str) -> Rule:
    """The rule of ops whose operands broadcast by their leading axes: elementwise ones, matrix products."""

    def rule(operands: Sequence[Any], batched: Sequence[bool], **attrs: Any) -> Any:
        pairs = list(zip(operands, batched, strict=True))
        rank = max(len(x.shape) - b for x, b in pairs if hasattr(x, "shape"))
        return table.run(name, [lead(x, rank) if b else x for x, b in pairs], attrs)

    return rule


def unchanged(name: str) -> Rule:
    """The rule of ops that look at the last axes only, or at none: one more in front is nothing to them."""

    def rule(operands: Sequence[Any], batched: Sequence[bool], **attrs: Any) -> Any:
        return table.run(name, spread(operands, batched), attrs)

    return rule


def shifted(name: str, *axes: str) -> Rule:
    """The rule of ops whose attributes ``axes``, each an axis or a tuple of them, count from the front."""

    def rule(operands: Sequence[Any], batched: Sequence[bool], **attrs: Any) -> Any:
        for key in axes:
            axis = attrs[key]
            attrs[key] = tuple(a + 1 for a in axis) if isinstance(axis, tuple) else axis + 1
        return table.run(name, spread(operands, batched), attrs)

    return rule


def prefixed(name: str, **fronts: int | None) -> Rule:
    """The rule of ops with an attribute entry for each axis; ``fronts`` says what stands for the examples.

    None stands for their number.
    """

    def rule(operands: Sequence[Any], batched: Sequence[bool], **attrs: Any) -> Any:
        count = examples(operands, batched)
        for key, front in fronts.items():
            attrs[key] = (count if front is None else front, *attrs[key])
        return table.run(name, spread(operands, batched), attrs)

    return rule


def looped(name: str) -> Rule:
    """The rule that always holds: one example after the other. A warning tells of it, once for each op."""

    def rule(operands: Sequence[Any], batched: Sequence[bool], **attrs: Any) -> Any:
        op, runs = table[name], []
        if not examples(operands, batched):
            return _no_examples(name, operands, batched, attrs)
        if _looped.get(name) is not op and not loops_expected.get():
            _looped[name] = op
            warnings.warn(
                f"vmap: {name} has no batching rule, so it runs once for each example, one after the other."
                f" Give a custom op one with register_vmap, a kernel a default.",
                LoopWarning, stacklevel=user_frame()[1],
            )  # fmt: skip
        for k in range(examples(operands, batched)):
            own = [_example(x, k) if b else x for x, b in zip(operands, batched, strict=True)]
            runs.append(table.run(name, own, attrs))
        if not op.results:
            return _stacked(runs)
        return tuple(_stacked(parts) for parts in zip(*runs, strict=True))

    return rule


def _no_examples(
    name: str, operands: Sequence[Any], batched: Sequence[bool], attrs: Mapping[str, Any]
) -> Any:
    """Return the results for no example at all."""
    op = table[name]
    pairs = zip(operands, batched, strict=True)
    specs = op.specs(tuple([Spec(x.shape[1:] if b else x.shape, x.dtype) for x, b in pairs]), attrs)
    outs = [table["full"]((0, *s.shape), 0, dtype=s.dtype, device=operands[0].device) for s in specs]
    return tuple(outs) if op.results else outs[0]


def _example(x: Any, k: int) -> Any:
    rest: Shape = x.shape[1:]
    box = table["slice"](x, (k, *(0,) * len(rest)), (1, *rest), (1,) * (len(rest) + 1))
    return table["reshape"](box, rest)


def _stacked(parts: Sequence[Any]) -> Any:
    return table["concat"]([table["reshape"](x, (1, *x.shape)) for x in parts], axis=0)


def broadcast(operands: Sequence[Any], batched: Sequence[bool], *, shape: Shape) -> Any:
    """The rule of ``broadcast_to``."""
    (x,) = operands
    return table["broadcast_to"](lead(x, len(shape)), (x.shape[0], *shape))


def gathered(operands: Sequence[Any], batched: Sequence[bool]) -> Any:
    """The rule of ``gather``: examples are one more index, or one more axis of the indices."""
    x, *indices = operands
    count = examples(operands, batched)
    if not batched[0]:
        return table["gather"](x, *spread(operands, batched)[1:])
    if not indices[0].shape and not any(batched[1:]):
        indices = [table["reshape"](k, (1,)) for k in indices]
        rows = gathered([x, *indices], batched)
        return table["reshape"](rows, (count, *rows.shape[2:]))
    _, *indices = spread(operands, (True, *batched[1:]))
    return table["gather"](x, _own(count, indices[0]), *indices)


def scattered(operands: Sequence[Any], batched: Sequence[bool], **attrs: Any) -> Any:
    """The rule of ``scatter``: each example goes into its own part."""
    x, value, *indices = spread(operands, batched)
    return table["scatter"](x, value, _own(x.shape[0], indices[0]), *indices, **attrs)


def _own(count: int, like: Any) -> Any:
    """Return the number of its example for each index."""
    numbers = table["iota"](count, device=like.device)
    tail = (1,) * (len(like.shape) - 1)
    return table["broadcast_to"](table["reshape"](numbers, (count, *tail)), like.shape)


def convolved(operands: Sequence[Any], batched: Sequence[bool], **attrs: Any) -> Any:
    """The rule of ``conv``: examples join the batch, or become groups where each has its own weight."""
    x, weight = operands
    reshape = table["reshape"]
    if not batched[1]:
        merged = table.run("conv", [reshape(x, (prod(x.shape[:2]), *x.shape[2:])), weight], attrs)
        return reshape(merged, (*x.shape[:2], *merged.shape[1:]))
    x, weight = spread(operands, batched)
    count, batch, channels, *space = x.shape
    order = (1, 0, *range(2, len(x.shape)))
    side = reshape(table["permute_dims"](x, order), (batch, count * channels, *space))
    kernels = reshape(weight, (count * weight.shape[1], *weight.shape[2:]))
    out = table.run("conv", [side, kernels], {**attrs, "groups": attrs["groups"] * count})
    apart = reshape(out, (batch, count, weight.shape[1], *out.shape[2:]))
    return table["permute_dims"](apart, order)
