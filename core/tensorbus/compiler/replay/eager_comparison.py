"""Measured calls of a cache entry beside the same calls in Python: the faster way is kept.

A few calls that users make anyway go one way or the other, in turns, and each happens once: results, effects,
gradients and random numbers are the same either way. They are timed with all that they queue on the device.
Nothing is measured after the decision, which is made once for each set of guards.

Forward and backward belong together. Where a call returns what has a history, the calls up to the first
backward pass, and all passes that begin before the next call, are one turn: its cost is that of a call with
its share of these passes.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from statistics import fmean, median
from threading import get_ident
from typing import Any, Final, TypeVar

from ...autograd import engine
from ...devices.device import Device
from ...errors import DeviceError
from ...system import fork_safe_locks
from ...tracing.active_tracer import active_tracer
from ..programs import one_time_work

T = TypeVar("T")

clock: Callable[[], float] = time.perf_counter
"""Seconds; tests put their own here."""
WARM_UP: Final = (False, False, True)
"""Which of the first turns, whose times do not count, Python takes: caches fill, kernels are compiled."""
FEW_PAIRS: Final = 3
"""The number of pairs of turns after which a clear advantage of the program decides."""
PAIRS, PAIRS_OF_SHORT_CALLS = 7, 15
"""The number of pairs of turns that are measured at most: for long calls, and for short ones."""
IN_DOUBT: Final = 3
"""How many times as many pairs of calls that vary are measured while their median and shorter half differ."""
SHORT_CALL_SECONDS: Final = 1e-3
"""Below how many seconds a call is measured in more pairs."""
MAX_CALLS: Final = 8
"""The number of calls that a turn waits for a backward pass; then backward does not count."""
CLEAR: Final = 2.0
"""By how many times the program has to be faster than any call of Python's for one pair to decide."""
WARM_UP_TIMES, LONG_CALL_SECONDS = 10.0, 0.1
"""By how many times the program has to be faster to decide in the warm-up, which has one call of Python only:
of so many seconds at least. A short one may have waited for the processor, or for kernels to be compiled."""
WORTHWHILE: Final = 0.95
"""Python takes over where it needs at most this part of the program's time."""
DETOUR: Final = 1e-6
"""The seconds that a call needs to find out that Python runs it."""

eager_threads: Final[set[int]] = set()
"""The threads in which Python runs a call that is measured: what it calls is not captured meanwhile."""


class EagerComparison:
    """The turns of one cache entry: ``eager_wins`` once it is known, None before.

    ``devices`` are waited for around the measured calls. ``has_history``: results may be differentiated.
    ``decided`` is called with the decision. ``arguments_vary``: no guards say what calls have in common, so a
    few may have less to do than others. ``steady_only``: a call of ``run`` within which something was
    captured, compiled or measured does not count; ``is_steady`` says of the last one that nothing was.
    """

    __slots__ = (
        "__weakref__", "_arguments_vary", "_calls", "_decided", "_devices", "_is_eager", "_lock", "_passes",
        "_seconds", "_spent", "_started", "_thread", "_turn", "_watch", "_with_backward", "_work_before",
        "eager_wins", "is_steady", "steady_only",
    )  # fmt: skip

    def __init__(
        self, devices: Sequence[Device], has_history: bool, decided: Callable[[bool], object],
        arguments_vary: bool = False, steady_only: bool = False,
    ) -> None:  # fmt: skip
        self._arguments_vary, self.steady_only = arguments_vary, steady_only
        self._devices, self._with_backward, self._decided = tuple(devices), has_history, decided
        self.eager_wins: bool | None = None
        self._seconds: tuple[list[float], list[float]] = ([], [])
        """Of a call by the program, and by Python: the warm-up's first."""
        self._turn = self._calls = self._passes = self._work_before = 0
        self._spent = self._started = 0.0
        self._is_eager, self.is_steady = False, True
        self._thread: int | None = None
        """The thread whose call is being measured."""
        self._watch: Any = None
        self._lock = fork_safe_locks.simple()

    def begin(self) -> bool | None:
        """Return whether Python is to take the next call; None: this call is not measured.

        A measured one ends with ``finish`` or ``abandon``.
        """
        if get_ident() in eager_threads or not self._lock.acquire(blocking=False):
            return None
        if self._passes:
            self._end_turn()
        if self.eager_wins is not None:
            self._lock.release()
            return None
        self._thread, self._is_eager = get_ident(), self._is_eager_turn()
        return self._is_eager

    def start(self) -> None:
        """Start the clock."""
        self._work_before = one_time_work.count()
        self._wait()
        self._started = clock()

    def is_measuring(self) -> bool:
        """Return whether a call of this thread is being measured."""
        return self._thread == get_ident()

    def run_in_python(self, function: Callable[[], T]) -> T:
        """Return ``function()``: Python's turn, or what a program left to Python, whose time counts too."""
        me = get_ident()
        try:
            if self._is_eager:
                self.start()
                eager_threads.add(me)
            result = function()
        except BaseException:
            self.abandon()
            raise
        finally:
            eager_threads.discard(me)
        self.finish()
        return result

    def finish(self) -> None:
        """Stop the clock and count the call."""
        if self.steady_only:
            self.is_steady = one_time_work.count() == self._work_before
            if not self.is_steady:
                self.abandon()
                return
        try:
            self._wait()
            self._spent += clock() - self._started
            self._calls += 1
            if self._with_backward and self._calls == MAX_CALLS:
                self._with_backward = False
            if not self._with_backward:
                self._end_turn()
            elif self._watch is None:
                self._watch = weakref.WeakMethod(self._watch_pass, engine.pass_watchers.remove)
                engine.pass_watchers.append(self._watch)
        finally:
            one_time_work.note()
            self.abandon()

    def abandon(self) -> None:
        """End the measurement of a call without counting it."""
        self._thread = None
        self._lock.release()

    def keep_program(self) -> None:
        """Decide for the program: Python's turns change what later calls find."""
        self._decide(False)

    def run(self, compiled: Callable[[], T], eager: Callable[[], T]) -> T:
        """Return what one of two functions does that do the same; a measured call in its turn."""
        is_eager = self.begin()
        if is_eager is None:
            return (eager if self.eager_wins else compiled)()
        if is_eager:
            return self.run_in_python(eager)
        try:
            self.start()
            result = compiled()
        except BaseException:
            self.abandon()
            raise
        self.finish()
        return result

    @property
    def seconds(self) -> tuple[float, float]:
        """The seconds of a call, compiled and in Python, as far as they are known."""
        every = zip(self._counted(), self._seconds, strict=True)
        compiled, eager = (median(counted or warm[-1:] or [0.0]) for counted, warm in every)
        return compiled, eager

    def __str__(self) -> str:
        compiled, eager = self.seconds
        passes = " with backward" if self._with_backward else ""
        return f"a call{passes} takes {compiled * 1e6:.0f} us compiled and {eager * 1e6:.0f} us in Python"

    def _is_eager_turn(self) -> bool:
        """Return whether Python takes this turn: behind the warm-up one of each two (Thue-Morse).

        A drift hits both ways alike, and so does what comes again with every second or fourth call.
        """
        late = self._turn - len(WARM_UP)
        return WARM_UP[self._turn] if late < 0 else late.bit_count() % 2 == 1

    def _counted(self) -> tuple[list[float], list[float]]:
        compiled, eager = self._seconds
        return compiled[WARM_UP.count(False) :], eager[WARM_UP.count(True) :]

    def _watch_pass(self) -> Callable[[], None] | None:
        """Begin to measure a backward pass; return what ends that.

        A capture only records the pass, and what a device does to wait would be taken for the function's.
        """
        if active_tracer() is not None:
            return None
        if get_ident() in eager_threads or self._thread is not None:
            return None  # one within a call, which is measured anyway
        if not self._is_idle():
            return None
        began = clock()

        def end() -> None:
            if self._is_idle():
                self._spent += clock() - began
                self._passes += 1

        return end

    def _wait(self) -> None:
        for device in self._devices:
            device.synchronize()

    def _is_idle(self) -> bool:
        """Wait for the devices; return false where one is gone, which a pass on another is not to hear of."""
        try:
            self._wait()
        except DeviceError:
            return False
        return True

    def _end_turn(self) -> None:
        """Note what a call of this turn took, and decide if that is enough."""
        if self._watch is not None:
            engine.pass_watchers.remove(self._watch)
            self._watch = None
        self._seconds[self._is_eager_turn()].append(self._spent / self._calls)
        self._turn += 1
        self._calls = self._passes = 0
        self._spent = 0.0
        python = min(self._seconds[True], default=0.0)  # waiting makes a call longer, and never shorter
        if self._turn == len(WARM_UP):
            if python > max(WARM_UP_TIMES * self._seconds[False][-1], LONG_CALL_SECONDS):
                self._decide(False)
            return
        compiled, eager = self._counted()
        if not eager or len(eager) != len(compiled):
            return
        ratios = [(e + DETOUR) / max(c, 1e-9) for c, e in zip(compiled, eager, strict=True)]
        count = PAIRS if min(compiled) > SHORT_CALL_SECONDS else PAIRS_OF_SHORT_CALLS
        is_clear, few = python > CLEAR * min(compiled), FEW_PAIRS
        if self._arguments_vary:  # the two calls of a pair may differ in their work
            is_clear, few = len(ratios) >= FEW_PAIRS and python > CLEAR * max(compiled), count
        if is_clear or (len(ratios) >= few and min(ratios) > 1.0 and python > min(compiled)):
            self._decide(False)
        elif len(ratios) >= count:
            middle = median(ratios) if not self._arguments_vary else median(eager) / median(compiled)
            undisturbed = (_undisturbed(eager) + DETOUR) / max(_undisturbed(compiled), 1e-9)
            if not self._arguments_vary:
                self._decide(max(middle, undisturbed) < WORTHWHILE)
            elif (middle < WORTHWHILE) == (undisturbed < WORTHWHILE) or len(ratios) >= IN_DOUBT * count:
                self._decide((middle + undisturbed) / 2 < WORTHWHILE)

    def _decide(self, eager_wins: bool) -> None:
        self.eager_wins = eager_wins
        decided, self._decided = self._decided, _nothing
        decided(eager_wins)


def _undisturbed(seconds: list[float]) -> float:
    """Return what a call takes that waits for nothing: the mean of the shorter half of them.

    It is not the least: where arguments differ from call to call, one may have much less to do than others.
    """
    return fmean(sorted(seconds)[: (len(seconds) + 1) // 2])


def _nothing(_: bool) -> None:
    """Take the place of what was told a decision, and may hold much."""
