"""Gradients of views, and sums of the gradients of a value that was read several times.

Those of slices are joined once all are there: no whole with zeros is made for each.
"""

from __future__ import annotations

from bisect import bisect
from typing import Any, Final

from ..ops.definition import Shape, table
from ..ops.movement.movement import permute_dims, reshape
from ..ops.movement.movement import slice as slice_op
from ..tensor.tensor import Tensor
from ..tracing.active_tracer import unprofiled

_NOTHING: Final = (None,)
"""What a slice keeps for its derivative, until it is let go."""


class SliceGradients:
    """A value's gradient so far: ``whole``, and the gradients of parts along one axis to add to it.

    The parts share no element, so that each element has the sum that it has where they come one by one.
    """

    __slots__ = ("axis", "ends", "parts", "shape", "starts", "whole")

    def __init__(self, shape: Shape, axis: int, whole: Tensor | None) -> None:
        self.shape, self.axis, self.whole = shape, axis, whole
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.parts: list[Tensor] = []

    def take(self, axis: int, start: int, g: Tensor) -> bool:
        """Take the gradient of a part from ``start`` on; return whether it is apart from all others."""
        end, place = start + g.shape[axis], bisect(self.starts, start)
        before = self.ends[place - 1] if place else 0
        after = self.starts[place] if place < len(self.starts) else self.shape[axis]
        if axis != self.axis or start < before or end > after:
            return False
        self.starts.insert(place, start)
        self.ends.insert(place, end)
        self.parts.insert(place, g)
        return True

    def total(self) -> Tensor:
        """Return the whole gradient."""
        axis, shape, parts = self.axis, self.shape, list[Tensor]()
        at = 0
        if len(self.parts) == 1:
            rest = range(len(shape))
            low = tuple([self.starts[0] if k == axis else 0 for k in rest])
            high = tuple([shape[k] - self.ends[0] if k == axis else 0 for k in rest])
            whole = table.function("pad")(self.parts[0], low, high)
        else:
            for start, end, part in zip(self.starts, self.ends, self.parts, strict=True):
                parts += [*self._zeros(start - at), part]
                at = end
            parts += self._zeros(shape[axis] - at)
            whole = table.function("concat")(parts, axis=axis)
        gradient: Tensor = whole if self.whole is None else self.whole + whole
        return gradient

    def _zeros(self, length: int) -> list[Tensor]:
        """Return what lies between two parts: nothing where they are neighbours."""
        if not length:
            return []
        like, axis = self.parts[0], self.axis
        shape = (*self.shape[:axis], length, *self.shape[axis + 1 :])
        return [table.function("full")(shape, 0, dtype=like.dtype, device=like.device)]


def add_slice(grads: dict[Any, Any], node: Any, g: Any) -> bool:
    """Add the gradient of a slice, ``g``, to that of its operand; return whether it was added here.

    Not that of another op, gradients that are no plain tensors of the slice's type, parts along several axes
    or with steps, and what has let its history go: these go the way of every op.
    """
    plan = node.plan
    if (
        plan.op is not slice_op
        or type(g) is not Tensor
        or g._vtype is not plan.out
        or node.values != _NOTHING
    ):
        return False
    (shape,), start, (parent,) = node.shapes, plan.attrs["start"], node.parents
    size = g._value.shape
    axes = [k for k, n in enumerate(shape) if size[k] != n]
    if len(axes) != 1 or 0 in size or set(plan.attrs["step"]) != {1} or plan.out.cell is not None:
        return False
    (axis,), known = axes, grads.get(parent)
    if type(known) is SliceGradients:
        if known.take(axis, start[axis], g):
            return True
        known = known.total()
    grads[parent] = together = SliceGradients(shape, axis, known)
    return together.take(axis, start[axis], g)


def view_gradient(node: Any, g: Any) -> Tensor | None:
    """Return the gradient of what was reshaped, or whose axes were put in another order: ``g``, put back.

    It has the operand's shape and dtype, and needs no check. None for other ops, and values of other types.
    """
    plan = node.plan
    if type(g) is not Tensor or g._vtype is not plan.out or plan.out.cell is not None:
        return None
    if node.values != _NOTHING:
        return None
    back: Tensor
    if plan.op is reshape:
        back = unprofiled(table.function("reshape"), g, node.shapes[0])
    elif plan.op is permute_dims:
        axes = plan.attrs["axes"]
        back = unprofiled(table.function("permute_dims"), g, tuple([axes.index(k) for k in range(len(axes))]))
    else:
        return None
    return back


def gather(grads: dict[Any, Any], node: Any, g: Tensor) -> None:
    """Add a gradient to that of a node."""
    known = grads.get(node)
    if type(known) is SliceGradients:
        known = unprofiled(known.total)
    grads[node] = g if known is None else known + g


def gather_part(grads: dict[Any, Any], part: Any, g: Tensor) -> None:
    """Put the gradient of one result beside those of the others."""
    (whole,) = part.parents
    results = grads.setdefault(whole, [None] * len(whole.plan.outs))
    known = results[part.place]
    results[part.place] = g if known is None else known + g
