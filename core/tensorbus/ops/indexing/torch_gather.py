"""``gather`` and ``scatter`` as users call them: along an axis, as PyTorch has them, or at index tensors.

The ops of these names take index tensors for the first axes. An axis and one index tensor come down to
``take_along_axis`` and ``scatter_along_axis``.
"""

from __future__ import annotations

from typing import Any

from ...dtypes import definition as dt
from ...errors import ArgumentError
from ..call_errors import with_form
from ..movement.family import normalize_axis
from ..movement.movement import reshape
from . import gather_scatter
from .gather_scatter import check_mode
from .take_along_axis import as_lines, corner_of, into, take_along_axis


@with_form
def gather(x: Any, /, *places: Any, axis: int | None = None, index: Any = None) -> Any:
    """Return the elements of ``x`` at places: ``gather(x, axis, index)`` or ``gather(x, *indices)``.

    With an axis, as in PyTorch: each element of ``index`` names a place along it. ``index`` has as many
    dimensions as ``x`` and is no longer than it besides the axis; the result has its shape. Without one, each
    tensor is for one of the first axes, all of one shape, to which the lengths of the other axes are added.
    Negative indices of the first form count from the end. Raises ``ShapeError`` where shapes do not fit,
    ``IndexingError`` for places that there are not.

    >>> import tensorbus as tb
    >>> x, index = tb.asarray([[1, 2], [3, 4]]), tb.asarray([[1, 0], [0, 0]])
    >>> tb.gather(x, 1, index).tolist()
    [[2, 1], [3, 3]]
    >>> tb.gather(x, tb.asarray([1, 0, 1])).tolist()
    [[3, 4], [1, 2], [3, 4]]
    """
    places = (*places, *(argument for argument in (axis, index) if argument is not None))
    if len(places) != 2 or not _is_axis(places[0]):
        return gather_scatter.gather(x, *places)
    axis, index = places
    if not x.shape or not index.shape:
        line, indices = as_lines(x, index)
        return reshape(gather(line, axis, indices), index.shape)
    place = normalize_axis("gather", axis, len(x.shape))
    corner = corner_of("gather", x, place, index)
    return take_along_axis(corner, index, axis=place)


@with_form
def scatter(
    x: Any, /, *places: Any, mode: str = "set", reduce: str | None = None, axis: int | None = None,
    index: Any = None, src: Any = None, value: Any = None,
) -> Any:  # fmt: skip
    """Return ``x`` with values stored: ``scatter(x, axis, index, src)`` or ``scatter(x, value, *indices)``.

    With an axis, as in PyTorch: each element of ``src``, a tensor or one number, goes where ``index`` says
    along it; shapes are as in ``scatter_add``. Without one, ``value`` is stored where the index tensors for
    the first axes meet. Of several values for one place the last stays; modes 'add', 'multiply', 'min' and
    'max' combine them with what is there, as ``reduce`` of PyTorch's 'add' and 'multiply' does. Raises
    ``ShapeError`` where shapes do not fit, ``ArgumentError`` for another mode.

    >>> import tensorbus as tb
    >>> tb.scatter(tb.zeros((2, 3)), 1, tb.asarray([[0], [2]]), 5.0).tolist()
    [[5.0, 0.0, 0.0], [0.0, 0.0, 5.0]]
    >>> tb.scatter(tb.zeros((3,)), tb.asarray([1.0, 2.0]), tb.asarray([2, 0])).tolist()
    [2.0, 0.0, 1.0]
    """
    if reduce is not None:
        if reduce not in ("add", "multiply") or mode != "set":
            raise ArgumentError(
                f"scatter: reduce is 'add' or 'multiply', without a mode, got {reduce!r} and mode {mode!r}."
            )
        mode = reduce
    places = (*places, *(argument for argument in (axis, index, src, value) if argument is not None))
    if getattr(x, "dtype", None) is dt.bool_ and mode in ("multiply", "min", "max"):
        if mode == "max":
            return scatter(x, *places, mode="add")
        at = 2 if len(places) == 3 and _is_axis(places[0]) else 0  # true where no element is false
        source = ~places[at] if hasattr(places[at], "shape") else not places[at]
        return ~scatter(~x, *places[:at], source, *places[at + 1 :], mode="add")
    if len(places) != 3 or not _is_axis(places[0]):
        return gather_scatter.scatter(x, *places, mode=mode)
    check_mode("scatter", mode, x.dtype)
    return into("scatter", x, places[0], places[1], places[2], mode)


def _is_axis(argument: Any) -> bool:
    return isinstance(argument, int) and not isinstance(argument, bool)
