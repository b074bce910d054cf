"""Ranks that are threads of this process: for tests, notebooks, and finding errors without a cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from ...errors import ArgumentError, DistributedError
from ..process_group.selection import check_preferred
from ..process_group.world import DEFAULT_TIMEOUT, World, in_world
from ..stores.memory_store import MemoryStore

R = TypeVar("R")


def run_ranks(
    function: Callable[..., R],
    size: int,
    *args: Any,
    timeout: float | timedelta = DEFAULT_TIMEOUT,
    prefer: str | None = None,
) -> list[R]:
    """Call ``function(*args)`` on ``size`` ranks, each a thread of this process; return what each returned.

    Inside, ``get_rank()`` says which it is. The first rank that raises ends the others, and its error is
    raised here with a note that names it. ``timeout`` is the seconds that a collective waits for other ranks.

    >>> import tensorbus as tb
    >>> tb.distributed.run_ranks(tb.distributed.get_rank, 3)
    [0, 1, 2]
    """
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ArgumentError(f"run_ranks: size must be an integer >= 1, got {size!r}.")
    if not callable(function):
        raise ArgumentError(f"run_ranks: a function is needed, which each rank calls, got {function!r}.")
    check_preferred(prefer)
    store = MemoryStore()
    worlds = [World(rank, size, store, timeout=timeout, prefer=prefer, threads=True) for rank in range(size)]
    results: list[Any] = [None] * size
    failures: list[tuple[int, BaseException]] = []
    lock = threading.Lock()

    def fail(rank: int, error: BaseException) -> None:
        with lock:
            failures.append((rank, error))
        reason = f"rank {rank} raised {type(error).__name__}: {error}".removesuffix(".")
        store.close(reason)
        for world in worlds:
            world.close(reason)

    def rank_main(rank: int) -> None:
        try:
            with in_world(worlds[rank]):
                worlds[rank].thread = threading.get_ident()
                results[rank] = function(*args)
            worlds[rank].drain()
            worlds[rank].roll_call.leave("its function has returned")
        except BaseException as error:  # raised below
            fail(rank, error)

    threads = [
        threading.Thread(target=rank_main, args=(rank,), name=f"rank-{rank}", daemon=True)
        for rank in range(size)
    ]
    try:
        for thread in threads:
            thread.start()
        for thread, world in zip(threads, worlds, strict=True):
            while thread.is_alive() and world.stuck is None:
                thread.join(0.2)  # short, so that an interrupt is seen
    except BaseException as error:
        reason = f"the program was ended by {type(error).__name__}"
        store.close(reason)
        for world in worlds:
            world.close(reason)
        raise
    stuck = [(rank, world.stuck) for rank, world in enumerate(worlds) if world.stuck is not None]
    for world in worlds:
        world.close(str(stuck[0][1]) if stuck else "")
    failures = [*stuck, *failures]
    if failures:
        rank, failure = _first(failures)
        failure.add_note(f"on rank {rank} of {size}")
        raise failure
    return results


def _first(failures: list[tuple[int, BaseException]]) -> tuple[int, BaseException]:
    """Return the failure that caused the others, which say that they were ended."""
    own = [pair for pair in failures if not isinstance(pair[1], DistributedError)]
    return (own or failures)[0]
