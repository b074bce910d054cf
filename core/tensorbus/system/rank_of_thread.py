"""The rank of a distributed program that a thread is, where ranks are threads of one process.

Compiled functions keep what they captured apart by it: ranks that wait for each other can share nothing that
one of them holds locked.
"""

from __future__ import annotations

import threading
from typing import Any


class _Local(threading.local):
    rank: Any = None


_local = _Local()


def rank_of_thread() -> Any:
    """Return an object that stands for the rank; None outside of ranks that are threads.

    Its ``generator`` is what random functions draw from on the rank.

    >>> rank_of_thread() is None
    True
    """
    return _local.rank


def set_rank_of_thread(rank: Any) -> None:
    """Say which rank this thread is from now on."""
    _local.rank = rank
