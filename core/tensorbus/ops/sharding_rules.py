"""Sharding rules that ops share: how an op is split over the ranks along one dimension of a mesh.

A rule ``(operands, results, **attrs)`` gets the specs of the tensors as a whole (None for a Python number)
and yields strategies. In a strategy each operand and result has a mark: an axis, along which ranks have
parts; ``"sum"`` or another reduction, of which ranks have terms; or None, where each has the whole. That
every rank has everything is a strategy of each op, and no rule names it. What is redistributed, and how, is
not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import gcd, prod
from typing import Any, Final, NamedTuple

from .definition import Shape, Spec, table

Mark = int | str | None
Specs = Sequence[Any]
"""Specs; None stands for a Python number."""


class ShardPart(NamedTuple):
    """A rank's part of a tensor: its shape, where it begins along each axis, and the shape of the whole."""

    shape: Shape
    start: Shape
    whole: Shape


class Strategy(NamedTuple):
    """One way to split an op: a mark for each operand and each result.

    ``divides`` is a length that the number of parts must divide; 0: any number will do. ``attrs(attrs,
    operands, results)`` returns those of a rank's op, given its parts of operands and results; None: they
    are those of the whole. ``run(operands, attrs, operand_parts, result_parts)`` does what the op alone would
    not do right on parts, or returns None where it does; it must be right for every choice of strategies of
    its rule. ``decomposes``: an op that has a decomposition runs by it, and its ops have strategies of their
    own; results have no mark then.
    """

    operands: tuple[Mark, ...]
    results: tuple[Mark, ...]
    divides: int = 0
    attrs: (
        Callable[[Mapping[str, Any], Sequence[ShardPart | None], Sequence[ShardPart]], dict[str, Any]] | None
    ) = None
    run: Callable[..., Any] | None = None
    decomposes: bool = False


Strategies = Iterator[Strategy]
ShardRule = Callable[..., Strategies]
ANY: tuple[str, ...] = ("sum", "average", "max", "min", "product")


def linear_reductions(dtype: Any) -> tuple[str, ...]:
    """Return the reductions that a linear function may be taken before, for a dtype of its operand."""
    return ("sum", "average") if dtype.is_inexact else () if dtype.kind == "bool" else ("sum",)


def linear(operands: Specs, results: Sequence[Spec]) -> Strategies:
    """Of a function that is linear in all operands at once: terms of each give terms of the results."""
    if all(spec is not None for spec in operands):
        kinds = [linear_reductions(spec.dtype) for spec in (*operands, *results) if spec is not None]
        for reduction in min(kinds, key=len):
            yield Strategy((reduction,) * len(operands), (reduction,) * len(results))


def multilinear(operands: Specs, results: Sequence[Spec], places: Sequence[int] | None = None) -> Strategies:
    """Of a function that is linear in each operand, or in those of ``places``: terms of one of them."""
    for place, spec in enumerate(operands):
        if spec is None or not (places is None or place in places):
            continue
        for reduction in min((linear_reductions(s.dtype) for s in (spec, *results)), key=len):
            marks = tuple(reduction if k == place else None for k in range(len(operands)))
            yield Strategy(marks, (reduction,) * len(results))


def aligned_axis(shape: Shape, axis: int, whole: Shape) -> int | None:
    """Return the axis of an operand that meets ``axis`` of the result; None where it broadcasts."""
    own = axis - len(whole) + len(shape)
    return own if own >= 0 and shape[own] == whole[axis] else None


def elementwise(kind: str | None = None, places: Sequence[int] | None = None) -> ShardRule:
    """The rule of ops on elements at the same place, after broadcasting.

    ``kind`` is ``"linear"`` or ``"multilinear"``, in all operands or those of ``places``.
    """

    def rule(operands: Specs, results: Sequence[Spec], **_: Any) -> Strategies:
        whole = results[0].shape
        for axis in range(len(whole)):
            marks = tuple(None if s is None else aligned_axis(s.shape, axis, whole) for s in operands)
            yield Strategy(marks, (axis,) * len(results))
        if kind == "linear":
            yield from linear(operands, results)
        elif kind == "multilinear":
            yield from multilinear(operands, results, places)

    return rule


def cast(operands: Specs, results: Sequence[Spec], **_: Any) -> Strategies:
    """The rule of ``cast``: terms of a sum are cast where that loses nothing."""
    (spec,), (out,) = operands, results
    for axis in range(len(spec.shape)):
        yield Strategy((axis,), (axis,))
    same_kind = spec.dtype.is_inexact and spec.dtype.kind == out.dtype.kind
    if same_kind and out.dtype.itemsize >= spec.dtype.itemsize:
        yield from linear(operands, results)


def reduction(partial: str | None, *, is_linear: bool = False) -> ShardRule:
    """The rule of reductions over ``axis``; ``partial`` is the reduction that joins those of parts."""

    def rule(
        operands: Specs, results: Sequence[Spec], *, axis: Sequence[int] | int, keepdims: bool = False,
        **_: Any,
    ) -> Strategies:  # fmt: skip
        (spec,) = operands
        assert spec is not None
        axes = axis if isinstance(axis, tuple) else (axis,)
        out = 0
        for place in range(len(spec.shape)):
            if place not in axes:
                yield Strategy((place,), (out,) * len(results))
            elif partial is not None:
                yield Strategy((place,), (partial,) * len(results), run=_reduced)
            else:
                yield _by_parts(place, operands, results)
            out += place not in axes or keepdims
        if is_linear:
            yield from linear(operands, results)
        elif partial in ("max", "min"):
            yield Strategy((partial,), (partial,), run=_reduced)

    def _reduced(xs: Any, attrs: Any, parts: Sequence[ShardPart], _: Sequence[ShardPart]) -> Any:
        """Reduce a part, which has an extreme also where it has no elements: that of none."""
        (x,), (part,) = xs, parts
        if partial in ("max", "min") and 0 in part.shape:
            from .reduction.reduction import reduced_shape

            least, most = _limits(x.dtype)
            shape = reduced_shape(part.shape, attrs["axis"], attrs["keepdims"])
            value = least if partial == "max" else most
            return table["full"](shape, value, dtype=x.dtype, device=x.device)
        return None

    return rule


def _by_parts(axis: int, operands: Specs, results: Sequence[Spec]) -> Strategy:
    """Return the strategy of a composite that reduces along an axis which is split: by its decomposition."""
    return Strategy((axis,) * len(operands), (None,) * len(results), decomposes=True)


def _limits(dtype: Any) -> tuple[Any, Any]:
    from ..dtypes.definition import integer_range

    return integer_range(dtype) if dtype.is_integer else (float("-inf"), float("inf"))


def matmul(operands: Specs, results: Sequence[Spec], **_: Any) -> Strategies:
    """The rule of matrix products: rows, columns, batches, or the axis that is summed over."""
    (x, y), (out,) = operands, results
    rank, x_rank, y_rank = len(out.shape), len(x.shape), len(y.shape)
    for axis in range(rank - 2):
        lead = out.shape[:-2]
        marks = aligned_axis(x.shape[:-2], axis, lead), aligned_axis(y.shape[:-2], axis, lead)
        yield Strategy(marks, (axis,))
    yield Strategy((x_rank - 2, None), (rank - 2,))
    yield Strategy((None, y_rank - 1), (rank - 1,))
    if x.dtype.kind != "bool":
        yield Strategy((x_rank - 1, y_rank - 2), ("sum",))
    yield from multilinear(operands, results)


def _commuting() -> Strategies:
    """Of a function that moves elements: that commutes with every reduction of terms."""
    for name in ANY:
        yield Strategy((name,), (name,))


def _with_shape(attrs: Mapping[str, Any], _: Any, results: Sequence[ShardPart]) -> dict[str, Any]:
    return {**attrs, "shape": results[0].shape}


def broadcast_to(operands: Specs, results: Sequence[Spec], **_: Any) -> Strategies:
    """The rule of ``broadcast_to``."""
    (spec,), (out,) = operands, results
    for axis in range(len(out.shape)):
        yield Strategy((aligned_axis(spec.shape, axis, out.shape),), (axis,), attrs=_with_shape)
    yield from (s._replace(attrs=_with_shape) for s in _commuting())


def reshape(operands: Specs, results: Sequence[Spec], **_: Any) -> Strategies:
    """The rule of ``reshape``: the first of the axes that merge, to the first of those they part into."""
    (spec,), (out,) = operands, results
    for own, axis in _matching_axes(spec.shape, out.shape):
        n, m = spec.shape[own], out.shape[axis]
        yield Strategy((own,), (axis,), 0 if n == m else gcd(n, m), attrs=_with_shape)
    yield from (s._replace(attrs=_with_shape) for s in _commuting())


def _matching_axes(shape: Shape, other: Shape) -> Iterator[tuple[int, int]]:
    """Yield pairs of axes with as many elements before them, and in C order behind, lengths of 1 left out.

    Of a shape that stays they are all axes.
    """
    if shape == other:
        yield from enumerate(range(len(shape)))
        return
    if 0 in shape:
        return
    before: dict[int, int] = {}
    count = 1
    for axis, n in enumerate(other):
        if n != 1:
            before[count] = axis
            count *= n
    count = 1
    for axis, n in enumerate(shape):
        if n != 1:
            if count in before:
                yield axis, before[count]
            count *= n


def permute_dims(operands: Specs, results: Sequence[Spec], *, axes: Sequence[int]) -> Strategies:
    """The rule of ``permute_dims``."""
    for place, axis in enumerate(axes):
        yield Strategy((axis,), (place,))
    yield from _commuting()


def besides(
    key: str = "axis", *, kind: str | None = None, moves: bool = False, reduces: bool = False
) -> ShardRule:
    """The rule of ops along the axes that attribute ``key`` names, which keep the others as they are.

    ``kind`` is ``"linear"`` where the op is; one that ``moves`` elements commutes with every reduction; one
    that ``reduces`` does nothing else along its axes, so that its decomposition serves where they are split.
    """

    def rule(operands: Specs, results: Sequence[Spec], **attrs: Any) -> Strategies:
        axes = attrs[key] if isinstance(attrs[key], tuple) else (attrs[key],)
        first = operands[0]
        assert first is not None
        for axis in range(len(first.shape)):
            if axis not in axes:
                yield Strategy((axis,) * len(operands), (axis,) * len(results))
            elif reduces:
                yield _by_parts(axis, operands, results)
        if moves and len(operands) == 1:
            yield from _commuting()
        elif moves or kind == "linear":
            yield from linear(operands, results)

    return rule


def batched(trailing: int | Callable[[Mapping[str, Any]], int], *, reduces: bool = False) -> ShardRule:
    """The rule of ops on the last ``trailing`` axes of each operand: those in front are one batch.

    Operands have the same axes in front, or none. A function takes their number from the attributes. For one
    that ``reduces`` see ``besides``.
    """

    def rule(operands: Specs, results: Sequence[Spec], **attrs: Any) -> Strategies:
        count = trailing if isinstance(trailing, int) else trailing(attrs)
        leads = [s.shape[: max(len(s.shape) - count, 0)] for s in operands if s is not None]
        longest = max(leads, key=len)
        if all(lead in (longest, ()) for lead in leads):
            for axis in range(len(longest)):
                marks = tuple(None if s is None or len(s.shape) <= count else axis for s in operands)
                yield Strategy(marks, (axis,) * len(results))
        if reduces:
            for axis in range(len(longest), len(operands[0].shape)):
                yield _by_parts(axis, operands, results)

    return rule


def box(
    operands: Specs, results: Sequence[Spec], *, start: Shape, step: Shape, size: Any = None
) -> Strategies:
    """The rule of ``slice`` and ``slice_update``: axes taken as a whole, and what a rank has of a box.

    Of a small box along an axis that is split each rank gives what it has, and what it has not as terms that
    change no sum; in what is updated each rank changes what it has.
    """
    whole, part = operands[0], operands[-1] if size is None else results[0]
    localize = None if size is None else _with_size
    is_small = _SMALL_BOX * prod(results[0].shape) <= prod(whole.shape) and whole.dtype.kind != "bool"
    for axis, n in enumerate(whole.shape):
        if (part.shape[axis], start[axis], step[axis]) == (n, 0, 1):
            yield Strategy((axis,) * len(operands), (axis,), attrs=localize)
        elif step[axis] > 0 and size is None:
            yield Strategy((axis, None), (axis,), run=_updated)
        elif step[axis] > 0 and is_small:
            yield Strategy((axis,), ("sum",), run=_cut)
    moved = linear(operands, results) if size is None else _commuting()
    yield from (s._replace(attrs=localize) for s in moved)


_SMALL_BOX: Final = 16
"""How many times as large a tensor is as a box of it of which ranks give terms, whose sum is sent later."""


class _BoxPart(NamedTuple):
    """Part of a box that a rank has: where it begins in its part and in the box, and its size."""

    own: Shape
    inside: Shape
    size: Shape


def _box_part(attrs: Mapping[str, Any], part: ShardPart, box: ShardPart) -> _BoxPart:
    """Return what a part has of a box, which is split as it along axes that it takes as a whole."""
    own, inside, lengths = [], [], []
    for axis, (begin, step, count) in enumerate(zip(attrs["start"], attrs["step"], box.shape, strict=True)):
        low, length, n = part.start[axis], part.shape[axis], part.whole[axis]
        if length == n or (begin, step, box.whole[axis]) == (0, 1, n):
            own.append(begin)
            inside.append(0)
            lengths.append(count)
        else:
            first = max(0, -((begin - low) // step))
            last = min(count, -((begin - low - length) // step))
            own.append(begin + first * step - low)
            inside.append(first)
            lengths.append(max(last - first, 0))
    return _BoxPart(tuple(own), tuple(inside), tuple(lengths))


def _cut(xs: Any, attrs: Any, parts: Sequence[ShardPart], results: Sequence[ShardPart]) -> Any:
    """Return what a rank has of a box, among terms that change no sum: -0.0, which added to 0.0 is that."""
    (x,), (part,), (out,) = xs, parts, results
    here = _box_part(attrs, part, out)
    ones = (1,) * len(here.size)
    piece = None
    if 0 not in here.size:
        piece = table.run("slice", (x,), {"start": here.own, "step": attrs["step"], "size": here.size})
        if here.size == out.shape:
            return piece
    nothing = -0.0 if x.dtype.is_floating else complex(-0.0, -0.0) if x.dtype.is_complex else 0
    blank = table["full"](out.shape, nothing, dtype=x.dtype, device=x.device)
    if piece is None:
        return blank
    return table.run("slice_update", (blank, piece), {"start": here.inside, "step": ones})


def _updated(xs: Any, attrs: Any, parts: Sequence[ShardPart], _: Sequence[ShardPart]) -> Any:
    """Return a rank's part with what it has of a box replaced."""
    (x, value), (part, new) = xs, parts
    here = _box_part(attrs, part, new)
    if 0 in here.size:
        return x.clone()
    if here.size != new.shape:
        ones = (1,) * len(here.size)
        value = table.run("slice", (value,), {"start": here.inside, "step": ones, "size": here.size})
    return table.run("slice_update", (x, value), {"start": here.own, "step": attrs["step"]})


def _with_size(attrs: Mapping[str, Any], _: Any, results: Sequence[ShardPart]) -> dict[str, Any]:
    return {**attrs, "size": results[0].shape}


def pad(operands: Specs, results: Sequence[Spec], *, low: Shape, high: Shape, value: Any) -> Strategies:
    """The rule of ``pad``: axes that nothing is added to."""
    for axis, added in enumerate(zip(low, high, strict=True)):
        if added == (0, 0):
            yield Strategy((axis,), (axis,))
    if value == 0:
        yield from linear(operands, results)


def whole(operands: Specs, results: Sequence[Spec], **_: Any) -> Strategies:
    """The rule of ops that each rank runs as a whole: what they make is small, or is cut afterwards."""
    return iter(())


def windows(trailing: int) -> ShardRule:
    """The rule of ``windows`` and ``fold``, on ``trailing`` axes for each that windows move along."""

    def rule(operands: Specs, results: Sequence[Spec], **attrs: Any) -> Strategies:
        (spec,) = operands
        assert spec is not None
        for axis in range(len(spec.shape) - trailing * len(attrs["stride"])):
            yield Strategy((axis,), (axis,))
        yield from linear(operands, results)

    return rule


def searched(operands: Specs, results: Sequence[Spec], **_: Any) -> Strategies:
    """The rule of ``searchsorted``: parts of the values that are looked for in one line."""
    line, values = operands
    if len(line.shape) == 1:
        for axis in range(len(values.shape)):
            yield Strategy((None, axis), (axis,))
