"""Cells that hold what those of one rank do: how ``replicate`` begins, and what buffers are in each run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...autograd.engine import no_grad
from ...nn.parameter import hold
from ...ops.creation.creation import zeros_like
from ...ops.elementwise.where_cast import where
from ...tensor.tensor import Tensor
from ..collectives import functional
from ..process_group.group import ProcessGroup
from ..tensor.dtensor import laid_as, part_of
from .gradient_bucket import unflattened
from .gradient_reducer import flattened


def share(
    cells: Sequence[Tensor], group: ProcessGroup, label: str, source: int = 0, is_source: Tensor | None = None
) -> None:
    """Make cells hold what those of the group's rank ``source`` hold: one collective for a dtype and device.

    Of a cell that is distributed over other ranks, this rank's part. ``label`` is what ranks compare. With
    ``is_source``, a bool on the device, nobody needs to know the rank: it is true on one of them, or on none.
    """
    kinds: dict[Any, list[tuple[Tensor, Tensor]]] = {}
    for cell in cells:
        part = part_of(cell.detach())
        kinds.setdefault(part._vtype.materialized, []).append((cell, part))
    with no_grad():
        for same in kinds.values():
            parts = [part for _, part in same]
            flat = flattened(parts)
            if is_source is None:
                flat = functional.broadcast(flat, source, group, label=label)
            else:
                mine = where(is_source.to(flat.device), flat, zeros_like(flat))
                reduction = "max" if flat.dtype.kind == "bool" else "sum"
                flat = functional.all_reduce(mine, reduction, group, label=label)
            for (cell, _), value in zip(same, unflattened(flat, parts), strict=True):
                hold(cell, laid_as(value.detach(), cell))
