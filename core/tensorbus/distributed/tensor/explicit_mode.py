"""``explicit``: a block in which no op redistributes its operands by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from ...errors import DistributedError

if TYPE_CHECKING:
    from .sharding_plan import ShardingPlan

_refusing: Final[ContextVar[bool]] = ContextVar("tensorbus_explicit", default=False)


@contextmanager
def explicit(enabled: bool = True) -> Iterator[None]:
    """Refuse ops on distributed tensors that would communicate to bring operands into other placements.

    Such an op raises ``DistributedError``, which says what it would send and by which collectives. What
    costs no communication, as taking a part of what each rank has, is allowed, and so is what is asked for:
    ``redistribute``, ``full_tensor``. ``enabled=False`` allows all again inside of the block. It holds for
    this thread or task; usable as a decorator too.

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
    token = _refusing.set(enabled)
    try:
        yield
    finally:
        _refusing.reset(token)


def check(plan: ShardingPlan, values: Sequence[Any]) -> None:
    """Raise ``DistributedError`` in an ``explicit`` block, where a plan communicates."""
    if not _refusing.get():
        return
    from .redistribute import collectives_between

    moved = []
    for place, (value, move) in enumerate(zip(values, plan.moves, strict=True)):
        if move is None:
            continue
        layout = value.layout
        names, elements = collectives_between(
            layout.shape, layout.mesh.shape, layout.placements, move.placements
        )
        if names:
            moved.append(
                f"operand {place} of shape {layout.shape} would go from {[*layout.placements]} to"
                f" {[*move.placements]} by {', '.join(names)}, for which each rank sends"
                f" {elements * value.local.dtype.itemsize} bytes"
            )
    raise DistributedError(
        f"{plan.op.name}: in a block of explicit() no op communicates by itself, and {'; '.join(moved)}. Call"
        f" .redistribute(...) on it first, or lay the operands out otherwise."
    )
