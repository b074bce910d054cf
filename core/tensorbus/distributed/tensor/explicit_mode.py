"""``explicit``: a block in which no op redistributes its operands by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ...errors import DistributedError
from ...tracing.mesh_policy import consulted, enter, mesh_policy

if TYPE_CHECKING:
    from .layout import Distributed
    from .placements import Placements
    from .sharding_plan import ShardingPlan


@contextmanager
def explicit(enabled: bool = True) -> Iterator[None]:
    """Refuse what would communicate to bring distributed tensors into other placements by itself.

    An op, a change in place, an argument of ``local_map``, or reading elements (``item``, ``numpy``, a
    branch) raises ``DistributedError`` then, which says what it would send and by which collectives. What
    costs no communication, as taking a part of what each rank has, is allowed, and so is what is asked for:
    ``redistribute``, ``full_tensor``; and ``backward`` lays the gradient of a leaf out as the leaf.
    ``enabled=False`` allows all again inside of the block. It holds for this thread or task, and for what is
    compiled too; usable as a decorator.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank():
    ...     mesh = dist.init_device_mesh("cpu", (2,))
    ...     x = dist.distribute_tensor(tb.ones((4, 2), device="cpu"), mesh, [dist.Shard(0)])
    ...     with dist.explicit():
    ...         try:
    ...             return x @ x.mT
    ...         except dist.DistributedError as error:
    ...             return "all_gather" in str(error)
    >>> dist.run_ranks(rank, 2)
    [True, True]
    """
    token = enter(refuses=enabled)
    try:
        yield
    finally:
        mesh_policy.reset(token)


def check(plan: ShardingPlan, values: Sequence[Any]) -> None:
    """Raise ``DistributedError`` in an ``explicit`` block, where a plan communicates."""
    if not consulted().refuses:
        return
    moved = [
        cost for place, (value, move) in enumerate(zip(values, plan.moves, strict=True)) if move is not None
        if (cost := _cost(f"operand {place}", value, move.placements))
    ]  # fmt: skip
    raise DistributedError(
        f"{plan.op.name}: in a block of explicit() no op communicates by itself, and {'; '.join(moved)}. Call"
        f" .redistribute(...) on it first, or lay the operands out otherwise."
    )


def check_move(name: str, what: str, value: Distributed, target: Placements) -> None:
    """Raise ``DistributedError`` in an ``explicit`` block, where ``value`` would communicate to get there."""
    if value.layout.placements == target or not consulted().refuses:
        return
    if cost := _cost(what, value, target):
        raise DistributedError(
            f"{name}: in a block of explicit() nothing is redistributed by itself, and {cost}. Call"
            f" .redistribute({[*target]}) on it first, or .full_tensor() to read all of its elements."
        )


def _cost(what: str, value: Distributed, target: Placements) -> str:
    """Return what a change of placements takes, in words; "" where it does not communicate."""
    from .redistribute import collectives_between

    layout = value.layout
    names, elements = collectives_between(layout.shape, layout.mesh.shape, layout.placements, target)
    if not names:
        return ""
    return (
        f"{what} of shape {layout.shape} would go from {[*layout.placements]} to {[*target]} by"
        f" {', '.join(names)}, for which each rank sends {elements * value.local.dtype.itemsize} bytes"
    )
