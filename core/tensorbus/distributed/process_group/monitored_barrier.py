"""``monitored_barrier``: a barrier through the store, which names the ranks that did not come."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Final

from ...errors import DistributedTimeoutError
from .group import ProcessGroup, get_group
from .membership import by_members, check_member
from .world import seconds

_SLACK: Final = 5.0
"""Seconds that ranks wait for the word of the first one beyond its own time."""


@by_members
def monitored_barrier(
    group: ProcessGroup | None = None, timeout: float | timedelta | None = None, wait_all_ranks: bool = False
) -> None:
    """Wait until all ranks of the group are here; where some are not within ``timeout`` seconds, name them.

    None for ``timeout``: as long as a collective waits. Without ``wait_all_ranks`` the first that is missing
    is named, else all. No communicator takes part, and what is queued is not waited for: ``barrier`` is for
    that. Raises ``DistributedTimeoutError`` on every rank that came.

    >>> import tensorbus as tb
    >>> def rank():
    ...     tb.distributed.monitored_barrier(timeout=60)
    >>> tb.distributed.run_ranks(rank, 3)
    [None, None, None]
    """
    ranks = get_group() if group is None else group
    check_member(ranks)
    world = ranks.world
    limit = ranks.timeout if timeout is None else seconds(timeout, "monitored_barrier")
    ranks.check("monitored_barrier")
    if ranks.size == 1 or world.alone:
        return
    ranks.monitored_barriers += 1
    prefix = f"{ranks.label}/monitored/{ranks.monitored_barriers}"
    store, keys = world.store, [f"{prefix}/{place}" for place in range(ranks.size)]
    if ranks.rank:
        store.set(keys[ranks.rank], b"here")
        try:
            missing = store.get(f"{prefix}/missing", limit + _SLACK).decode()
        except DistributedTimeoutError:
            missing = str(ranks.ranks[0])  # which waits for all others
    else:
        missing = _missing(ranks, keys[1:], time.monotonic() + limit, wait_all_ranks)
        store.set(f"{prefix}/missing", missing.encode())
    if missing:
        raise DistributedTimeoutError(
            f"monitored_barrier: rank {missing} of {ranks!r} did not come within {limit:g} seconds. It"
            f" works still, waits elsewhere, or is gone; tensorbus.distributed.records() on each rank shows"
            f" what it did last."
        )


def _missing(ranks: ProcessGroup, keys: list[str], end: float, every: bool) -> str:
    """Return the numbers of the ranks whose keys are not there in time: of the first, or of ``every`` one."""
    store, missing = ranks.world.store, []
    for rank, key in zip(ranks.ranks[1:], keys, strict=True):
        try:
            store.wait([key], max(end - time.monotonic(), 0.001))
        except DistributedTimeoutError:
            missing.append(rank)
            if not every:
                break
    return ", ".join(map(str, missing))
