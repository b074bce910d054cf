"""The connection to a Ray cluster, and whether ranks fit on it."""

from __future__ import annotations

import logging
import math
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from tensorbus.errors import ArgumentError, DistributedError

from .options import Options

_REACH_SECONDS: Final = 10.0
"""How long an address may take to accept a connection; Ray itself would ask for a minute."""
_BUSY_SECONDS: Final = 60.0
_ROUNDING: Final = 1e-6


def import_ray() -> Any:
    """Return Ray. Raises ``DistributedError`` where it is not installed."""
    try:
        import ray
        import ray.util.placement_group
        import ray.util.scheduling_strategies
    except ImportError as error:
        raise DistributedError(
            f"launcher ray: Ray cannot be imported ({error}). Install it: pip install tensorbus[ray], on a"
            f" cluster in the release that the cluster runs."
        ) from error
    return ray


def connect(options: Options) -> Callable[[], None]:
    """Connect this process to the cluster; return what ends the connection.

    One that exists is used and stays. Raises ``DistributedError`` where the cluster cannot be reached.
    """
    ray = import_ray()
    if ray.is_initialized():
        if options.address or options.working_dir:
            raise ArgumentError(
                "launcher ray: this process is connected to a cluster already, so address and working_dir"
                " have no effect: pass them to ray.init, or call ray.shutdown() before."
            )
        return lambda: None
    address = options.address or os.environ.get("RAY_ADDRESS") or None
    _reach(address)
    environment = {"working_dir": options.working_dir} if options.working_dir else None
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(
            address=address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR,
            runtime_env=environment,
        )  # fmt: skip
    except Exception as error:
        where = f"the cluster at {address!r} cannot be used" if address else "no cluster can be started here"
        raise DistributedError(f"launcher ray: {where}: {error}") from error
    finally:
        if threading.current_thread() is threading.main_thread() and handler is not None:
            signal.signal(signal.SIGTERM, handler)  # which Ray has replaced
    shutdown: Callable[[], None] = ray.shutdown
    return shutdown


def _reach(address: str | None) -> None:
    place = re.fullmatch(r"\[?([\w.:-]+?)\]?:(\d+)", address or "")
    if place is None:
        return
    try:
        socket.create_connection((place[1], int(place[2])), timeout=_REACH_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise DistributedError(
            f"launcher ray: no cluster answers at {address!r}: {error}. `ray start --head` starts one and"
            f" says where it is."
        ) from error


def reserve(size: int, options: Options) -> Any:
    """Set resources aside for ``size`` ranks; return Ray's placement group, ready.

    Raises ``DistributedError`` where the cluster does not have them, or not in time.
    """
    ray = import_ray()
    if options.wait is None:
        _check_that_they_fit(size, options)
    group = ray.util.placement_group([options.needs] * size, strategy=options.strategy)
    limit = _BUSY_SECONDS if options.wait is None else options.wait
    end = time.monotonic() + limit
    ready = False
    try:
        while not (ready := group.wait(0.2)) and time.monotonic() < end:
            pass
    finally:
        if not ready:
            ray.util.remove_placement_group(group)
    if not ready:
        free = _text(ray.available_resources())
        raise DistributedError(
            f"launcher ray: {_asked(size, options)}, and within {limit:g} seconds they did not become free."
            f" Free now: {free}; the cluster has {_text(ray.cluster_resources())}. Wait longer with wait, or"
            f" ask for less."
        )
    return group


def _check_that_they_fit(size: int, options: Options) -> None:
    """Raise ``DistributedError`` where even all of the cluster's resources would not do."""
    ray = import_ray()
    nodes = [node for node in ray.nodes() if node["Alive"]]
    places = [_places(node["Resources"], options.needs) for node in nodes]
    if options.strategy == "STRICT_PACK":
        room = max(places, default=0)
    elif options.strategy == "STRICT_SPREAD":
        room = sum(place > 0 for place in places)
    else:
        room = sum(places)
    if room >= size:
        return
    has = "; ".join(f"{node['NodeManagerAddress']}: {_text(node['Resources'])}" for node in nodes)
    raise DistributedError(
        f"launcher ray: {_asked(size, options)}, and the cluster has room for {room}: {has}. Start fewer"
        f" ranks, ask for less of each (cpus=0.5 lets two ranks share a processor), or say with wait how many"
        f" seconds the cluster may take to grow."
    )


def _places(has: Mapping[str, float], needs: Mapping[str, float]) -> int:
    return min(math.floor(has.get(name, 0.0) / amount + _ROUNDING) for name, amount in needs.items())


def _asked(size: int, options: Options) -> str:
    return f"{size} ranks were asked for, with {_text(options.needs)} each, placed by {options.strategy}"


def _text(resources: Mapping[str, float]) -> str:
    shown = {
        name: amount
        for name, amount in resources.items()
        if not name.startswith("node:")
        and name not in ("memory", "object_store_memory")
        and "_group_" not in name
    }
    return ", ".join(f"{amount:g} {name}" for name, amount in shown.items()) or "nothing"
