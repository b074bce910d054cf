"""Padding with a number, a mirror image, the edge, or the other end.

Names, arguments and values are PyTorch's, for tensors of any rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from ...errors import ArgumentError, ShapeError
from ..call_errors import with_form
from .movement import broadcast_to, concat, flip, slice
from .movement import pad as pad_constant

if TYPE_CHECKING:
    from ...tensor.tensor import Tensor


@with_form
def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Return ``input`` with more elements at the ends of its last axes; a negative length takes some away.

    ``pad`` is ``(low, high)`` of the last axis, then of the one before, and so on. ``mode`` is
    ``"constant"`` (with ``value``, 0 by default), ``"reflect"`` (the edge is not repeated), ``"replicate"``
    or ``"circular"``. Raises ``ShapeError`` for lengths that do not suit the shape.

    >>> import tensorbus as tb
    >>> tb.nn.functional.pad(tb.asarray([1, 2, 3]), (2, 1), "reflect").tolist()
    [3, 2, 1, 2, 3, 2]
    """
    lengths = tuple(pad)
    rank = len(input.shape)
    if len(lengths) % 2 or len(lengths) > 2 * rank or not all(isinstance(n, int) for n in lengths):
        raise ShapeError(
            f"pad: a pair of integers is needed for each axis from the last on, of shape {input.shape}; got"
            f" {lengths}."
        )
    if mode != "constant" and mode not in _EDGES:
        raise ArgumentError(f"pad: mode must be 'constant' or one of {', '.join(_EDGES)}, got {mode!r}.")
    if mode != "constant" and value not in (None, 0):
        raise ArgumentError(f"pad: mode {mode!r} takes no value, got {value!r}.")
    out = input
    pairs = [(rank - 1 - k, lengths[2 * k], lengths[2 * k + 1]) for k in range(len(lengths) // 2)]
    for axis, low, high in pairs:
        if low + high + input.shape[axis] < 0 or min(low, high) < -input.shape[axis]:
            raise ShapeError(
                f"pad: axis {axis} of shape {input.shape} has too few elements for ({low}, {high})."
            )
        if min(low, high) < 0 and mode != "replicate":
            first, last = max(-low, 0), max(-high, 0)
            out = _cut(out, axis, first, max(out.shape[axis] - first - last, 0))
    if mode == "constant":
        below, above = [0] * rank, [0] * rank
        for axis, low, high in pairs:
            below[axis], above[axis] = max(low, 0), max(high, 0)
        if not any(below) and not any(above):
            return +out
        return pad_constant(out, tuple(below), tuple(above), 0 if value is None else value)
    for axis, low, high in pairs:
        if mode != "replicate":
            low, high = max(low, 0), max(high, 0)
        out = _EDGES[mode](out, axis, low, high)
    return +out if out is input else out


def _cut(x: Tensor, axis: int, start: int, size: int) -> Tensor:
    rank = len(x.shape)
    begin = tuple(start if k == axis and size else 0 for k in range(rank))
    return slice(x, begin, tuple(size if k == axis else n for k, n in enumerate(x.shape)), (1,) * rank)


def _joined(parts: Sequence[Tensor], axis: int) -> Tensor:
    nonempty = [part for part in parts if part.shape[axis]]
    return nonempty[0] if len(nonempty) == 1 else concat(nonempty or [parts[0]], axis=axis)


def _reflect(x: Tensor, axis: int, low: int, high: int) -> Tensor:
    n = x.shape[axis]
    if max(low, high) >= n and (low or high):
        raise ShapeError(
            f"pad: reflecting needs lengths below {n}, the length of axis {axis}, got ({low}, {high})."
        )
    before = flip(_cut(x, axis, 1, low), axis=axis)
    after = flip(_cut(x, axis, max(n - 1 - high, 0), high), axis=axis)
    return _joined([before, x, after], axis)


def _replicate(x: Tensor, axis: int, low: int, high: int) -> Tensor:
    n = x.shape[axis]
    if not n and (low or high):
        raise ShapeError(f"pad: axis {axis} of shape {x.shape} has no edge to replicate.")

    def repeated(place: int, count: int) -> Tensor:
        edge = _cut(x, axis, place, 1)
        return broadcast_to(edge, tuple(count if k == axis else m for k, m in enumerate(x.shape)))

    if not low and not high:
        return x
    first, last = max(-low, 0), max(-high, 0)
    middle = _cut(x, axis, first, max(n - first - last, 0)) if first or last else x
    return _joined([repeated(0, max(low, 0)), middle, repeated(n - 1, max(high, 0))], axis)


def _wrap(x: Tensor, axis: int, low: int, high: int) -> Tensor:
    n = x.shape[axis]
    if max(low, high) > n:
        raise ShapeError(
            f"pad: wrapping needs lengths up to {n}, the length of axis {axis}, got ({low}, {high})."
        )
    return _joined([_cut(x, axis, n - low, low), x, _cut(x, axis, 0, high)], axis)


_EDGES: Final[dict[str, Callable[[Any, int, int, int], Any]]] = {
    "reflect": _reflect, "replicate": _replicate, "circular": _wrap,
}  # fmt: skip
