"""Dynamic axes: the sizes that a capture makes symbolic, because users marked them or they differed."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ...errors import ShapeError
from ...ops.call_errors import with_form
from ...ops.movement.family import normalize_axis
from ...system.weak_tables import forget_when_gone
from ...tensor.tensor import Tensor
from ...tracing.sym_int import ShapeEnv
from ..state.reachable import Location, ReachableState

Bounds = tuple[int, int | None]
Axes = Mapping[str, tuple[Tensor, Mapping[int, Bounds]]]
"""The symbolic axes of tensors, by the expression that finds the tensor."""
_UNBOUNDED: Final[Bounds] = (2, None)


@dataclass(slots=True)
class _Marks:
    reference: weakref.ref[Tensor]
    open: dict[int, Bounds] = field(default_factory=dict)
    static: set[int] = field(default_factory=set)


_marks_by_id: dict[int, _Marks] = {}


def _marks_of(x: Tensor) -> _Marks:
    if not isinstance(x, Tensor):
        raise ShapeError(f"a tensor has axes to mark, got {type(x).__name__}.")
    marks = _marks_by_id.get(id(x))
    if marks is None or marks.reference() is not x:
        marks = _marks_by_id[id(x)] = _Marks(forget_when_gone(x, _marks_by_id))
    return marks


@with_form
def mark_dynamic(x: Tensor, axis: int | Iterable[int], *, min: int = 2, max: int | None = None) -> None:
    """Leave the length of ``axis`` (or of several) of an argument open in compiled functions.

    One program then serves every length from ``min`` to ``max``; 0 and 1 are lengths of their own. Raises
    ``AxisError`` for an axis that the tensor does not have, ``ShapeError`` for limits without its length.

    >>> import tensorbus as tb
    >>> double = tb.compile(lambda x: x * 2)
    >>> x = tb.ones((3, 4))
    >>> tb.mark_dynamic(x, 0, max=64)
    >>> double(x).shape, double(tb.ones((7, 4))).shape, len(double.recompiles)
    ((3, 4), (7, 4), 0)
    """
    marks = _marks_of(x)
    if type(min) is not int or not (max is None or type(max) is int):
        raise ShapeError(f"mark_dynamic: min and max are integers, got {min!r} and {max!r}.")
    for each in _axes(axis):
        k = normalize_axis("mark_dynamic", each, x.ndim)
        length = x._value.shape[k]
        if (
            min < 2
            or (max is not None and max < min)
            or not min <= length <= (length if max is None else max)
        ):
            raise ShapeError(
                f"mark_dynamic: limits are 2 <= min <= length <= max, got min {min}, max {max} for axis"
                f" {each} of length {length}; lengths 0 and 1 are compiled apart."
            )
        marks.open[k] = (min, max)
        marks.static.discard(k)


@with_form
def mark_static(x: Tensor, axis: int | Iterable[int] | None = None) -> None:
    """Compile for the length of ``axis`` (None: all axes) of an argument as it is, also with ``dynamic``.

    Raises ``AxisError`` for an axis that the tensor does not have.
    """
    marks = _marks_of(x)
    for each in range(x.ndim) if axis is None else _axes(axis):
        k = normalize_axis("mark_static", each, x.ndim)
        marks.static.add(k)
        marks.open.pop(k, None)


def _axes(axis: int | Iterable[int]) -> Iterable[int]:
    return axis if isinstance(axis, Iterable) else (axis,)


def contradicted_marks(axes: Axes, shape_env: ShapeEnv, reach: ReachableState) -> list[str]:
    """Return the marks that the captured code contradicts: sizes that it specializes."""
    names = {where: name for name, where in shape_env.symbols.items() if "._value.shape[" in where}
    contradicted = []
    for at, (x, open_axes) in axes.items():
        marks = _marks_by_id.get(id(x))
        if marks is None or marks.reference() is not x:
            continue
        for k in open_axes.keys() & marks.open.keys():
            name = names.get(f"{at}._value.shape[{k}]")
            least, most = marks.open[k]
            if least != most and (not names or (name is not None and shape_env.is_specialized(name))):
                tracked = reach.objects.get(id(x))
                where = at if tracked is None else tracked.shown
                contradicted.append(f"axis {k} of argument {where} to have length {x.shape[k]}")
    return contradicted


def relocated(axes: Axes, reach: ReachableState) -> Axes:
    """Return the same axes by the expressions of their tensors in another inspection of the function."""
    ats = {id(tracked.obj): at for _, at, tracked in reach.unique_locations()}
    return {ats.get(id(x), at): (x, limits) for at, (x, limits) in axes.items()}


class DynamicAxes:
    """The axes whose sizes are symbolic in one compiled function.

    ``dynamic``: True: all axes; None: those that have differed between calls; False: those marked. Of tensors
    that are state (caches) only those that have differed. ``replaced_locations`` are the locations of state
    at which captures have found different tensors or containers.
    """

    def __init__(self, dynamic: bool | None) -> None:
        self.dynamic = dynamic
        self._shapes: dict[Any, tuple[int, ...]] = {}
        self._differed: dict[Any, set[int]] = {}
        self._tensors: dict[Location, weakref.ref[Tensor]] = {}
        self._containers: dict[Location, int] = {}
        self.replaced_locations: set[Location] = set()

    def symbolic_axes(self, reach: ReachableState) -> Axes:
        """Return the symbolic axes of each tensor, by its expression."""
        symbolic: dict[str, tuple[Tensor, Mapping[int, Bounds]]] = {}
        for tracked in reach.tensors():
            if tracked.fixed:
                continue
            x: Any = tracked.obj
            shape = x._value.shape
            self._compare(tracked.expr, shape)
            marks = _marks_by_id.get(id(x))
            valid = marks if marks is not None and marks.reference() is x else None
            axes = {
                k: _UNBOUNDED for k, n in enumerate(shape) if n >= 2 and self._is_symbolic(tracked.expr, k)
            }
            if valid is not None:
                axes.update(valid.open)
                axes = {k: limits for k, limits in axes.items() if k not in valid.static and shape[k] >= 2}
            if axes:
                symbolic[tracked.expr] = (x, axes)
        for place, key in reach.container_locations():
            if self._containers.setdefault(place, key) != key:
                self.replaced_locations.add(place)
                self._containers[place] = key
        for place, at, tracked in reach.unique_locations():
            last = self._tensors.get(place)
            if last is not None and last() is not tracked.obj:
                self.replaced_locations.add(place)
            self._tensors[place] = weakref.ref(tracked.obj)
            shape = tracked.obj._value.shape
            self._compare(place, shape)
            axes = {
                k: _UNBOUNDED for k, n in enumerate(shape) if n >= 2 and k in self._differed.get(place, ())
            }
            if axes:
                symbolic[at] = (tracked.obj, axes)
        return symbolic

    def _is_symbolic(self, at: str, axis: int) -> bool:
        return bool(self.dynamic) or axis in self._differed.get(at, ())

    def _compare(self, at: Any, shape: tuple[int, ...]) -> None:
        last = self._shapes.get(at)
        if self.dynamic is not False and last is not None and len(last) == len(shape):
            differ = {k for k, (a, b) in enumerate(zip(last, shape, strict=True)) if a != b}
            self._differed.setdefault(at, set()).update(differ)
        self._shapes[at] = shape
