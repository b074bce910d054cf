"""The MPI program that this process is part of: whether it is of one, and how it ends.

MPI is started by the first import of ``mpi4py.MPI``, which happens here and nowhere else.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final

from tensorbus.errors import DistributedError

_VARIABLES: Final = ("PMI_SIZE", "PMIX_RANK", "OMPI_COMM_WORLD_SIZE")
"""Each is set by what starts processes of MPI programs: MPICH's and Intel's mpiexec, PMIx, Open MPI's."""
_FORWARD_SECONDS: Final = 0.5
"""What mpiexec gets to forward an error before the abort: what it has not read by then is lost."""
_lock: Final = threading.Lock()
_is_watched: list[bool] = []


def is_started_by_mpi(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether what started this process makes MPI programs; MPI is not started for that."""
    return any(name in environment for name in _VARIABLES)


def mpi() -> Any:
    """Return the module ``mpi4py.MPI``, MPI being started. Raises ``DistributedError`` where it cannot be."""
    with _lock:
        try:
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:
            raise DistributedError(
                f"mpi: MPI cannot be started: {error}. Install one: `pip install tensorbus-mpi[mpich]`."
            ) from error
        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            raise DistributedError(
                "mpi: this MPI serves one thread only, but handles of collectives need several. Leave"
                " mpi4py.rc.thread_level at 'multiple', and take an MPI that has it."
            )
        if not _is_watched:
            _is_watched.append(True)
            _end_with_the_first_error(MPI)
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=lambda: atexit.register(_say_how_a_child_ends))
    return MPI


def _say_how_a_child_ends() -> None:
    """Say what comes next, in a forked child that ends as a program does: a second end of the rank's MPI."""
    print(
        f"process {os.getpid()} was forked from a rank of an MPI program, and ends as the rank itself would:"
        f" MPI may fail or hang by that. Leave by os._exit(), as multiprocessing's children do, or start the"
        f" process by subprocess or multiprocessing's 'spawn'.",
        file=sys.stderr, flush=True,
    )  # fmt: skip


def _end_with_the_first_error(module: Any) -> None:
    """End all ranks when this one ends by an exception, which is shown first."""
    show = sys.excepthook

    def end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        show(kind, error, trace)
        if not module.Is_finalized() and module.COMM_WORLD.Get_size() > 1:
            rank = module.COMM_WORLD.Get_rank()
            print(f"rank {rank} ended by this error, and all others with it.", file=sys.stderr)
            sys.stdout.flush()
            sys.stderr.flush()
            time.sleep(_FORWARD_SECONDS)
            module.COMM_WORLD.Abort(130 if issubclass(kind, KeyboardInterrupt) else 1)

    sys.excepthook = end
