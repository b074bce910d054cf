"""The history of a function's arguments over its captures: which are the same, and what became of them.

An instance that is passed is any of its class: guards look at what is in it. So a list that it holds and that
grows at each call, has another length at each. Where calls get the same instance, as segments of a method get
``self``, it is known by its identity from then on, as the ``self`` of a compiled method is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from weakref import ref

MAX_EARLIER: Final = 8
"""How many earlier instances are remembered, to tell whether one of them comes back."""


class ArgumentHistory:
    """The arguments of the captures of a function, by position or name.

    ``filled`` are objects that captures refilled, by id, with their state after that; ``fixed`` are the
    arguments that are known by their identity.
    """

    def __init__(self) -> None:
        self.filled: dict[int, Any] = {}
        self.fixed: set[int | str] = set()
        self._earlier: dict[int | str, list[ref[Any]]] = {}
        self._alternate: set[int | str] = set()
        """The arguments that are now one instance and now another: none is known by its identity."""
        self._same: set[int | str] = set()
        self._filled_before: set[int] = set()

    def begin(self, arguments: Iterable[tuple[int | str, Any]]) -> bool:
        """Note the arguments of a capture; return whether earlier ones are about an instance that is gone.

        Those would keep it.
        """
        self._filled_before, self._same, gone = {*self.filled}, set(), False
        for key, x in arguments:
            try:
                now = ref(x)
            except TypeError:  # a container or a number: it is passed for what it holds
                continue
            earlier = [each for each in self._earlier.get(key, ()) if each() is not None]
            if earlier and earlier[-1]() is x:
                self._same.add(key)
                continue
            if any(each() is x for each in earlier):
                self._alternate.add(key)
            gone = gone or key in self.fixed
            self._earlier[key] = [*(each for each in earlier if each() is not x), now][-MAX_EARLIER:]
        self.fixed -= self._alternate
        return gone

    def fix(self, changed: Any, holders: Iterable[int | str]) -> bool:
        """Return whether arguments will be known by their identity, as ``changed``, in them, changes."""
        if id(changed) not in self._filled_before:
            return False
        keys = {*holders} & self._same - self.fixed - self._alternate
        self.fixed |= keys
        return bool(keys)

    def without_contents(self) -> ArgumentHistory:
        """Return what another run of the same capture is to know."""
        other = ArgumentHistory()
        other.fixed = self.fixed
        return other
