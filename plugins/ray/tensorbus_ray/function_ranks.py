"""``run_ranks``: a function on ranks of a Ray cluster, as ``tensorbus.distributed``'s is on threads."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tensorbus.backend_api import LaunchRequest, supervise
from tensorbus.errors import ArgumentError, DistributedError

from .cluster import import_ray
from .launcher import RayLauncher
from .options import Options

R = TypeVar("R")


def run_ranks(
    function: Callable[..., R],
    size: int,
    *args: Any,
    timeout: float = 300.0,
    prefer: str | None = None,
    max_restarts: int = 0,
    address: str | None = None,
    cpus: float = 1,
    gpus: int = 0,
    resources: Mapping[str, float] | None = None,
    strategy: str = "PACK",
    wait: float | None = None,
    working_dir: str | None = None,
) -> list[R]:
    """Call ``function(*args)`` on ``size`` ranks, each a process on a Ray cluster; return what each returned.

    Inside, ``get_rank()`` says which it is. What the ranks print is shown with their numbers. The first rank
    that raises ends the others, and its error is raised here with a note that names it and has its traceback;
    up to ``max_restarts`` times all are started again before. ``timeout`` is the seconds that a collective
    waits for other ranks.

    Each rank has ``cpus`` processors, ``gpus`` GPUs and the further ``resources``, on machines that
    ``strategy`` chooses: ``"PACK"``, few; ``"SPREAD"``, many; ``"STRICT_PACK"``, one; ``"STRICT_SPREAD"``,
    one for each rank. The cluster is the one this process is connected to, or at ``address``, in
    ``RAY_ADDRESS``, of this machine, or a new one here. ``wait`` is the seconds to wait for resources: 60 for
    busy ones, and none for those that the cluster does not have, unless a number is passed. ``working_dir``
    is copied to all machines.

    Raises ``ArgumentError`` for arguments that make no sense, ``DistributedError`` where the ranks cannot be
    started or one of them ends without a word.
    """
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ArgumentError(f"run_ranks: size must be an integer >= 1, got {size!r}.")
    options = Options(
        address=address, cpus=cpus, gpus=gpus, resources=dict(resources or {}), strategy=strategy, wait=wait,
        working_dir=working_dir,
    )  # fmt: skip
    cloudpickle = import_ray().cloudpickle
    try:
        payload = cloudpickle.dumps((function, args, {"timeout": timeout, "prefer": prefer}))
    except Exception as error:
        raise ArgumentError(
            f"run_ranks: {function!r} or its arguments cannot be pickled, which brings them to other"
            f" machines: {error}."
        ) from error
    launcher = RayLauncher(options, payload)
    request = LaunchRequest(command=(sys.executable, "-m", "tensorbus_ray.function_rank"), size=size)
    failed = supervise(launcher, request, max_restarts=max_restarts, report=False)
    if failed is None:
        return [_outcome(launcher, rank)[1] for rank in range(size)]
    where = launcher.places[failed.rank].address
    if launcher.outcomes.get(failed.rank) is None:
        lines = "".join(failed.last_lines) or "nothing\n"
        raise DistributedError(f"run_ranks: {failed}, at {where}. Its last lines:\n{lines}")
    _, raised, text = _outcome(launcher, failed.rank)
    raised.add_note(f"on rank {failed.rank} of {size}, at {where}:\n{text}")
    raise raised


def _outcome(launcher: RayLauncher, rank: int) -> tuple[str, Any, str]:
    outcome: tuple[str, Any, str] = pickle.loads(launcher.outcomes[rank] or b"")
    return outcome
