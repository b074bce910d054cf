"""The handle of a collective that runs beside the program."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ...errors import DistributedTimeoutError


class Work:
    """A collective that was asked for with ``async_op=True``; its tensor is right once ``wait`` has returned.

    A group's collectives run in the order in which they were asked for.
    """

    def __init__(self, finish: Callable[[Any], Any] | None = None) -> None:
        self._done = threading.Event()
        self._finish = finish
        self._result: Any = None
        self._error: BaseException | None = None

    def is_completed(self) -> bool:
        """Return whether the communication is over; ``wait`` returns at once then."""
        return self._done.is_set()

    def wait(self, timeout: float | None = None) -> Any:
        """Wait, put the result where it belongs, and return it.

        Raises what the collective raised, or ``DistributedTimeoutError`` after ``timeout`` seconds, when it
        still runs.
        """
        if not self._done.wait(timeout):
            raise DistributedTimeoutError(f"the collective still runs after {timeout:g} seconds of waiting.")
        if self._error is not None:
            raise self._error
        if self._finish is not None:
            finish, self._finish = self._finish, None
            self._result = finish(self._result)
        return self._result

    def _run(self, call: Callable[[], Any]) -> None:
        try:
            self._result = call()
        except BaseException as error:  # raised where somebody waits
            self._error = error
        finally:
            self._done.set()
