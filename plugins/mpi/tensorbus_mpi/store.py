"""The store of an MPI program's ranks: rank 0 serves it, and tells the others where by MPI."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Mapping
from typing import Any, Final

import tensorbus as tb
from tensorbus.backend_api import Store
from tensorbus.errors import DistributedError, DistributedTimeoutError

from .program import is_started_by_mpi, mpi
from .requests import wait

_LENGTH: Final = 512
_SECRET: Final = "TENSORBUS_STORE_SECRET"


class Factory:
    """Opens ``mpi://``, which is ``tcp://`` at an address that nobody has to know."""

    def default_url(self, environment: Mapping[str, str]) -> str:
        """Return the store that ranks meet at where none is named; "" outside of MPI programs."""
        return "mpi://" if is_started_by_mpi(environment) else ""

    def open(self, url: str, *, serve: bool, timeout: float) -> Store:
        """Return the store; all processes of the MPI program open it.

        Raises ``DistributedError`` where MPI cannot be started or the store not reached,
        ``DistributedTimeoutError`` where rank 0 does not come.
        """
        module = mpi()
        world = module.COMM_WORLD
        _check_size(world.Get_size(), os.environ)
        where, served, host = bytearray(_LENGTH), None, _host(module)
        host = f"[{host}]" if ":" in host else host
        if world.Get_rank() == 0:
            os.environ.setdefault(_SECRET, secrets.token_hex(16))
            served = tb.distributed.open_store(f"tcp://{host}:0", serve=True, timeout=timeout)
            text = f"{served.url} {os.environ[_SECRET]}"  # type: ignore[attr-defined]
            where[: len(text)] = text.encode()
        request = world.Ibcast([where, module.BYTE], 0)
        if not wait([request], time.monotonic() + timeout, lambda: None, [where]):
            raise DistributedTimeoutError(
                f"store mpi://: rank 0 of the MPI program did not call tensorbus.distributed.init() within"
                f" {timeout:g} seconds."
            )
        if served is not None:
            return served
        address, os.environ[_SECRET] = where.rstrip(b"\0").decode().split(" ")
        return tb.distributed.open_store(address, timeout=timeout)


def _check_size(size: int, environment: Mapping[str, str]) -> None:
    """Refuse an MPI that sees other processes than what has started them says there are."""
    for name in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE"):
        if environment.get(name, str(size)) != str(size):
            raise DistributedError(
                f"store mpi://: {name}={environment[name]}, and mpi4py sees {size} processes: mpiexec is"
                f" of another MPI than mpi4py. Use that of the same one, such as `pip install tensorbus[mpi]`"
                f" brings, or meet at tcp://host:port."
            )


def _host(module: Any) -> str:
    """Return the name by which the other ranks reach this machine: the loopback where all are on it."""
    if named := os.environ.get("TENSORBUS_HOST"):
        return named
    world = module.COMM_WORLD
    near = world.Split_type(module.COMM_TYPE_SHARED)
    alone = near.Get_size() == world.Get_size()
    near.Free()
    return "127.0.0.1" if alone else socket.gethostname()
