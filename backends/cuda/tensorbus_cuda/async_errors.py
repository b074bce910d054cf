"""Errors that a GPU tells of later than the calls they belong to, told with the work they may come from.

Some of them take the GPU's memory away from the process for good: each later use then says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import groupby
from types import TracebackType
from typing import Any, Final

from tensorbus.backend_api import DeviceError

FINAL: Final = {
    214: "the GPU's memory had an error that it could not correct",
    220: "a link between GPUs had an error that it could not correct",
    700: "a kernel read or wrote where it has no memory",
    702: "a kernel ran longer than this system lets it",
    710: "an assertion in a kernel was wrong",
    714: "a kernel's stack of calls was damaged",
    715: "a kernel came to an instruction that there is not",
    716: "a kernel read or wrote at an address that its width does not divide",
    717: "a kernel used memory of another kind than it has",
    718: "a kernel went on where there is no code",
    719: "a kernel stopped with an error, such as a trap",
    721: "a kernel failed",
}
"""What CUDA's errors mean behind which the process cannot use the GPU any more, by number."""
SHOWN: Final = 16
"""How many launches are remembered."""


class Failures:
    """The state of one GPU called ``name``: what was launched last, and whether it is lost.

    ``note(what)`` remembers a launch. It is called for each: it only appends to a list that forgets.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._launched: deque[str] = deque(maxlen=SHOWN)
        self.note: Callable[[str], None] = self._launched.append
        self.done: Callable[[], None] = self._launched.clear
        """Forgets the launches: they have all been waited for."""
        self.lost = ""
        """Why the GPU cannot be used any more; empty: it can."""

    def error(self, problem: object) -> DeviceError | None:
        """Return what to raise for a number of CUDA's or an exception with one; None where work can go on.

        >>> failures = Failures("cuda:0")
        >>> failures.error(2) is None
        True
        >>> failures.note("tb_scale")
        >>> str(failures.error(700)).partition(". ")[0]
        'cuda:0: a kernel read or wrote where it has no memory (error 700 of CUDA)'
        >>> "lost" in str(failures.error(2))
        True
        """
        if self.lost:
            return self.again()
        number = problem if isinstance(problem, int) else getattr(problem, "status", None)
        if number not in FINAL:
            return None
        before = [*self._launched]
        among = f"Launched last, in order: {listed(before)}." if before else "Nothing was launched since."
        self.lost = (
            f"{FINAL[number]} (error {number} of CUDA). {among} Which one it was shows a run in which each is"
            f" waited for: start the program with CUDA_LAUNCH_BLOCKING=1, or call synchronize() of the device"
            f" after each step. What lay on the GPU is gone: start the process again. Other devices can still"
            f" be used."
        )
        return DeviceError(f"{self.name}: {self.lost}")

    def again(self) -> DeviceError:
        """Return what to raise where a GPU that is lost is used."""
        return DeviceError(f"{self.name}: lost to this process, since work failed before. {self.lost}")


def listed(names: Sequence[str]) -> str:
    """Return names of kernels for people.

    >>> listed(["tb_add", "tb_add", "sum", "mine"])
    'add (2 times), sum, mine'
    """
    runs = [(name.removeprefix("tb_"), len([*same])) for name, same in groupby(names)]
    return ", ".join(name if count == 1 else f"{name} ({count} times)" for name, count in runs)


class Watch:
    """A context in which CUDA's final errors become those of ``failures``; within it a GPU is current.

    A GPU that is lost is not entered.
    """

    __slots__ = ("_failures", "_inner")

    def __init__(self, failures: Failures, inner: AbstractContextManager[Any]) -> None:
        self._failures, self._inner = failures, inner

    def __enter__(self) -> None:
        if self._failures.lost:
            raise self._failures.again()
        self._inner.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inner.__exit__(kind, error, trace)
        if error is not None and hasattr(error, "status"):
            late_error = self._failures.error(error)
            if late_error is not None:
                raise late_error from error
