"""Selection of a communicator among those that are installed: by the ranks' devices, then by preference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ... import plugins
from ...backend_interface.communication import CommunicatorFactory, Rendezvous
from ...errors import ArgumentError, DistributedError
from .communicator_contract import verdict_of
from .host_staging import ALLOW


def best(
    types: Mapping[str, str], meeting: Rendezvous, prefer: str | None, only: str = ""
) -> tuple[str, CommunicatorFactory]:
    """Return what takes tensors of all ``types``: the preferred one first, then by their ``priority``.

    Where none does, what takes them on the device type that each may be copied to, "" for none. ``only`` is
    the one that it must be, "" for any.
    """
    check_preferred(prefer)
    offered = plugins.communicators()
    reasons = []
    order = [only] if only else _order(prefer)
    for name in order:
        refused = _refused(name, offered[name], types, meeting)
        if not refused:
            return name, offered[name]
        reasons.append(f"{name} does not ({'; '.join(refused)})")
    for name in order:
        factory = offered[name]
        through = [
            kind if verdict_of(name, factory, kind, meeting) is True else types[kind] for kind in types
        ]
        if all(through) and not _refused(name, factory, through, meeting):
            return name, offered[name]
    where = "threads of one process" if meeting.threads else "processes"
    raise DistributedError(
        f"distributed: nothing connects {len(meeting.ranks)} ranks that are {where} on"
        f" {', '.join(sorted(types))}: {'; '.join(reasons) or 'no communicator is installed'}. Install a"
        f" communicator for it, or move the tensors to a device that has one; {ALLOW}"
    )


def check_preferred(prefer: str | None) -> None:
    """Raise ``ArgumentError`` where no communicator has the name that is preferred."""
    if prefer is not None and prefer not in (offered := plugins.communicators()):
        raise ArgumentError(
            f"distributed: no communicator is called {prefer!r}. Installed: {', '.join(offered) or 'none'}."
        )


def _order(prefer: str | None) -> list[str]:
    """Return the names of communicators: the preferred one first, then by their ``priority``."""
    offered = plugins.communicators()
    return sorted(offered, key=lambda name: (name != prefer, -getattr(offered[name], "priority", 0)))


def by_preference(prefer: str | None, device_type: str, meeting: Rendezvous) -> Iterator[str]:
    """Yield the names of those that take tensors of a device type as they are, the best first."""
    offered = plugins.communicators()
    return (name for name in _order(prefer) if verdict_of(name, offered[name], device_type, meeting) is True)


def _refused(name: str, factory: CommunicatorFactory, types: Iterable[str], meeting: Rendezvous) -> list[str]:
    """Return what a communicator says of the device types that it does not take."""
    verdicts = {kind: verdict_of(name, factory, kind, meeting) for kind in sorted(set(types))}
    return [f"{kind}: {verdict}" for kind, verdict in verdicts.items() if verdict is not True]
