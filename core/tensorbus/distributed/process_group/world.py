"""The program's rank, the number of ranks, its groups: one for a process, or for each thread of ranks."""

from __future__ import annotations

import atexit
import itertools
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from ...backend_interface.communication import Store
from ...devices.device import set_local_rank
from ...errors import ArgumentError, DistributedError
from ...random.generator import Generator, generator_of_thread
from ...system.rank_of_thread import rank_of_thread, set_rank_of_thread
from . import teardown
from .records import Record, Records
from .roll_call import RollCall

if TYPE_CHECKING:
    from .group import ProcessGroup

DEFAULT_TIMEOUT = 600.0
"""Seconds that a collective waits for other ranks."""
_LONGEST: Final = 2e6
"""Seconds that poll and its like can count, in milliseconds of 32 bits."""


def seconds(timeout: float | timedelta, what: str = "distributed") -> float:
    """Return a timeout that clocks can count, months at most. Raises ``ArgumentError`` for no number > 0.

    >>> seconds(timedelta(minutes=1))
    60.0
    """
    if isinstance(timeout, timedelta):
        timeout = timeout.total_seconds()
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not is_number or not timeout > 0:
        raise ArgumentError(
            f"{what}: timeout must be a number of seconds > 0, got {timeout!r}; float('inf') waits for"
            f" as long as it takes."
        )
    return min(float(timeout), _LONGEST)


class World:
    """A rank's view of the program: its number, how many there are, where they meet, its groups."""

    def __init__(
        self, rank: int, size: int, store: Store, *, timeout: float | timedelta = DEFAULT_TIMEOUT,
        local_rank: int | None = None, prefer: str | None = None, threads: bool = False,
    ) -> None:  # fmt: skip
        if not isinstance(size, int) or size < 1 or not isinstance(rank, int) or not 0 <= rank < size:
            raise ArgumentError(
                f"distributed: rank {rank!r} of {size!r} ranks; it must be 0 or more, and below their number."
            )
        self.rank, self.size, self.store = rank, size, store
        self.local_rank = rank if local_rank is None else local_rank
        self.timeout, self.prefer, self.threads = seconds(timeout), prefer, threads
        self.alone: bool = getattr(store, "alone", False)
        """Whether the other ranks are not there: calls wait for nobody, and run where they are made."""
        self.token = f"@{next(_numbers)}.{rank}" if threads else ""
        """What sets the names of its groups apart from those of other threads, or of what the process was."""
        self.generator = Generator()
        """What random functions draw from on a rank that is a thread: as the thread that starts the ranks."""
        self.generator.set_state(generator_of_thread().get_state())
        self.records = Records()
        self.groups: dict[str, ProcessGroup] = {}
        self.meshes: dict[int, Any] = {}
        """Meshes that tensors lie on, by the index of their pseudo device."""
        self.named_meshes: dict[Any, Any] = {}
        """Those of ``init_device_mesh``, by its arguments."""
        self.group_counts: dict[tuple[int, ...], int] = {}
        self.thread = threading.get_ident()
        """The thread of the program."""
        self.is_watched = False
        """Whether a thread looks at the calls of this rank; until it is closed."""
        self.stuck: DistributedError | None = None
        """Set where a call of this rank, which is a thread, does not return: nobody waits for it any more."""
        self.is_served = False
        """Whether rank 0 serves the store."""
        self.ended = ""
        """Why no group is made any more: what another rank, which is a thread too, has ended by."""
        self.roll_call = RollCall(self)

    def close(self, reason: str = "", left: str = "", is_failing: bool = False) -> None:
        """Give back what the groups hold; a ``reason`` is the error of what waits in them.

        Without one they do what was queued before, unless the program ``is_failing``.

        ``left`` tells ranks that still wait for this one why it does not come.
        """
        if not reason and not is_failing:
            self.drain()
        self.ended = self.ended or reason
        for group in list(self.groups.values()):
            group.close(reason, is_failing)
        teardown.wait()
        self.is_watched = False
        if left:  # now that all it had to send is sent
            self.leave(left)

    def drain(self) -> None:
        """Wait for all calls that were queued, as long as a call may take."""
        for group in list(self.groups.values()):
            group.drain()

    def leave(self, reason: str) -> None:
        """Tell the other ranks that this one takes no further part; if it serves the store, wait for them.

        A rank may still wait for an answer of the store, or be about to ask.
        """
        if self.size == 1:
            return
        self.roll_call.leave(reason)
        with suppress(DistributedError):
            gone, end = self.store.add("ranks/left", 1), time.monotonic() + _LINGER
            while self.is_served and self.rank == 0 and gone < self.size and time.monotonic() < end:
                time.sleep(_GLANCE)
                gone = self.store.add("ranks/left", 0)


_numbers = itertools.count(1)
_LINGER: Final = 5.0
_GLANCE: Final = 0.02
"""Seconds that the rank which serves the store stays for the others, and between two looks at who is left."""
_LONGEST_TEXT: Final = 1000
"""Letters of an exception's text that other ranks are told."""
_SHUT_DOWN: Final = "it called tensorbus.distributed.shutdown()"


class _Local(threading.local):
    world: World | None = None


_local = _Local()
_process: list[World] = []
"""The world of the process: empty or one."""
_again: list[str] = []
"""The token of its next world, if it had one: plans and programs know the ranks by the names of groups."""
_times: Final[Counter[int]] = Counter()
"""By number of ranks: how often the process was one of so many."""


_FORKED: Final = "this process was forked from process {}, which is a rank, and is none itself"
_parents: Final[list[int]] = []
"""The process that this one was forked from, if that was a rank."""


def _leave_to_parent() -> None:
    """Be no rank, in the child of a fork: its threads stayed behind, and others would take it for them."""
    if is_initialized():
        _parents[:] = [os.getppid()]
    for world in (_local.world, *_process):
        for group in list(world.groups.values()) if world is not None else ():
            group.leave_to_parent(_FORKED.format(os.getppid()))
    _local.world = None
    _process.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


def current() -> World:
    """Return the world of this thread, or of the process. Raises ``DistributedError`` where there is none."""
    if _local.world is not None:
        return _local.world
    if _process:
        return _process[0]
    if _parents and _parents[0] != os.getpid():
        raise DistributedError(
            f"{_FORKED.format(_parents[0])}: its connections are those of the other. Start it by"
            f" multiprocessing's 'spawn', or communicate in process {_parents[0]}."
        )
    raise DistributedError(
        "this program is no rank yet, or none any more: call tensorbus.distributed.init() first, or run a"
        " function on ranks that are threads by tensorbus.distributed.run_ranks(function, 4). A thread that"
        " such a rank starts is none."
    )


def is_available() -> bool:
    """Return True: every installation has what programs of several ranks need.

    >>> is_available()
    True
    """
    return True


def is_initialized() -> bool:
    """Return whether this thread, or the process, is a rank.

    >>> is_initialized()
    False
    """
    return _local.world is not None or bool(_process)


def check_no_rank() -> None:
    """Raise ``DistributedError`` where the process is a rank: before anything tells others of another one."""
    if _local.world is not None:
        raise DistributedError(
            f"distributed: this thread is rank {_local.world.rank} of {_local.world.size} already, as what"
            f" started it says; init() is for ranks that are processes."
        )
    if _process:
        raise DistributedError(
            f"distributed: this process is rank {_process[0].rank} of {_process[0].size} already; call"
            f" tensorbus.distributed.shutdown() before another init()."
        )


def set_process_world(world: World) -> None:
    """Make ``world`` that of the process. Raises ``DistributedError`` where there is one."""
    check_no_rank()
    world.token = _again.pop() if _again else ""
    _again.append(f"@{next(_numbers)}")
    _times[world.size] += 1
    if world.size > 1:
        _tell_of_errors()
    _process.append(world)
    if not world.alone:
        set_local_rank(world.local_rank)


def times_joined(size: int) -> int:
    """Return how often this process was a rank of ``size``, and has left."""
    return _times[size]


def shutdown() -> None:
    """Leave: close the groups of this rank, once what was queued is done. Without ranks nothing happens.

    While an error is on its way, as in ``finally``, nothing that was queued is waited for.

    >>> import tensorbus as tb
    >>> tb.distributed.init()
    >>> tb.distributed.shutdown()
    >>> tb.distributed.is_initialized()
    False
    """
    is_failing = sys.exc_info()[1] is not None
    if _local.world is not None:
        _local.world.close(left=_SHUT_DOWN, is_failing=is_failing)
        _local.world = None
    elif _process:
        set_local_rank(0)
        _process.pop().close(left=_SHUT_DOWN, is_failing=is_failing)


@atexit.register
def _leave() -> None:
    """Tell ranks that wait for this process that its program has ended, and by what."""
    teardown.leave()
    if _process:
        error = getattr(sys, "last_value", None)
        _process[0].leave("its program has ended" if error is None else _raised(error))


def _raised(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:
        text = "(its text cannot be made)"
    return f"it raised {type(error).__name__}: {text[:_LONGEST_TEXT]}".removesuffix(".")


def _tell_of_errors() -> None:
    """Tell the others of an exception that ends the program at once: its end may wait for threads of its own.

    In an interactive session an exception ends nothing.
    """
    if _hooked:
        return
    _hooked.append(show := sys.excepthook)

    def tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        show(kind, error, trace)
        if _process and not (sys.flags.interactive or hasattr(sys, "ps1")):
            _process[0].roll_call.leave(_raised(error))

    sys.excepthook = tell


_hooked: Final[list[Any]] = []


@contextmanager
def in_world(world: World) -> Iterator[None]:
    """Be a rank of ``world`` in this thread, inside the block."""
    before, _local.world = _local.world, world
    rank = rank_of_thread()
    if world.threads:
        set_rank_of_thread(world)
    try:
        yield
    finally:
        _local.world = before
        set_rank_of_thread(rank)


def get_rank(group: ProcessGroup | None = None) -> int:
    """Return the number of this rank: in the program, or in a group, -1 where it is not in that.

    Raises ``DistributedError`` where this program is no rank.

    >>> import tensorbus as tb
    >>> tb.distributed.run_ranks(tb.distributed.get_rank, 3)
    [0, 1, 2]
    """
    return current().rank if group is None else group.rank


def get_world_size(group: ProcessGroup | None = None) -> int:
    """Return how many ranks there are: in the program, or in a group, -1 where this one is not in that.

    Raises ``DistributedError`` where this program is no rank.

    >>> import tensorbus as tb
    >>> tb.distributed.run_ranks(tb.distributed.get_world_size, 2)
    [2, 2]
    """
    return current().size if group is None else group.size


def get_local_rank() -> int:
    """Return the number of this rank among those of its machine, which chooses its device.

    Raises ``DistributedError`` where this program is no rank.

    >>> import tensorbus as tb
    >>> tb.distributed.run_ranks(tb.distributed.get_local_rank, 2)  # threads are of one machine
    [0, 1]
    """
    return current().local_rank


def records() -> list[Record]:
    """Return what this rank communicated last, oldest first: operation, shapes, state, times.

    Raises ``DistributedError`` where this program is no rank.

    >>> import tensorbus as tb
    >>> def rank():
    ...     tb.distributed.all_reduce(tb.ones(2, device="cpu"))
    ...     return [(call.operation, call.shapes, call.state) for call in tb.distributed.records()]
    >>> tb.distributed.run_ranks(rank, 2)[0]
    [('all_reduce', ((2,),), 'done')]
    """
    return current().records.last()
