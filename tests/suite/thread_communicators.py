"""Communicators of threads that a test changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorbus.backend_api import hookimpl
from tensorbus_threads.communicator import Factory


class ThreadCommunicators:
    """A plugin that connects threads, and gives what ``change`` makes of a rank's end and who meets."""

    priority = 0

    def __init__(self, change: Callable[[Any, Any], Any]) -> None:
        self.change = change

    @hookimpl
    def tensorbus_communicator(self, name: str) -> Any:
        return self

    def verdict(self, device_type: str, rendezvous: Any) -> bool | str:
        return Factory().verdict(device_type, rendezvous)

    def connect(self, rendezvous: Any) -> Any:
        return self.change(Factory().connect(rendezvous), rendezvous)
