"""Calls of the driver that leave Python to others meanwhile, at the end of programs whose threads still work.

Python ends daemon threads where they come back from such a call, in the midst of PyOpenCL's C++, which then
aborts the process. So before that happens no thread is in such a call, and only the main one begins another.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from time import monotonic, sleep
from typing import Final, TypeVar

T = TypeVar("T")
_PATIENCE: Final = 5.0
"""For how many seconds the end of the program waits for such calls."""
_inside: Final[set[int]] = set()
_ending: Final[list[int]] = []
"""The thread that ends the program, once it does."""


def blocking(call: Callable[..., T], *args: object, **kwargs: object) -> T:
    """Return what ``call`` returns; never, in a daemon thread while the program ends."""
    me = threading.get_ident()
    if me in _inside:
        return call(*args, **kwargs)
    _inside.add(me)
    try:
        if _ending and me not in _ending:
            _inside.discard(me)
            threading.Event().wait()
        return call(*args, **kwargs)
    finally:
        _inside.discard(me)


def _end() -> None:
    _ending.append(threading.get_ident())
    until = monotonic() + _PATIENCE
    while _inside.difference(_ending) and monotonic() < until:
        sleep(0.001)


atexit.register(_end)
