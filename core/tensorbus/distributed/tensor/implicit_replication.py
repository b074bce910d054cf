"""``implicit_replication``: a block in which ordinary tensors count as the same on each rank."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...tracing.mesh_policy import consulted, enter, mesh_policy


@contextmanager
def implicit_replication(enabled: bool = True) -> Iterator[None]:
    """Let ops take distributed tensors and ordinary ones together: these are the same on each rank.

    Without it only single numbers are, and a larger ordinary tensor raises, for it might as well be a part.
    ``enabled=False`` ends that inside of the block. It holds for this thread or task; usable as a decorator
    too.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank():
    ...     mesh = dist.init_device_mesh("cpu", (2,))
    ...     x = dist.distribute_tensor(tb.ones(4, device="cpu"), mesh, [dist.Shard(0)])
    ...     with dist.implicit_replication():
    ...         return (x * tb.arange(4, device="cpu")).full_tensor().tolist()
    >>> dist.run_ranks(rank, 2)
    [[0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 2.0, 3.0]]
    """
    token = enter(replicates=enabled)
    try:
        yield
    finally:
        mesh_policy.reset(token)


def is_replicating() -> bool:
    """Return whether ordinary tensors count as the same on each rank."""
    return consulted().replicates
