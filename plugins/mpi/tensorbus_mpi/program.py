"""The MPI program that this process is part of: whether it is of one, and how it ends.

MPI is started by the first import of ``mpi4py.MPI``, which happens here and nowhere else.
"""

from __future__ import annotations

import atexit
import ctypes
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
_LAST_SECONDS: Final = 10.0
"""How long the end of a program may wait until what it has sent is received."""
_lock: Final = threading.Lock()
_is_watched: list[bool] = []


def is_started_by_mpi(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether what started this process makes MPI programs; MPI is not started for that."""
    return any(name in environment for name in _VARIABLES)


def mpi() -> Any:
    """Return the module ``mpi4py.MPI``, MPI being started. Raises ``DistributedError`` where it cannot be."""
    with _lock:
        try:
            ends_here = _leave_the_end_to_us()
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
            if ends_here:
                atexit.register(_end, MPI, os.getpid())
            elif hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=lambda: atexit.register(_say_how_a_child_ends))
    return MPI


def _leave_the_end_to_us() -> bool:
    """Have mpi4py not end MPI by itself, and return whether that is so.

    It would in forked children too, which are none of the program: MPI crashes there, or hangs. It is too
    late where somebody else has imported it, and no matter of ours where that is to end MPI.
    """
    import mpi4py

    if "mpi4py.MPI" in sys.modules or mpi4py.rc.finalize is not None:
        return False
    mpi4py.rc.finalize = False
    return True


def _end(module: Any, rank: int) -> None:
    """Let MPI end once Python has, whose threads may call it until then, if this is the process ``rank``."""
    if os.getpid() != rank or module.Is_finalized():
        return
    try:
        finalize = ctypes.CDLL(module.__file__).MPI_Finalize  # of the library that it is linked with
        is_known = ctypes.pythonapi.Py_AtExit(ctypes.cast(finalize, ctypes.c_void_p)) == 0
    except (AttributeError, OSError):
        is_known = False
    if not is_known:
        from .outbox import outbox

        outbox.flush(_LAST_SECONDS)
        module.Finalize()


def _say_how_a_child_ends() -> None:
    """Say what comes next, in a forked child that ends as a program does: a second end of the rank's MPI."""
    print(
        f"process {os.getpid()} was forked from a rank of an MPI program, and ends as the rank itself would:"
        f" MPI may fail or hang by that, as mpi4py was imported before the rank communicated. Leave by"
        f" os._exit(), as multiprocessing's children do, or start the process by subprocess or"
        f" multiprocessing's 'spawn'.",
        file=sys.stderr, flush=True,
    )  # fmt: skip


def _end_with_the_first_error(module: Any) -> None:
    """End all ranks when this one ends by an exception, which is shown first."""
    show, process = sys.excepthook, os.getpid()

    def end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        show(kind, error, trace)
        if os.getpid() != process:  # forked from the rank
            return
        if not module.Is_finalized() and module.COMM_WORLD.Get_size() > 1:
            rank = module.COMM_WORLD.Get_rank()
            print(f"rank {rank} ended by this error, and all others with it.", file=sys.stderr)
            sys.stdout.flush()
            sys.stderr.flush()
            time.sleep(_FORWARD_SECONDS)
            module.COMM_WORLD.Abort(130 if issubclass(kind, KeyboardInterrupt) else 1)

    sys.excepthook = end
