"""``Future``: what a collective that runs beside the program gives, and what functions make of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Future:
    """A value that is there once somebody has waited for it, as ``Work.get_future`` returns one.

    The collective runs beside the program. A function passed to ``then`` runs where its result is waited for,
    once.

    >>> Future(lambda: 3, lambda: True).then(lambda known: known.value() + 1).wait()
    4
    """

    def __init__(self, compute: Callable[[], Any], is_done: Callable[[], bool]) -> None:
        self._compute: Callable[[], Any] | None = compute
        self._is_done, self._value = is_done, None

    def done(self) -> bool:
        """Return whether ``wait`` has nothing to wait for."""
        return self._compute is None or self._is_done()

    def wait(self) -> Any:
        """Wait, and return the value. Raises what the collective has raised, or a function on the way."""
        if self._compute is not None:
            self._value = self._compute()
            self._compute = None
        return self._value

    value = wait

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """Return the future of ``callback(self)``, which is called once this one's value is there."""

        def compute() -> Any:
            self.wait()
            return callback(self)

        return Future(compute, self.done)


def tensor_of(result: Any) -> Any:
    """Return what a future has, once it is there, or ``result`` itself; of a list of one its item."""
    value = result.wait() if isinstance(result, Future) else result
    return value[0] if isinstance(value, list | tuple) and len(value) == 1 else value
