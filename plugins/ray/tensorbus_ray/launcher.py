"""Starts ranks as actors of a Ray cluster, each with a process of its own."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import tensorbus
from tensorbus.backend_api import Launcher, LaunchRequest, Show
from tensorbus.errors import DistributedError

from .cluster import connect, import_ray, reserve
from .options import MEANINGS, Options
from .rank_actor import PYTHON, Place, RankActor

_START_SECONDS: Final = 300.0
_END_SECONDS: Final = 15.0
_CALLS_AT_A_TIME: Final = 4
_OF_A_MACHINE: Final = (
    "TENSORBUS_CACHE_DIR",
    "TENSORBUS_HOST",
    "TENSORBUS_STORE",
    "TENSORBUS_STORE_SERVED",
    "TENSORBUS_STORE_SECRET",
)


class Factory:
    """Opens launchers for ``tensorbus run --launcher ray``."""

    options: Mapping[str, str] = MEANINGS

    def open(self, options: Mapping[str, str]) -> Launcher:
        """Return a launcher. Raises ``ArgumentError`` for options that make no sense."""
        return RayLauncher(Options.parse(options))


class RayLauncher:
    """Connects to the cluster at the first start, and stays connected until it is closed.

    ``function`` is what ranks run that are started for a function; ``outcomes`` what these have written.
    """

    def __init__(self, options: Options, function: bytes | None = None) -> None:
        self._options, self._function = options, function
        self._disconnect: Any = None
        self.outcomes: dict[int, bytes | None] = {}
        self.places: list[Place] = []

    def start(self, request: LaunchRequest, show: Show) -> RayRanks:
        """Start the ranks. Raises ``DistributedError`` where the cluster cannot be used or has no room."""
        if self._disconnect is None:
            self._disconnect = connect(self._options)
        self.outcomes.clear()
        ranks = RayRanks(self._options, self._function, self.outcomes, show)
        try:
            self.places = ranks.start(request)
        except import_ray().exceptions.RayError as error:
            ranks.end()
            raise DistributedError(
                f"launcher ray: the ranks cannot be started: {_reason(error)}. Each machine needs this"
                f" Python, with tensorbus and tensorbus-ray {tensorbus.__version__}."
            ) from error
        except BaseException:
            ranks.end()
            raise
        return ranks

    def close(self) -> None:
        """End the connection, and the cluster where it was started for this."""
        if self._disconnect is not None:
            self._disconnect()


class RayRanks:
    """The actors of one start. One thread uses it."""

    def __init__(
        self, options: Options, function: bytes | None, outcomes: dict[int, bytes | None], show: Show
    ) -> None:
        self._ray = import_ray()
        self._options, self._function, self._outcomes, self._show = options, function, outcomes, show
        self._group: Any = None
        self._actors: list[Any] = []
        self._codes: list[int | None] = []
        self._pending: dict[Any, int] = {}

    def start(self, request: LaunchRequest) -> list[Place]:
        """Place the actors, number them machine by machine, and start the process of each."""
        self._group = reserve(request.size, self._options)
        strategies = self._ray.util.scheduling_strategies
        remote = self._ray.remote(RankActor)
        for number in range(request.size):
            placed = strategies.PlacementGroupSchedulingStrategy(self._group, number)
            self._actors.append(
                remote.options(
                    num_cpus=self._options.cpus, num_gpus=self._options.gpus,
                    resources=dict(self._options.resources), max_concurrency=_CALLS_AT_A_TIME,
                    scheduling_strategy=placed,
                ).remote()
            )  # fmt: skip
        places: list[Place] = self._call("place")
        machines = list(dict.fromkeys(place.node for place in places))
        order = sorted(range(request.size), key=lambda number: machines.index(places[number].node))
        self._actors, places = [self._actors[n] for n in order], [places[n] for n in order]
        wrong = [place for place in places if place.version != tensorbus.__version__]
        if wrong:
            raise DistributedError(
                f"launcher ray: {wrong[0].address} has tensorbus {wrong[0].version}, this machine"
                f" {tensorbus.__version__}: install one version everywhere."
            )
        self._start_processes(request, places)
        self._codes = [None] * request.size
        self._pending = {actor.follow.remote(): number for number, actor in enumerate(self._actors)}
        return places

    def _start_processes(self, request: LaunchRequest, places: Sequence[Place]) -> None:
        secret = os.environ.get("TENSORBUS_STORE_SECRET") or secrets.token_hex(16)
        store = {"TENSORBUS_STORE": request.store or ""}
        if request.store is None:
            served = self._actors[0].serve.remote(places[0].address, secret)
            url = self._ray.get(served, timeout=_START_SECONDS)
            store = {"TENSORBUS_STORE": url, "TENSORBUS_STORE_SERVED": "1"}
        shared = {
            name: value
            for name, value in os.environ.items()
            if name.startswith("TENSORBUS_") and name not in _OF_A_MACHINE
        }
        command = request.command
        if command[0] == sys.executable:
            command = (PYTHON, *command[1:])
        folder = None if self._options.working_dir else os.getcwd()
        starts = []
        for number, (actor, place) in enumerate(zip(self._actors, places, strict=True)):
            here = [n for n, other in enumerate(places) if other.node == place.node]
            environment = {
                **shared, "RANK": str(number), "WORLD_SIZE": str(request.size),
                "LOCAL_RANK": str(here.index(number)), "LOCAL_WORLD_SIZE": str(len(here)),
                "TENSORBUS_HOST": place.address, "TENSORBUS_STORE_SECRET": secret, "PYTHONUNBUFFERED": "1",
                **store, **request.environment,
            }  # fmt: skip
            if place.gpus:  # a rank's GPU is the one of its number on the machine, as everywhere
                environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpu for n in here for gpu in places[n].gpus)
            starts.append(actor.start.remote(command, environment, folder, self._function))
        self._ray.get(starts, timeout=_START_SECONDS)

    def _call(self, method: str) -> list[Any]:
        calls = [getattr(actor, method).remote() for actor in self._actors]
        results: list[Any] = self._ray.get(calls, timeout=_START_SECONDS)
        return results

    def codes(self) -> Sequence[int | None]:
        """Show what the ranks have said; return their exit codes, None where one runs."""
        if self._pending:
            ready, _ = self._ray.wait(list(self._pending), num_returns=len(self._pending), timeout=0)
            for reference in ready:
                self._take(self._pending.pop(reference), reference)
        return self._codes

    def _take(self, number: int, reference: Any) -> None:
        actor = self._actors[number]
        try:
            lines, code = self._ray.get(reference)
            if code is not None and self._function is not None:
                self._outcomes[number] = self._ray.get(actor.outcome.remote())
        except self._ray.exceptions.RayError as error:
            self._show(number, f"the actor of the rank is gone: {_reason(error)}\n", True)
            self._codes[number] = 1
            return
        for line, wrong in lines:
            self._show(number, line, wrong)
        self._codes[number] = code
        if code is None:
            self._pending[actor.follow.remote()] = number

    def drain(self, number: int) -> None:
        """Nothing is left to show: an exit code comes behind the last line."""

    def end(self) -> None:
        """End the ranks that still run, and give the resources back."""
        with contextlib.suppress(Exception):  # an actor that is gone needs no end
            ends = [actor.end.remote() for actor in self._actors]
            if ends:
                self._ray.wait(ends, num_returns=len(ends), timeout=_END_SECONDS)
        for actor in self._actors:
            with contextlib.suppress(Exception):
                self._ray.kill(actor)
        if self._group is not None:
            with contextlib.suppress(Exception):
                self._ray.util.remove_placement_group(self._group)
            self._group = None


def _reason(error: Any) -> str:
    cause = getattr(error, "cause", None)
    return f"{type(cause).__name__}: {cause}" if isinstance(cause, BaseException) else str(error).strip()
