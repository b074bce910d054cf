"""A store whose calls are looked after: one that ignores its limit is told of, and ends the rank."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

from ...backend_interface.communication import Store
from ..process_group.unreturned_calls import limited

_WAITING: Final = ("get", "wait", "queue_pop")
"""The methods whose second argument is a limit in seconds."""


class LimitedStore:
    """The ``Store`` itself, with all that it has beyond the protocol, as rank ``rank`` uses it.

    Calls without a limit of their own have ``timeout`` seconds.

    >>> from tensorbus.distributed import MemoryStore
    >>> LimitedStore(MemoryStore(), 0, 60.0).add("n", 1)
    1
    """

    set: Callable[[str, bytes], None]
    get: Callable[..., bytes]
    add: Callable[[str, int], int]
    wait: Callable[..., None]
    check: Callable[[Sequence[str]], bool]
    compare_set: Callable[[str, bytes, bytes], bytes]
    delete_key: Callable[[str], bool]

    def __init__(self, store: Store, rank: int, timeout: float) -> None:
        self._store, self._timeout = store, timeout
        self._name = f"rank {rank}: store {getattr(store, 'url', type(store).__qualname__)}"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        method = getattr(self._store, name)
        if not callable(method):
            return method
        waits, default, what = name in _WAITING, self._timeout, f"{self._name}: {name}"

        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            limit = kwargs.get("timeout", args[1] if len(args) > 1 else None) if waits else None
            about = f" of {args[0]!r:.200}" if args else ""
            with limited(f"{what}{about}", default if limit is None else limit):
                return method(*args, **kwargs)

        setattr(self, name, call)
        return call
