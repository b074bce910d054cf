"""A table of which ranks have which elements of a distributed tensor: what placements mean, to be seen."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from ...errors import ArgumentError
from ..process_group.world import get_rank
from .dtensor import DTensor
from .layout import MeshLayout
from .placements import Partial, local_part

if TYPE_CHECKING:
    from rich.table import Table

COLUMNS: Final = 12
"""How many parts along the second axis stand beside each other; where there are more, parts are listed."""
Part = tuple[tuple[int, int], ...]
"""Where a part begins and ends along each axis."""


def visualize_sharding(x: DTensor, header: str = "") -> None:
    """Print a table of the ranks that have each part of ``x``, on the first rank of its mesh.

    Of a tensor of up to two axes the table looks as the tensor does; of others each part is a line. Nothing
    is communicated. Raises ``ArgumentError`` for a tensor that is not distributed.

    >>> import tensorbus as tb
    >>> from tensorbus import distributed as dist
    >>> def rank():
    ...     mesh = dist.init_device_mesh(None, (2, 2), mesh_dim_names=("dp", "tp"))
    ...     x = dist.distribute_tensor(tb.ones(5), mesh, [dist.Shard(0), dist.Replicate()])
    ...     dist.visualize_sharding(x)
    >>> _ = dist.run_ranks(rank, 4)  # doctest: +NORMALIZE_WHITESPACE
    float32[5]: dp (2) Shard(dim=0), tp (2) Replicate()
           ┃ elements
    ━━━━━━━╇━━━━━━━━━━
     0 : 3 │ rank 0-1
     3 : 5 │ rank 2-3
    """
    if not isinstance(x, DTensor):
        raise ArgumentError(
            f"visualize_sharding: a distributed tensor is needed, got a {type(x).__name__};"
            f" distribute_tensor(x, mesh, placements) makes one."
        )
    if get_rank() != x.device_mesh._ranks[0]:
        return
    from rich.console import Console
    from rich.text import Text

    layout: MeshLayout = x._value.layout
    console = Console(highlight=False)
    title = f"{x.dtype.name}{[*x.shape]}: {_placements(layout)}"
    console.print(Text(f"{header}\n{title}" if header else title))
    console.print(_table(layout))
    terms = [p.reduction for p in layout.placements if isinstance(p, Partial)]
    if terms:
        console.print(Text(f"Ranks have terms: their {' and '.join(dict.fromkeys(terms))} is the value."))


def parts_of_ranks(layout: MeshLayout) -> dict[Part, list[int]]:
    """Return the ranks that have each part of a tensor, in order of the parts."""
    mesh, owners = layout.mesh, dict[Part, list[int]]()
    coordinates = itertools.product(*map(range, mesh.shape))
    for rank, coordinate in zip(mesh._ranks, coordinates, strict=True):
        lengths, starts = local_part(layout.shape, layout.placements, mesh.shape, coordinate)
        part = tuple((start, start + n) for start, n in zip(starts, lengths, strict=True))
        owners.setdefault(part, []).append(rank)
    return dict(sorted(owners.items()))


def _table(layout: MeshLayout) -> Table:
    owners = parts_of_ranks(layout)
    rows, columns = ([*dict.fromkeys(part[axis : axis + 1] for part in owners)] for axis in (0, 1))
    return (
        _grid(owners, rows, columns) if len(layout.shape) <= 2 and len(columns) <= COLUMNS else _list(owners)
    )


def _grid(owners: dict[Part, list[int]], rows: Sequence[Part], columns: Sequence[Part]) -> Table:
    from rich.table import Table

    table = Table(show_edge=False)
    table.add_column("", justify="right")
    for column in columns:
        table.add_column(_spelled(column) or "elements")
    for row in rows:
        cells = (owners.get((*row, *column)) for column in columns)
        table.add_row(_spelled(row), *(_ranks(ranks) if ranks else "" for ranks in cells))
    return table


def _list(owners: dict[Part, list[int]]) -> Table:
    from rich.table import Table

    table = Table("elements", "", show_edge=False)
    for part, ranks in owners.items():
        table.add_row(_spelled(part), _ranks(ranks))
    return table


def _placements(layout: MeshLayout) -> str:
    names: Sequence[Any] = layout.mesh.mesh_dim_names or range(layout.mesh.ndim)
    sizes = layout.mesh.shape
    return ", ".join(
        f"{name} ({size}) {p}" for name, size, p in zip(names, sizes, layout.placements, strict=True)
    )


def _spelled(part: Part) -> str:
    """Return where a part lies, such as ``0 : 3, 2 : 4``; an axis without elements is said to be so."""
    return ", ".join(f"{start} : {end}" if end > start else "none" for start, end in part)


def _ranks(ranks: Sequence[int]) -> str:
    """Return ``rank 0-3, 8`` for 0, 1, 2, 3 and 8."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and runs[-1][-1] == rank - 1:
            runs[-1] = [runs[-1][0], rank]
        else:
            runs.append([rank])
    return "rank " + ", ".join("-".join(map(str, run)) for run in runs)
