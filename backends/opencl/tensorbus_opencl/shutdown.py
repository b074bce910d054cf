"""Calls of the driver that leave Python to others meanwhile, at the end of programs whose threads still work.

Python ends daemon threads where they come back from such a call, in the midst of PyOpenCL's C++, which then
aborts the process; and where they next want Python, whereupon drivers take down what they keep for a thread
while they are taken down themselves. So before that happens such threads get to their next call, and stay.
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
_HASTE: Final = 0.25
"""For how many it waits for threads that are in none: they may be idle."""
_inside: Final[set[int]] = set()
_users: Final[set[int]] = set()
"""The threads that ever began such a call; ``_held`` are those that began one while the program ends."""
_held: Final[set[int]] = set()
_ending: Final[list[int]] = []
"""The thread that ends the program, once it does."""


def blocking(call: Callable[..., T], *args: object, **kwargs: object) -> T:
    """Return what ``call`` returns; never, in a daemon thread while the program ends."""
    me = threading.get_ident()
    if me in _inside:
        return call(*args, **kwargs)
    _inside.add(me)
    _users.add(me)
    try:
        if _ending and me not in _ending:
            _inside.discard(me)
            _held.add(me)
            threading.Event().wait()
        return call(*args, **kwargs)
    finally:
        _inside.discard(me)


def _end() -> None:
    _ending.append(threading.get_ident())
    begun = monotonic()
    while _inside.difference(_ending) and monotonic() < begun + _PATIENCE:
        sleep(0.001)
    others = {thread.ident for thread in threading.enumerate()}.intersection(_users).difference(_ending)
    begun = monotonic()
    while others.difference(_held) and monotonic() < begun + _HASTE:
        sleep(0.001)


atexit.register(_end)
