"""The protocol of launchers, which start the ranks of a program: core's own and those of plugins.

A launcher starts processes and says how they end. What is shown of them, which of several that failed is
named, when all are ended and whether they are started again is core's affair, the same for each launcher.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

Show = Callable[[int, str, bool], None]
"""Takes a line of a rank: the rank's number, the line with its end, and whether it is of the error stream.

Called from any thread.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """An order to start ``size`` times ``command``, each with ``environment``."""

    command: tuple[str, ...]
    """A program and its arguments. Where the first is this process' ``sys.executable``, Python is meant:
    another machine has its own."""
    size: int
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that the ranks have beside the launcher's: which attempt this is, the store where one is
    named. The launcher adds ``RANK``, ``WORLD_SIZE``, ``LOCAL_RANK``, ``LOCAL_WORLD_SIZE``."""
    store: str | None = None
    """The URL of the store where the ranks meet; None: the launcher has one for them, which it serves, and
    sets ``TENSORBUS_STORE``, ``TENSORBUS_STORE_SERVED`` and ``TENSORBUS_STORE_SECRET``."""


class Ranks(Protocol):
    """The ranks of one start."""

    def codes(self) -> Sequence[int | None]:
        """Return the exit code of each, None where it runs, -n where signal n ended it; does not wait."""
        ...

    def drain(self, number: int) -> None:
        """Wait until all has been shown that a rank said which has ended."""
        ...

    def end(self) -> None:
        """End those that run, asked first, then not; give back what the start took. None runs afterwards."""
        ...


class Launcher(Protocol):
    """Starts ranks, again and again where they fail."""

    def start(self, request: LaunchRequest, show: Show) -> Ranks:
        """Start the ranks, and hand what they say to ``show``.

        Raises ``DistributedError`` where they cannot be started: what was asked, and what there is.
        """
        ...

    def close(self) -> None:
        """Give back what it holds. Nothing is started afterwards."""
        ...


class LauncherFactory(Protocol):
    """The factory that ``tensorbus_launcher`` returns. ``options``: names, with what each means."""

    options: Mapping[str, str]

    def open(self, options: Mapping[str, str]) -> Launcher:
        """Return a launcher; ``options`` are those of ``tensorbus run --option name=value``.

        Raises ``ArgumentError`` for a value that makes no sense, ``DistributedError`` where it cannot work.
        """
        ...
