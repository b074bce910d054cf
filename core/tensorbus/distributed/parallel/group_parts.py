"""Parts of a group's parameters: along which axis they are divided, and how they lie in one tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...nn.parameter import Parameter
from ...ops.movement.movement import moveaxis
from ...tensor.tensor import Tensor
from ...tracing.active_tracer import active_tracer
from ..process_group.group import ProcessGroup
from ..process_group.work import Work
from ..tensor.dtensor import part_of
from ..tensor.layout import MeshLayout, cell_of
from .flat_parts import FlatParts


class GroupParts:
    """The parts of ``parameters``, which are divided along ``axes``.

    ``layouts`` are those of whole parameters that are split over other ranks, None for the others.
    """

    def __init__(
        self, parameters: Sequence[Parameter], axes: Sequence[int], layouts: Sequence[MeshLayout | None]
    ) -> None:
        self.parameters, self.axes, self.layouts = parameters, tuple(axes), tuple(layouts)
        self._shapes = tuple([
            _in_front(tuple(p.shape) if layout is None else layout.part.shape, axis)
            for p, axis, layout in zip(parameters, axes, layouts, strict=True)
        ])  # fmt: skip
        """The shapes of this rank's whole parameters, which are gathered, the divided axis first."""
        self._flat: dict[tuple[int, ...], FlatParts] = {}

    def part(self, place: int) -> Tensor:
        """Return this rank's part of a parameter, the divided axis first."""
        return self.front(place, part_of(self.parameters[place].detach()))

    def front(self, place: int, x: Tensor) -> Tensor:
        """Return a tensor that lies as a parameter does with the divided axis first."""
        axis = self.axes[place]
        return moveaxis(x, axis, 0) if axis else x

    def back(self, place: int, x: Tensor) -> Tensor:
        """Return a tensor whose divided axis is the first as the parameter lies."""
        axis = self.axes[place]
        return moveaxis(x, 0, axis) if axis else x

    def laid(self, place: int, x: Tensor) -> Tensor:
        """Return a whole parameter, of which this rank has ``x``."""
        layout = self.layouts[place]
        return x if layout is None else cell_of(x, layout.mesh, layout.placements, layout.shape)

    def flat(self, places: Sequence[int], group: ProcessGroup) -> FlatParts:
        """Return how the parts that ranks of a group have of parameters lie in what they exchange."""
        key = (group.size, *places)
        if key not in self._flat:
            self._flat[key] = FlatParts([self._shapes[k] for k in places], group.size)
        return self._flat[key]


def queued(
    group: ProcessGroup, call: Callable[..., Tensor], x: Tensor, *args: Any, label: str
) -> Work | Tensor:
    """Communicate beside the program, or as a node of what is captured."""
    if active_tracer() is not None:
        return call(x, *args, group=group, label=label)
    return group.queue(lambda: call(x, *args, group=group, label=label), tensors=[x])


def by_kind(tensors: Mapping[int, Tensor]) -> list[list[int]]:
    """Return the keys of tensors of one dtype and device together."""
    kinds: dict[object, list[int]] = {}
    for place, x in tensors.items():
        kinds.setdefault(x._vtype.materialized, []).append(place)
    return list(kinds.values())


def _in_front(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (shape[axis], *shape[:axis], *shape[axis + 1 :])
