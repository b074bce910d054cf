"""Interface by which a device records a program once and replays it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..lowering.ir.builder import Launch
from ..lowering.program.program import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """A step: a ``launch`` as the compiler prepared it, or a ``call``; neither where it cannot be recorded.

    ``late`` read the arguments that come with each run. ``call`` takes the run's values and the buffers by
    slot, all of which are there, and says whether it could be queued. ``what`` is what was prepared of
    ``source``, for a device that would rather prepare it otherwise. Of ``slots`` those in ``written`` are
    written to. ``ordered`` calls communicate: they may run beside what does not wait for them.
    """

    slots: tuple[int, ...]
    written: frozenset[int]
    launch: Callable[[Sequence[Any], Sequence[Any]], Any] | None = None
    late: tuple[Callable[[Sequence[Any]], Any], ...] = ()
    call: Callable[[Sequence[Any], list[Any]], bool] | None = None
    source: str = ""
    what: Launch | None = None
    ordered: bool = False


@dataclass(frozen=True, slots=True)
class Script:
    """A program for one pattern of layouts, its steps in order, and the bytes of the slots that it makes.

    ``mode`` is that of ``tensorbus.compile``.
    """

    program: Program
    steps: Sequence[Queued]
    nbytes: Mapping[int, int]
    index: int
    mode: str = "default"


class Player(Protocol):
    """The result of a compiler's ``player(script)``."""

    def play(self, values: Sequence[Any], buffers: list[Any]) -> bool:
        """Run the program, with the buffers of its results put at their slots; False where it was not run.

        Some of these are there already: outputs that lie over inputs.
        """
        ...
