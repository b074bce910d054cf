"""The protocols of communicators, of what makes them, and of the store where ranks meet.

A communicator is a plugin as a device is. Its methods take and return tensors without history, return when
the result may be used as any other tensor, and are called by all ranks of the group in the same order; core
gives them their order, handles, time limits, records and derivatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

REDUCTIONS: Final = ("sum", "product", "min", "max", "bitwise_and", "bitwise_or", "bitwise_xor")
"""What communicators combine the ranks' values by. Averages are core's affair."""

Shape = tuple[int, ...]
T = TypeVar("T")
"""A tensor. This module lies below them."""


class Store(Protocol):
    """A small table of bytes that all ranks see. Keys are text; waiting has a limit in seconds.

    One with a true attribute ``alone`` says that no other rank is there.
    """

    def set(self, key: str, value: bytes) -> None:
        """Put ``value`` under ``key``, in the place of what was there."""
        ...

    def get(self, key: str, timeout: float | None = None) -> bytes:
        """Wait until ``key`` is there and return its value. Raises ``DistributedTimeoutError``."""
        ...

    def add(self, key: str, amount: int) -> int:
        """Add to the number under ``key``, 0 where there is none, and return the sum: one step for all."""
        ...

    def wait(self, keys: Sequence[str], timeout: float | None = None) -> None:
        """Wait until all keys are there. Raises ``DistributedTimeoutError`` naming those that are not."""
        ...

    def check(self, keys: Sequence[str]) -> bool:
        """Return whether all keys are there now."""
        ...

    def compare_set(self, key: str, expected: bytes, value: bytes) -> bytes:
        """Put ``value`` where ``expected`` is there (b"": nothing is), and return what is there then."""
        ...

    def delete_key(self, key: str) -> bool:
        """Take the key out; return whether it was there."""
        ...


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """A group that meets: its ``name``, unique in the program; its ``ranks``; the place of this one."""

    name: str
    ranks: tuple[int, ...]
    rank: int
    """The place of this rank in the group: ``ranks[rank]`` is its number in the program."""
    store: Store
    timeout: float
    """Seconds that a collective waits for the other ranks."""
    threads: bool = False
    """Whether the ranks are threads of this process."""

    @property
    def size(self) -> int:
        """The number of ranks of the group."""
        return len(self.ranks)


class Communicator(Protocol[T]):
    """One rank's end of a group. Results are tensors of its own, on the device of what it was given.

    Each method raises ``DistributedTimeoutError`` where a rank does not come in time, ``DistributedError``
    where the group was aborted. Where ranks ask for different things none hangs, and none has a value that it
    has not asked for: it gets a ``DistributedError`` by the communicator, which sees that, or by core. Of
    communicators that ``queue`` core compares what ranks have asked for before a value is read.

    Messages keep their order between two ranks in one direction. ``send`` and ``receive`` may be called in
    other threads while a collective, or a message to or from another rank, waits; but where it ``queues``.

    One that works on devices with streams may have ``queues = True``: its methods, ``barrier`` too, give
    their work to the stream that is current on the tensors' device, and return without waiting for it. Core
    then waits where somebody has to, and calls ``abort`` at the end of a call's time. Such a one may have a
    method ``problem()``, asked from time to time and whenever the host has waited for the device, which
    returns what has failed, as its library tells or as it sees itself, or "".

    Any may have ``expect(label)``, called right before a collective whose ranks say what they communicate,
    such as the names of parameters, which may be of one shape and dtype on ranks that mean different ones. It
    compares the label with what else all ranks ask for alike. Of one without it core compares labels where a
    value is read, if the communicator ``queues`` and the device can tell (``SupportsReadChecks``), else
    among ranks that wait, and in barriers.

    Any may have ``prepare(device)``, called by all ranks before the first call with the device of its
    tensors: what connecting takes there is not counted as waiting.

    Any may have ``all_gather_flat(x, shapes)``, which returns the ranks' elements in C order, one rank behind
    the other, as one tensor of one axis: where results are joined along the first axis nothing is copied.
    And ``reduce_scatter_flat(x, reduction)``, which takes the ranks' parts, all of one size, so joined, and
    returns this rank's as a tensor of one axis; ``reduce_scatter_uneven(x, reduction, sizes)`` takes parts of
    other sizes, whose elements ``sizes`` says.

    Any may have messages with tags, and from any rank: ``post_receive(source, tag)`` asks for one, with None
    for any rank, waits for nobody, and returns what ``complete_receive(posted, like)`` then waits by, which
    returns the tensor and its sender; core posts in the order in which the program asks. ``send(x, to, tag)``
    has a third argument then, 0 where there is none, and waits for nobody. A ``Mailbox`` matches messages and
    receives.

    Any other may have ``exchange(sends, receives)``: messages of which none waits for another, as pairs of a
    tensor and a rank, those to receive like ``receive`` has them; it returns what was received. Core sends
    and receives one after the other where both are missing, in an order that cannot hang.

    One that ``queues`` may have ``is_capturable = True``, and then has ``all_gather_into(x, sizes, out)``,
    ``all_reduce_into(x, reduction, out)``, ``reduce_scatter_into(x, reduction, sizes, out)`` and
    ``broadcast_into(x, root, out)``; ``sizes`` are the elements of each rank's part, which lie one behind the
    other. Each returns a function that gives the work to the current stream, or None where it cannot be done
    so; its result is in the memory of ``out``, which lies in C order. The device may record that work, and
    run it many times: the host takes no part in it, and to other ranks it is the same as work that is not
    recorded. With ``in_place = True`` the ``out`` of ``all_reduce_into`` may be ``x`` itself.
    """

    def all_reduce(self, x: T, reduction: str) -> T:
        """Return the combination of all ranks' ``x``; ``reduction`` is one of ``REDUCTIONS``."""
        ...

    def all_gather(self, x: T, shapes: Sequence[Shape]) -> list[T]:
        """Return every rank's tensor; ``shapes`` are theirs in order of rank."""
        ...

    def reduce_scatter(self, xs: Sequence[T], reduction: str) -> T:
        """Return the combination of what all ranks have at this rank's place of ``xs``."""
        ...

    def all_to_all(self, xs: Sequence[T], shapes: Sequence[Shape]) -> list[T]:
        """Send ``xs[k]`` to rank k and return what each rank sent here, whose shapes are ``shapes``."""
        ...

    def broadcast(self, x: T, root: int) -> T:
        """Return rank ``root``'s ``x``; on other ranks ``x`` says shape, dtype and device only."""
        ...

    def send(self, x: T, to: int) -> None:
        """Send ``x``; it may be changed when this returns."""
        ...

    def receive(self, like: T, source: int) -> T:
        """Return what rank ``source`` sends next; ``like`` says shape, dtype and device."""
        ...

    def barrier(self) -> None:
        """Wait for all ranks."""
        ...

    def abort(self, reason: str) -> None:
        """End what waits, with ``DistributedError`` saying ``reason``; called from another thread."""
        ...

    def close(self) -> None:
        """Give back what it holds. Nothing is called afterwards.

        Where the communicator queues, a thread of its own does it: a program waits for that a while only.
        """
        ...


class CommunicatorFactory(Protocol):
    """The factory that the hook ``tensorbus_communicator`` returns.

    It may have a number ``priority``, 0 where it has none: of several that connect the ranks the highest is
    taken, unless the user prefers another.
    """

    def verdict(self, device_type: str, rendezvous: Rendezvous) -> bool | str:
        """Return True where it connects tensors of the device type for these ranks, else the reason."""
        ...

    def connect(self, rendezvous: Rendezvous) -> Communicator[Any]:
        """Return this rank's end. All ranks of the group call it; raises ``DistributedError``."""
        ...


class StoreFactory(Protocol):
    """The factory that the hook ``tensorbus_store`` returns.

    It may have a method ``default_url(environment)``, which returns where the ranks of this process meet when
    nobody says so, or "" where it cannot tell; what starts the processes is read from the variables.
    """

    def open(self, url: str, *, serve: bool, timeout: float) -> Store:
        """Return the store of a URL. ``serve`` is True on one rank, which starts it where it needs a server.

        Raises ``ArgumentError`` for a URL that is no such store, ``DistributedError`` where it cannot be
        reached within ``timeout`` seconds.
        """
        ...
