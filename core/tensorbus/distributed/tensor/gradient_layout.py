"""Layouts in which the gradients of distributed leaves gather: small sums over ranks are added up together.

A parameter that each rank has, a norm's on parts of a sequence, gets its gradient as terms of a sum. A model
has many of those, and a collective of a few elements takes as long as one of all of them.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any, Final

from ...ops.movement.movement import concat, reshape
from ...tensor.leaf import Leaf
from ...tensor.tensor import Tensor
from .layout import Distributed, MeshLayout, cell_of
from .placements import LINEAR_REDUCTIONS, Partial, Replicate
from .redistribute import COLLECTIVE_COST, gradient_placements


class GradientLayout:
    """Placements of the gradient of a leaf that lies as ``layout``: called, it brings one there."""

    __slots__ = ("placements",)

    def __init__(self, layout: MeshLayout) -> None:
        self.placements: Final = gradient_placements(layout.placements)

    def __call__(self, g: Any, waiting: MutableMapping[Any, Any] | None = None) -> Any:
        """Return the gradient laid out.

        ``waiting`` are those that are still to be laid out, by leaf. Small sums among them are added up with
        this one and put back, but for leaves with hooks, which may see theirs earlier.
        """
        if waiting and self._is_small_sum(g):
            alike = [leaf for leaf in waiting if self._joins(leaf, waiting[leaf], g)]
            if alike:
                g, *others = _added_up([g, *[waiting[leaf] for leaf in alike]], self.placements)
                waiting.update(zip(alike, others, strict=True))
        return g.redistribute(self.placements)

    def _is_small_sum(self, g: Any) -> bool:
        """Return whether a gradient is terms of a sum of few elements that each rank is to have."""
        if type(g._value) is not Distributed or g._node is not None or g.size > COLLECTIVE_COST:
            return False
        placements = g._value.layout.placements
        return (
            all(isinstance(p, Replicate) for p in self.placements)
            and any(isinstance(p, Partial) for p in placements)
            and all(isinstance(p, Replicate) or _is_linear(p) for p in placements)
        )

    def _joins(self, leaf: Any, other: Any, g: Any) -> bool:
        """Return whether the gradient of another leaf is a small sum like ``g``."""
        own = leaf.lay_out if isinstance(leaf, Leaf) and not getattr(leaf, "hooks", None) else None
        return (
            isinstance(own, GradientLayout)
            and isinstance(other, Tensor)
            and own._is_small_sum(other)
            and other._value.layout.placements == g._value.layout.placements
            and other._vtype == g._vtype
        )


def _is_linear(placement: Any) -> bool:
    return isinstance(placement, Partial) and placement.reduction in LINEAR_REDUCTIONS


def _added_up(gradients: Sequence[Any], placements: Sequence[Any]) -> list[Any]:
    """Return gradients, all terms of sums alike, laid out by one sequence of collectives."""
    layout: MeshLayout = gradients[0]._value.layout
    parts = [x._value.local for x in gradients]
    flat = concat([reshape(x, (x.size,)) for x in parts])
    whole = cell_of(flat, layout.mesh, layout.placements, flat.shape).redistribute(placements)
    summed: Tensor = whole._value.local
    results, start = [], 0
    for x in parts:
        own = reshape(summed[start : start + x.size], x.shape).clone()
        results.append(cell_of(own, layout.mesh, whole.placements, x.shape))
        start += x.size
    return results
