"""Holds back Python's garbage collector, in a way that code which asks whether it is enabled cannot see."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collections() -> Iterator[None]:
    """Let no garbage be collected by itself meanwhile; ``gc.isenabled()`` and ``gc.disable()`` are as ever.

    >>> with without_collections():
    ...     gc.isenabled(), gc.get_threshold()[0]
    (True, 0)
    """
    threshold, *others = gc.get_threshold()
    gc.set_threshold(0, *others)
    try:
        yield
    finally:
        if gc.get_threshold()[0] == 0:  # unless code that ran has set another
            gc.set_threshold(threshold, *others)
