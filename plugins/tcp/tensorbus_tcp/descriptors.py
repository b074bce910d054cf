"""The process's descriptors, as a server of thousands of connections needs them."""

from __future__ import annotations

import os

try:
    import resource
except ImportError:  # Windows has no such limit
    resource = None  # type: ignore[assignment]

_STANDARD = 3
_OTHERS = 64
"""Descriptors that the program may have beside those of clients."""


def hold_standard_streams() -> None:
    """Open the standard streams that are closed, to nowhere: libuv ends a process that has lent it one."""
    descriptor = os.open(os.devnull, os.O_RDWR)
    while descriptor < _STANDARD:
        descriptor = os.open(os.devnull, os.O_RDWR)
    os.close(descriptor)


def room_for(clients: int) -> None:
    """Raise the limit of descriptors where so many clients come near it, as far as the system allows."""
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or 2 * clients + _OTHERS < soft:
        return
    most = 4 * (clients + _OTHERS)
    limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
    if limit > soft:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        except (OSError, ValueError):  # the system knows a lower one
            return
