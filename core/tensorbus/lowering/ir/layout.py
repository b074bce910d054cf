"""Layouts of a graph's values: strided views of buffers, followed through movement ops.

A view costs no kernel. What is no view of a buffer is computed by one, inside the kernel that wants it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import prod

from ...backend_interface import strided_array
from ...backend_interface.graph import Node
from ...backend_interface.strided_array import StridedArray, row_major

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """A view of a buffer: ``slot`` says which one, strides and offset count elements.

    ``late`` is the operand whose own offset is added when the kernel is launched: see ``RuntimeArg``.
    """

    slot: int
    shape: Shape
    strides: Shape
    offset: int = 0
    late: int | None = None

    @property
    def is_contiguous(self) -> bool:
        """True where the elements lie packed in C order."""
        return (
            self.strides == _steps(self.shape)
            or 0 in self.shape
            or all(
                n == 1 or s == w for n, s, w in zip(self.shape, self.strides, _steps(self.shape), strict=True)
            )
        )


_steps = lru_cache(1 << 12)(row_major)
"""``row_major``, of the few shapes that a program has."""


def packed(slot: int, shape: Shape) -> Layout:
    """Return the C-ordered layout that fills a buffer."""
    return Layout(slot, shape, _steps(shape))


def ordered(slot: int, shape: Shape, order: Sequence[int]) -> Layout:
    """Return the layout that fills a buffer with the axes in another order, the outermost first.

    >>> ordered(0, (2, 3, 4), (1, 0, 2)).strides
    (4, 8, 1)
    """
    steps = dict(zip(order, row_major(tuple(shape[k] for k in order)), strict=True))
    return Layout(slot, shape, tuple(steps[k] for k in range(len(shape))))


def view(node: Node, x: Layout) -> Layout | None:
    """Return the layout of a movement op's result over an operand at ``x``, or None where it is no view."""
    a = node.attrs
    if node.op == "permute_dims":
        axes = a["axes"]
        shape, permuted = ([of[k] for k in axes] for of in (x.shape, x.strides))
        return Layout(x.slot, tuple(shape), tuple(permuted), x.offset, x.late)
    if node.op == "reshape":
        strides = reshape_strides(x.shape, x.strides, tuple(a["shape"]))
        return None if strides is None else Layout(x.slot, tuple(a["shape"]), strides, x.offset, x.late)
    source = StridedArray(None, x.shape, x.strides, x.offset, node.spec.dtype)
    match node.op:
        case "broadcast_to":
            strided = strided_array.broadcast_to(source, a["shape"])
        case "slice":
            strided = strided_array.slice_(source, a["start"], a["size"], a["step"])
        case "flip":
            strided = strided_array.flip(source, a["axis"])
        case "windows":
            strided = strided_array.windows(source, a["size"], a["stride"], a["dilation"])
        case _:
            return None
    return Layout(x.slot, strided.shape, strided.strides, strided.offset, x.late)


@lru_cache(1 << 12)
def reshape_strides(shape: Shape, strides: Shape, wanted: Shape) -> Shape | None:
    """Return the strides that show the same elements in shape ``wanted``, or None where none do.

    >>> reshape_strides((2, 3), (0, 1), (2, 3, 1)), reshape_strides((2, 3), (0, 1), (6,))
    ((0, 1, 1), None)
    """
    if 0 in shape or 0 in wanted:
        return row_major(wanted)
    result: list[int] = []
    for old, new in factor_groups(shape, wanted):
        axes = [k for k in old if shape[k] != 1]
        for a, b in pairwise(axes):
            if strides[a] != strides[b] * shape[b]:
                return None
        step = strides[axes[-1]] if axes else 1
        lengths = tuple(wanted[k] for k in new)
        result.extend(step * s for s in row_major(lengths))
    return tuple(result)


def factor_groups(old: Shape, new: Shape) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the smallest runs of axes, of ``old`` and of ``new``, that hold the same number of elements.

    >>> factor_groups((2, 6, 5), (2, 2, 3, 5))
    [((0,), (0,)), ((1,), (1, 2)), ((2,), (3,))]
    """
    if 0 in old or 0 in new:  # no elements: any two runs hold as many
        return [(tuple(range(len(old))), tuple(range(len(new))))]
    groups: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        a, b = [i] if i < len(old) else [], [j] if j < len(new) else []
        i, j = i + len(a), j + len(b)
        while prod(old[k] for k in a) != prod(new[k] for k in b):
            if (prod(old[k] for k in a) < prod(new[k] for k in b) and i < len(old)) or j >= len(new):
                a.append(i)
                i += 1
            else:
                b.append(j)
                j += 1
        groups.append((tuple(a), tuple(b)))
    return groups


def joinable(shape: Shape, strides: Sequence[int], axis: int) -> bool:
    """Return whether axes ``axis`` and ``axis + 1`` can be one loop."""
    return strides[axis] == strides[axis + 1] * shape[axis + 1]
