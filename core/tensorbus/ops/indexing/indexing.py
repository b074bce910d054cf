"""Indexing: reading ``x[key]`` and making ``x`` with ``x[key]`` replaced.

Keys follow the array API standard 2025.12, section "Indexing", and NumPy where integer arrays mix with
slices. Basic keys (integers, slices, Ellipsis, None) become movement; integer and boolean tensors become
gather and scatter. Indices that are known on the host are checked before anything runs.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...dtypes import definition as dt
from ...errors import IndexingError, ShapeError
from ...tracing.active_modes import active_modes, are_here
from ...tracing.active_tracer import active_tracer
from ...tracing.sym_int import SymInt, is_open, texts
from ..call_errors import with_form
from ..creation.creation import zeros
from ..definition import InPlaceCall, Shape, table
from ..elementwise.family import broadcast_shapes
from ..elementwise.where_cast import cast, where
from ..movement.family import normalize_axis
from ..movement.movement import broadcast_to, permute_dims, reshape, slice_update
from .gather_scatter import from_front
from .gather_scatter import gather as gather
from .gather_scatter import scatter as scatter
from .nonzero import flatnonzero, nonzero

if TYPE_CHECKING:
    from ...tensor.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Key:
    """A parsed key: a strided box, the tensors that index some of its axes, and the axes that are left.

    ``start``, ``size`` and ``step`` cut the box. ``tensors`` has an axis of the box, its index tensor, and
    whether that counts from the front, as the places of a mask do. ``layout`` describes the result before
    advanced indexing: an axis of the box, or None for a new axis.
    """

    start: Shape
    size: Shape
    step: Shape
    tensors: tuple[tuple[int, Any, bool], ...]
    layout: tuple[int | None, ...]
    front: bool


def _integer(item: Any) -> Any:
    """Return an index as an integer, which may be symbolic; None for what is none."""
    if isinstance(item, bool) or not hasattr(type(item), "__index__") or getattr(item, "shape", ()) != ():
        return None
    if hasattr(item, "dtype") and not isinstance(item, int):
        return None
    return item if type(item) is SymInt else int(item.__index__())


def parse(x: Tensor, key: Any) -> Key:
    """Return ``key`` in explicit form for the shape of ``x``. Raises ``IndexingError`` for a bad one."""
    items = _items(x, key)
    used = builtins.sum(map(_depth, items))
    rank = len(x.shape)
    if builtins.sum(item is Ellipsis for item in items) > 1:
        raise IndexingError(f"a key holds one Ellipsis at most, got {key!r}.")
    if used > rank:
        raise IndexingError(
            f"{used} indices are too many for shape {x.shape}, which has {rank} dimension(s)."
        )
    if not any(item is Ellipsis for item in items):
        items.append(Ellipsis)
    start, size, step = [0] * rank, list(x.shape), [1] * rank
    tensors: list[tuple[int, Any, bool]] = []
    layout: list[int | None] = []
    advanced_at: list[int] = []
    axis = 0
    for place, item in enumerate(items):
        if item is Ellipsis:
            layout.extend(range(axis, axis + rank - used))
            axis += rank - used
        elif item is None:
            layout.append(None)
        elif isinstance(item, builtins.slice):
            start[axis], size[axis], step[axis] = _box(item, x.shape[axis])
            layout.append(axis)
            axis += 1
        elif (number := _integer(item)) is not None:
            if not -x.shape[axis] <= number < x.shape[axis]:
                raise IndexingError(
                    f"index {number} is out of range for axis {axis} of length {x.shape[axis]} in"
                    f" shape {x.shape}."
                )
            start[axis], size[axis] = number % x.shape[axis], 1
            advanced_at.append(place)
            axis += 1
        elif _is_mask(item):
            if any(n not in (0, m) for n, m in zip(item.shape, x.shape[axis:], strict=False)):
                raise IndexingError(
                    f"a boolean index of shape {item.shape} does not match axes {axis} to"
                    f" {axis + len(item.shape) - 1} of shape {x.shape}."
                )
            advanced_at.append(place)
            for places in (flatnonzero(item),) if len(item.shape) == 1 else nonzero(item):
                tensors.append((axis, places, True))
                layout.append(axis)
                axis += 1
        else:
            if not item.dtype.is_integer:
                raise IndexingError(f"an index tensor must have an integer or bool dtype, got {item.dtype}.")
            advanced_at.append(place)
            tensors.append((axis, item, False))
            layout.append(axis)
            axis += 1
    split = bool(advanced_at) and advanced_at != list(
        range(advanced_at[0], advanced_at[0] + len(advanced_at))
    )
    return Key(tuple(start), tuple(size), tuple(step), tuple(tensors), tuple(layout), split)


def _parts(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def _items(x: Tensor, key: Any) -> list[Any]:
    return [_tensor_item(x, item) for item in _parts(key)]


def _depth(item: Any) -> int:
    """Return how many axes an item of a key takes up."""
    return len(item.shape) if _is_mask(item) else 0 if item is None or item is Ellipsis else 1


def _lift(x: Tensor, key: Any) -> tuple[Tensor, tuple[Any, ...]]:
    """Give 0-dimensional masks an axis of length 1 of ``x`` to select from; return both so changed."""
    items = _items(x, key)
    left = len(x.shape) - builtins.sum(map(_depth, items))
    if left < 0 or not any(_is_mask(item) and not item.shape for item in items):
        return x, tuple(items)
    shape: Shape = ()
    rest = x.shape
    for place, item in enumerate(items):
        if _is_mask(item) and not item.shape:
            shape += (1,)
            items[place] = reshape(item, (1,))
        else:
            depth = left if item is Ellipsis else _depth(item)
            shape, rest = shape + rest[:depth], rest[depth:]
    return reshape(x, shape + rest), tuple(items)


def _tensor_item(x: Tensor, item: Any) -> Any:
    if item is None or item is Ellipsis or isinstance(item, builtins.slice) or _integer(item) is not None:
        return item
    if isinstance(item, (bool, list)) or (hasattr(item, "__array__") and not hasattr(item, "_vtype")):
        item = _beside(x, item)
    if not hasattr(type(item), "_vtype"):
        raise IndexingError(
            f"{item!r} of type {type(item).__name__} is no index; use integers, slices, Ellipsis, None, or"
            f" integer and bool tensors."
        )
    return item


def _beside(x: Tensor, item: Any) -> Any:
    """A host index becomes a tensor on the device of ``x``; an empty list selects nothing, as in NumPy."""
    if isinstance(item, list) and not item:
        return zeros((0,), dtype=dt.int64, device=x.device)
    return x.tensor_like_device(item)


def _is_mask(item: Any) -> bool:
    return getattr(item, "dtype", None) is dt.bool_


def _open_box(item: Any, length: Any) -> tuple[Any, Any, int]:
    """Cut an axis whose length is open, or by lengths that are."""
    step = 1 if item.step is None else int(item.step)
    if step == 0:
        return _box(builtins.slice(None, None, 0), 0)  # which raises
    low, high = (0, length) if step > 0 else (-1, length - 1)

    def place(v: Any, otherwise: Any) -> Any:
        if v is None:
            return otherwise
        v = v + length if v < 0 else v
        return low if v < 0 else min(v, high)

    first, stop = place(item.start, low if step > 0 else high), place(item.stop, high if step > 0 else low)
    n = stop - first if step > 0 else first - stop
    n = n if abs(step) == 1 else (n + (abs(step) - 1)) // abs(step)
    return (first, n, step) if n > 0 else (0, 0, 1)


def _box(item: Any, length: int) -> tuple[int, int, int]:
    if is_open((item.start, item.stop, item.step, length)):
        return _open_box(item, length)
    try:
        first, stop, step = item.indices(length)
    except (TypeError, ValueError) as error:
        raise IndexingError(f"{item!r} is no slice of an axis: {error}.") from None
    return (first, n, step) if (n := len(range(first, stop, step))) else (0, 0, 1)


def _cut(x: Tensor, key: Key) -> Tensor:
    return x if _is_whole(key, x.shape) else table.dynamic_slice(x, key.start, key.size, key.step)


def _is_whole(key: Key, shape: Shape) -> bool:
    if active_modes:  # of lengths that are open nothing is decided: a part may well be the whole
        return bool(texts((key.size, key.step)) == texts((shape, (1,) * len(shape))))
    return key.size == shape and all(s == 1 for s in key.step)


class IndexSelection(NamedTuple):
    """Returns the elements that index tensors select from a box.

    ``axes`` are indexed by ``indices``, which are broadcast to ``common`` and count from the front; ``rest``
    are the other axes. In the result the axes of ``common`` stand behind the first ``before`` of ``lengths``.
    """

    axes: tuple[int, ...]
    rest: tuple[int, ...]
    indices: tuple[Any, ...]
    common: Shape
    lengths: Shape
    before: int

    @property
    def shape(self) -> Shape:
        """The shape of the result."""
        return (*self.lengths[: self.before], *self.common, *self.lengths[self.before :])


def _select(key: Key, shape: Shape, where_from: Shape) -> IndexSelection:
    axes = tuple(axis for axis, _, _ in key.tensors)
    try:
        common: Shape = broadcast_shapes(*(t.shape for _, t, _ in key.tensors))
    except ShapeError as error:
        raise IndexingError(f"index tensors must broadcast together: {error}") from None
    indices = []
    for axis, t, counted in key.tensors:
        own = t if counted else from_front(t, shape[axis])
        indices.append(own if own.shape == common else broadcast_to(own, common))
    if 0 in where_from and 0 not in common:
        empty = [axis for axis in axes if shape[axis] == 0]
        if empty:
            raise IndexingError(
                f"an index into axis {empty[0]} of shape {where_from}, which has no elements."
            )
    return IndexSelection(
        axes=axes,
        rest=tuple(a for a in range(len(shape)) if a not in axes),
        indices=tuple(indices),
        common=common,
        lengths=tuple(1 if a is None else shape[a] for a in key.layout if a not in axes),
        before=0 if key.front else next(k for k, a in enumerate(key.layout) if a in axes),
    )


_UNKNOWN: Final = object()
_ENDS: Final = frozenset({int, type(None)})
_cuts: dict[Any, tuple[Key, Shape, bool]] = {}
"""Boxes of basic keys by shape: programs index with the same few keys again and again."""


def _plain(item: Any) -> Any:
    """Return a basic key in a form that hashes; ``_UNKNOWN`` for any other."""
    kind = type(item)
    if kind is int:
        return item
    if kind is builtins.slice:
        start, stop, step = item.start, item.stop, item.step
        if type(start) in _ENDS and type(stop) in _ENDS and type(step) in _ENDS:
            return start, stop, step
        return _UNKNOWN
    if kind is tuple:
        parts = tuple(map(_plain, item))
        return (parts,) if _UNKNOWN not in parts else _UNKNOWN
    return str(item) if item is None or item is Ellipsis else _UNKNOWN


def basic(x: Tensor, item: Any) -> tuple[Key, Shape, bool] | None:
    """Return what a basic key of known numbers cuts out, its shape, and whether that is all of ``x``.

    None for any other key.
    """
    if active_modes and is_open(x.shape):
        return None
    memo = (x.shape, item if type(item) is int else _plain(item))
    if memo[1] is _UNKNOWN:
        return None
    entry = _cuts.get(memo)
    if entry is None:
        key = _of_numbers(x.shape, item) or parse(x, item)
        if len(_cuts) >= 4096:
            _cuts.clear()
        entry = _cuts[memo] = (key, _shape(key), _is_whole(key, x.shape))
    return entry


def _of_numbers(shape: Shape, item: Any) -> Key | None:
    """Parse a key of integers and slices in less time; None where there is anything else, or it is wrong."""
    items = item if type(item) is tuple else (item,)
    rank = len(shape)
    if len(items) > rank:
        return None
    start, size, step, layout = [0] * rank, list(shape), [1] * rank, []
    for axis, one in enumerate(items):
        length = shape[axis]
        if type(one) is int:
            if not -length <= one < length:
                return None
            start[axis], size[axis] = one % length, 1
        elif type(one) is builtins.slice and one.step != 0:
            start[axis], size[axis], step[axis] = _box(one, length)
            layout.append(axis)
        else:
            return None
    return Key(tuple(start), tuple(size), tuple(step), (), (*layout, *range(len(items), rank)), False)


def _shape(key: Key) -> Shape:
    return tuple([1 if a is None else key.size[a] for a in key.layout])


def getitem(x: Tensor, item: Any) -> Tensor:
    """Return ``x[item]``. Raises ``IndexingError`` for indices out of range or of no known kind.

    >>> import tensorbus as tb
    >>> tb.asarray([[1, 2], [3, 4]])[:, tb.asarray([1, 0])].tolist()
    [[2, 1], [4, 3]]
    """
    if active_modes and (active := active_tracer()) is not None and active.is_varying_key(item):
        element: Tensor = active.indexed(getitem, x, item)
        by_tensor = any(hasattr(one, "dtype") or isinstance(one, (bool, list)) for one in _parts(item))
        if not by_tensor:
            element = table.link_by_key(element, x, item, getitem, setitem)
        return element
    # What is open is equal to other lengths on a condition: no key of a memo.
    known = basic(x, item)
    if known is not None:
        key, shape, whole = known
        box = x if whole else table.dynamic_slice(x, key.start, key.size, key.step)
        if not are_here() and not whole and shape == key.size:  # of open lengths that is a condition
            return box
        return reshape.function(box, shape)
    if _indexes_rows(x, item):
        return gather(x, from_front(item, x.shape[0]))
    if _masks_rows(x, item):  # its axes are one here, so that nobody takes places apart
        depth = len(item.shape)
        return gather(reshape(x, (-1, *x.shape[depth:])), flatnonzero(item))
    x, item = _lift(x, item)
    key = parse(x, item)
    box = _cut(x, key)
    if not key.tensors:
        return reshape(box, _shape(key))
    chosen = _select(key, box.shape, x.shape)
    gathered = gather(permute_dims(box, (*chosen.axes, *chosen.rest)), *chosen.indices)
    moved = reshape(gathered, (*chosen.common, *chosen.lengths))
    depth, before = len(chosen.common), chosen.before
    return permute_dims(
        moved, (*range(depth, depth + before), *range(depth), *range(depth + before, len(moved.shape)))
    )


def parts(x: Tensor) -> Iterator[Tensor]:
    """Yield ``x[0]``, ``x[1]`` ..., each taken from ``x`` itself: one plan serves all places."""
    length, rest = x.shape[0], x.shape[1:]
    still, steps = (0,) * len(rest), (1,) * len(x.shape)
    for k in range(length):
        yield reshape(table.dynamic_slice(x, (k, *still), (1, *rest), steps), rest)


def assignment(x: Tensor, item: Any, value: Any) -> InPlaceCall | None:
    """Return the op that ``x[item] = value`` comes down to; None where it takes several, or is captured."""
    if are_here() or (value.dtype is not x.dtype and value.device != x.device):
        return None
    known = basic(x, item)
    if known is None:
        return _by_tensor(x, item, value)
    key, target, _ = known
    source = _spread(x, value, target)
    source = source if target == key.size else reshape(source, key.size)
    return InPlaceCall("slice_update", (x, source), {"start": key.start, "step": key.step})


def _by_tensor(x: Tensor, item: Any, value: Any) -> InPlaceCall | None:
    """Return the op of an assignment to what a mask or an index of the first axis selects."""
    if _indexes_rows(x, item):
        source = _spread(x, value, (*item.shape, *x.shape[1:]))
        return InPlaceCall("scatter", (x, source, from_front(item, x.shape[0])), {"mode": "set"})
    if not _is_mask(item) or not item.shape or getattr(item, "device", None) != x.device:
        return None
    spread = _spread_mask(x, item, value)
    return None if spread is None else InPlaceCall("where", (spread, cast(value, x.dtype), x), {}, 2)


def _indexes_rows(x: Tensor, item: Any) -> bool:
    """Return whether a key is one tensor of integers, for the first axis of what is not empty."""
    if are_here() or not hasattr(item, "_vtype") or not item.shape or not x.shape:
        return False
    return item.dtype.is_integer and item.device == x.device and 0 not in x.shape


def _masks_rows(x: Tensor, item: Any) -> bool:
    """Return whether a key is one mask of the first axes of what is not empty."""
    if are_here() or not hasattr(item, "_vtype") or not item.shape or not _is_mask(item):
        return False
    return item.shape == x.shape[: len(item.shape)] and item.device == x.device and 0 not in x.shape


def _spread(x: Tensor, value: Any, target: Shape) -> Any:
    """Return a value as ``x`` holds it, in the shape of what it is assigned to."""
    source = cast(value, x.dtype) if value.dtype is not x.dtype else value
    if source.shape == target:
        return source
    extra = len(source.shape) - len(target)
    if extra > 0 and source.shape[:extra] == (1,) * extra:
        source = reshape(source, source.shape[extra:])
    try:
        return broadcast_to(source, target)
    except ShapeError:
        raise ShapeError(
            f"a value of shape {value.shape} does not broadcast to shape {target}, which the key selects from"
            f" shape {x.shape}."
        ) from None


def setitem(x: Tensor, item: Any, value: Any) -> Tensor:
    """Return ``x`` with ``x[item]`` replaced by ``value``, which broadcasts; ``x`` itself stays as it is."""
    if active_modes and (active := active_tracer()) is not None and active.is_varying_key(item):
        changed: Tensor = active.indexed(setitem, x, item, value)
        return changed
    whole, item = _lift(x, item)
    if whole is not x:
        return reshape(setitem(whole, item, value), x.shape)
    if len(item) == 1 and _is_mask(item[0]):
        spread = _spread_mask(x, item[0], value)
        if spread is not None:
            return where(spread, cast(value, x.dtype) if value.dtype is not x.dtype else value, x)
    key = parse(x, item)
    if not key.tensors:
        return slice_update(x, reshape(_spread(x, value, _shape(key)), key.size), key.start, key.step)
    box = _cut(x, key)
    chosen = _select(key, box.shape, x.shape)
    source = _spread(x, value, chosen.shape)
    before, depth = chosen.before, len(chosen.common)
    order = (*range(before, before + depth), *range(before), *range(before + depth, len(chosen.shape)))
    values = reshape(permute_dims(source, order), (*chosen.common, *(box.shape[a] for a in chosen.rest)))
    order = (*chosen.axes, *chosen.rest)
    changed = scatter(permute_dims(box, order), values, *chosen.indices)
    back = permute_dims(changed, tuple(order.index(a) for a in range(len(order))))
    return back if box is x else slice_update(x, back, key.start, key.step)


def _spread_mask(x: Tensor, mask: Any, value: Tensor) -> Any:
    """Return the mask for each element of ``x``, if all that it selects gets one value: nobody waits then."""
    depth = len(mask.shape)
    rest = x.shape[depth:]
    if mask.shape != x.shape[:depth] or len(value.shape) > len(rest):
        return None
    if any(n not in (1, m) for n, m in zip(value.shape[::-1], rest[::-1], strict=False)):
        return None
    return reshape(mask, mask.shape + (1,) * len(rest))


@with_form
def take(x: Tensor, indices: Tensor, /, axis: int | None = None) -> Tensor:
    """Return the parts of ``x`` at ``indices`` along ``axis``, which a 1-dimensional ``x`` may leave out.

    Negative indices count from the end.

    >>> import tensorbus as tb
    >>> tb.take(tb.asarray([5, 6, 7]), tb.asarray([2, 0])).tolist()
    [7, 5]
    """
    if axis is None and len(x.shape) != 1:
        raise ShapeError(f"take: an axis is needed for {len(x.shape)} dimensions.")
    place = normalize_axis("take", 0 if axis is None else axis, len(x.shape))
    return getitem(x, (*(builtins.slice(None),) * place, indices) if place else indices)
