"""``init``: reads which rank this process is from what started it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Final, NamedTuple

from ... import plugins
from ...backend_interface.communication import Store
from ...errors import ArgumentError, DistributedError
from ...ops.call_errors import with_signature
from ..process_group.selection import check_preferred
from ..process_group.unreturned_calls import limited
from ..process_group.watch import watch
from ..process_group.world import (
    DEFAULT_TIMEOUT,
    World,
    check_no_rank,
    seconds,
    set_process_world,
    times_joined,
)
from ..stores.limited_store import LimitedStore
from ..stores.memory_store import MemoryStore
from ..stores.prefix_store import PrefixStore
from ..stores.urls import default_store_url, open_store

_LAUNCHERS: Final = (
    # rank, size, rank on the machine
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),  # tensorbus run, torchrun
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),  # MPICH
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),  # Open MPI
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),  # Slurm's srun
)


_LAST_PORT: Final = 65535
_SLURM_PORTS: Final = range(20000, 30000)
"""Below those that systems lend to connections."""


class Launched(NamedTuple):
    """A launcher's account of this process."""

    rank: int
    size: int
    local_rank: int
    store: str


def launched(environment: Mapping[str, str], stated: bool = False) -> Launched | None:
    """Return what the launcher put into the environment; None where the program was started alone.

    Raises ``ArgumentError`` where a variable is no number, or nothing but one of ``RANK`` and ``WORLD_SIZE``
    is there, unless rank and size are ``stated`` elsewhere.

    >>> launched({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "node1", "MASTER_PORT": "29500"})
    Launched(rank=1, size=2, local_rank=1, store='tcp://node1:29500')
    """
    for names in _LAUNCHERS:
        if names[0] in environment and names[1] in environment:
            numbers = []
            for name, default in zip(names, ("0", "1", environment[names[0]]), strict=True):
                text = environment.get(name, default)
                if not text.isdecimal():
                    raise ArgumentError(
                        f"distributed: {name} must be a number in the environment, got {text!r}."
                    )
                numbers.append(int(text))
            return Launched(numbers[0], numbers[1], numbers[2], _store_url(environment))
    if not stated and ("RANK" in environment) != ("WORLD_SIZE" in environment):
        there, missing = ("RANK", "WORLD_SIZE") if "RANK" in environment else ("WORLD_SIZE", "RANK")
        raise ArgumentError(
            f"distributed: {there}={environment[there]!r} is in the environment and {missing} is not: what"
            f" starts the ranks sets both. Set {missing} too, or unset {there} for a program of one rank."
        )
    return None


def _store_url(environment: Mapping[str, str]) -> str:
    url = environment.get("TENSORBUS_STORE", "")
    if url or not environment.get("MASTER_ADDR"):
        return url
    text = environment.get("MASTER_PORT", "29500")
    if not text.isdecimal() or not 0 < int(text) <= _LAST_PORT:
        raise ArgumentError(
            f"distributed: MASTER_PORT must be a port, 1 to {_LAST_PORT}, in the environment, got {text!r}."
        )
    port = int(text)
    if environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True":  # torchrun serves a store there itself
        port = port % _LAST_PORT + 1
    host = environment["MASTER_ADDR"]
    return f"tcp://[{host}]:{port}" if host.count(":") > 1 and host[0] != "[" else f"tcp://{host}:{port}"


def _slurm_store_url(environment: Mapping[str, str], rank: int) -> str:
    """Return a store on the first machine of the job's step, where ``srun`` starts rank 0; else "".

    Steps that run at a time have ports of their own, most often: it is made of the numbers of job and step.
    """
    nodes, job = environment.get("SLURM_STEP_NODELIST", ""), environment.get("SLURM_JOB_ID", "")
    step = environment.get("SLURM_STEP_ID", "0")
    if environment.get("SLURM_PROCID") != str(rank) or not nodes or not (job + step).isdecimal():
        return ""
    if "tcp" not in plugins.store_schemes():
        return ""
    first = re.match(r"(?:\[[^\]]*\]|[^,\[])*", nodes)
    host = re.sub(r"\[(\d+)[^\]]*\]", r"\1", first[0] if first else nodes)  # node[03-07,9] begins with node03
    return f"tcp://{host}:{_SLURM_PORTS.start + (31 * int(job) + int(step)) % len(_SLURM_PORTS)}"


_open: Final[dict[tuple[int, str], Store]] = {}
"""Stores by process and URL: after another ``init`` the ranks meet where rank 0 serves still."""


def _opened(url: str, serve: bool, timeout: float) -> Store:
    here = os.getpid(), url
    if here not in _open:
        _open[here] = open_store(url, serve=serve, timeout=timeout)
    return _open[here]


def _looked_after(store: Store, rank: int, timeout: float) -> Store:
    """Return a store that ends the rank where it does not keep its limits, unless nobody waits there."""
    is_own = isinstance(store, MemoryStore) or getattr(store, "alone", False)
    return store if is_own else LimitedStore(store, rank, timeout)


def _joined(store: Store, rank: int, size: int) -> Store:
    """Return the part of a store that this program has for itself, of which ``rank`` is one.

    A process that is a rank for a second time meets the others apart from the first. So do ranks of another
    number, which may be some of those that were here, or more. Raises
    ``DistributedError`` where the rank is there already: keys that another program left would be taken for
    those of this one.
    """
    if isinstance(store, MemoryStore):
        raise ArgumentError(
            f"distributed: rank {rank} of {size} would meet the others at memory://, which no other process"
            f" sees. It is for run_ranks(function, {size}); processes meet at tcp://host:port or"
            f" file:///a/path."
        )
    store = PrefixStore(f"{size} ranks, init {times_joined(size)}/", store)
    if store.add(f"joined/{rank}", 1) != 1:
        raise DistributedError(
            f"distributed: rank {rank} of {size} has joined at this store already: an earlier program has"
            f" left its keys there, or another one runs that meets there too. Each program needs a store of"
            f" its own: a new file for file://, another ?prefix= for redis://, another port for tcp://."
        )
    return store


def _check_size(store: Store, rank: int, size: int) -> None:
    """Raise ``DistributedError`` where ranks that meet were started as other numbers: each would wait."""
    theirs = store.compare_set("ranks started", b"", str(size).encode()).decode()
    if theirs != str(size):
        raise DistributedError(
            f"distributed: rank {rank} was started as one of {size} ranks, and another that meets here, or"
            f" has met here before, as one of {theirs}: all ranks of a program need the same number. Start"
            f" all by one launcher, or set WORLD_SIZE alike; each program needs a store of its own."
        )


@with_signature
def init(
    *, rank: int | None = None, world_size: int | None = None, store: Store | str | None = None,
    timeout: float | timedelta = DEFAULT_TIMEOUT, prefer: str | None = None,
) -> None:  # fmt: skip
    """Make this process a rank of the program that it was started in.

    Rank, number of ranks and store are read from what started the process: ``tensorbus run``, ``mpiexec``,
    ``srun``, or ``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR`` and ``MASTER_PORT`` as torchrun sets them;
    arguments come before them. Alone it is rank 0 of 1. ``store`` is a ``Store`` or a URL of one. No backend
    is named: what connects the ranks is chosen by the tensors' devices, ``prefer`` first. ``timeout`` is the
    seconds that a collective waits for other ranks.

    Raises ``DistributedError`` where the process is a rank already or the ranks cannot meet,
    ``ArgumentError`` for numbers that do not fit.

    >>> import tensorbus as tb
    >>> tb.distributed.init()
    >>> tb.distributed.get_rank(), tb.distributed.get_world_size()
    (0, 1)
    >>> tb.distributed.shutdown()
    """
    check_preferred(prefer)
    check_no_rank()
    timeout = seconds(timeout)
    if (rank is None) != (world_size is None):
        raise ArgumentError("distributed: rank and world_size are given together, or neither.")
    launched_as = launched(os.environ, rank is not None) or Launched(0, 1, 0, _store_url(os.environ))
    number, size = (
        launched_as.rank if rank is None else rank,
        launched_as.size if world_size is None else world_size,
    )
    if size < 1 or not 0 <= number < size:
        raise ArgumentError(f"distributed: rank {number} of {size} ranks; it must be 0 to {size - 1}.")
    where = launched_as.store if store is None else store
    if not where and size > 1:
        where = default_store_url(os.environ) or _slurm_store_url(os.environ, number)
    opened: Store
    serve = False
    if not isinstance(where, str):
        opened = _looked_after(where, number, timeout)
    elif size == 1 and not where:
        opened = MemoryStore()
    elif not where:
        raise DistributedError(
            f"distributed: rank {number} of {size} does not know where the ranks meet. Start the program by"
            f" `tensorbus run`, set MASTER_ADDR and MASTER_PORT, or pass store='tcp://host:port'."
        )
    else:
        serve = "TENSORBUS_STORE_SERVED" not in os.environ
        with limited(f"rank {number}: the opening of a store of {where.partition(':')[0]}://", timeout):
            opened = _opened(where, serve and number == 0, timeout)
        opened = _looked_after(opened, number, timeout)
        attempt = os.environ.get("TENSORBUS_RESTART", "0")
        if attempt != "0":  # what ranks wrote before they were started again is in nobody's way
            opened = PrefixStore(f"restart {attempt}/", opened)
    if size > 1 and not getattr(opened, "alone", False):
        if rank is None:
            _check_size(opened, number, size)
        opened = _joined(opened, number, size)
    world = World(number, size, opened, timeout=timeout, local_rank=launched_as.local_rank, prefer=prefer)
    world.is_served = isinstance(where, str) and serve
    set_process_world(world)
    if size > 1:
        watch(world)  # which gives signs of life from now on
