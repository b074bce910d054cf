"""Headers of messages, looked at once they are there, so that the host waits for none."""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import tensorbus as tb
from tensorbus.errors import DeviceError

HEAD: Final = 64
"""The bytes in front of a message, which say what it is."""
_DIGEST: Final = 8


def head_of(spec: str) -> bytes:
    """Return the bytes that say what a message is; of a shape of many axes a digest stands for the end."""
    text = spec.encode()
    if len(text) > HEAD:
        text = text[: HEAD - 2 * _DIGEST] + blake2b(text, digest_size=_DIGEST).hexdigest().encode()
    return text.ljust(HEAD)


class _Arrival(NamedTuple):
    """A head on its way: it is at ``memory``, of the host, once ``event`` is done; ``held`` lives so long."""

    event: tb.Event
    memory: Any
    wanted: str
    held: Any


class Arrivals:
    """The heads of messages that were asked for. Safe in many threads."""

    def __init__(self) -> None:
        self._due: deque[_Arrival] = deque()
        self._lock = threading.Lock()
        self._problem = ""

    def expect(self, event: tb.Event, memory: Any, wanted: str, held: Any) -> None:
        """Look, once ``event`` is done, whether what was sent is what was ``wanted``."""
        with self._lock:
            self._due.append(_Arrival(event, memory, wanted, held))

    def problem(self) -> str:
        """Return what was sent where something else was asked for, of the first such; "" for nothing.

        Where work of the device failed before a message was there, it says so. The device may keep waiting
        whoever asks it: nobody else waits for that.
        """
        while True:
            with self._lock:
                if self._problem or not self._due:
                    return self._problem
                arrival = self._due[0]
            try:
                if not arrival.event.is_done():
                    return ""
                sent = ctypes.string_at(arrival.memory.ptr, HEAD)
                text = sent.decode(errors="replace").strip()
                problem = f"recv: {arrival.wanted} was asked for, but what was sent is {text}"
                problem = "" if sent == head_of(arrival.wanted) else problem
            except DeviceError as error:
                problem = f"recv: {arrival.wanted} did not come, since work before it failed: {error}"
            with self._lock:
                if self._due and self._due[0] is arrival:
                    self._due.popleft()
                    self._problem = self._problem or problem
