"""Timing all peers in turn, and saying what a row came to."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.compiled.peer import Peer
from benchmarks.compiled.rows import LOOP, NOT_PEERS, OPENCL, OPENCL_LOOP, OURS, PEERS, SHARE, Row
from benchmarks.compiled.worker import SLOW

ROUNDS, TURN, PAUSE = 7, 0.15, 0.01
"""How often it is each peer's turn, how many seconds at a time, and how long threads get to fall asleep."""
ENOUGH = 6.0
"""Seconds after which a peer whose calls are slow gets no more turns."""
SCALE = {"ms": 1e3, "us": 1e6}


class Measuring:
    """The peers' processes, for as long as rows are measured."""

    def __init__(self) -> None:
        self.peers = [Peer(spec) for spec in PEERS]

    def __enter__(self) -> Measuring:
        for peer in self.peers:
            peer.start()
        return self

    def __exit__(self, *error: object) -> None:
        for peer in self.peers:
            peer.stop()

    def measure(self, row: Row) -> list[dict[str, Any]]:
        """Return the row's figures; where it asks for them, those on a busy machine as a row of its own."""
        loaded, slow, missing = [], {}, {}
        for peer in self.peers:
            if not row.opencl and peer.spec.name in (OPENCL, OPENCL_LOOP):
                continue
            message = peer.ask("load", row=row.call, options=row.options)
            if "missing" in message:
                missing[peer.spec.name] = message["missing"]
            elif message["once"] > SLOW:
                slow[peer.spec.name] = message["once"]
            else:
                loaded.append(peer)
        idle = {**_times(loaded), **slow}
        results = [_figures(row, row.name, idle)]
        if OURS in missing:
            results[0]["note"] = f"tensorbus: {missing[OURS]}"
        if row.busy:
            with spinning(2):
                busy = _times(loaded)
            results.append(_degraded(row, idle, busy))
        for peer in self.peers:
            peer.ask("drop")
        return results


def _times(peers: list[Peer]) -> dict[str, float]:
    """Return the median seconds of a call of each peer."""
    samples: dict[str, list[float]] = {peer.spec.name: [] for peer in peers}
    for turn in range(ROUNDS):
        order = peers[turn % max(len(peers), 1) :] + peers[: turn % max(len(peers), 1)]
        for peer in order:
            result = samples[peer.spec.name]
            if len(result) > 1 and sum(result) > ENOUGH and max(result) > TURN:
                continue
            time.sleep(PAUSE)
            result += peer.ask("time", seconds=TURN).get("samples", [])
    return {name: statistics.median(seconds) for name, seconds in samples.items() if seconds}


def _figures(row: Row, name: str, times: dict[str, float]) -> dict[str, Any]:
    scaled = {key: SCALE[row.unit] * value for key, value in times.items()}
    figures: dict[str, Any] = {"row": name, "unit": row.unit}
    figures |= {spec.name: _rounded(scaled.get(spec.name)) for spec in PEERS}
    if OURS not in times:
        return figures
    met, peers = [], [value for key, value in times.items() if key not in NOT_PEERS]
    if peers:
        figures["of the best peer"] = _rounded(times[OURS] / min(peers))
    if row.bound:
        for ours, loop in ((OURS, LOOP), (OPENCL, OPENCL_LOOP)):
            if ours in times and loop in times:
                share = times[loop] / times[ours]
                figures[f"{ours}: share of the loop"] = _rounded(share)
                met.append(share >= SHARE)
        figures["asked"] = f"share {SHARE:g}"
    elif row.most is not None:
        figures["asked"] = f"{row.most:g} {row.unit}"
        met.append(scaled[OURS] <= row.most)
    else:
        figures["asked"] = "the best peer"
        met.append(not peers or times[OURS] <= min(peers))
    return {**figures, "met": all(met)}


def _degraded(row: Row, idle: dict[str, float], busy: dict[str, float]) -> dict[str, Any]:
    """Return how many times as long calls take on a busy machine: ours no more than JAX's."""
    ratios = {name: busy[name] / idle[name] for name in idle if name in busy}
    figures: dict[str, Any] = {"row": f"{row.name}: busy / idle", "unit": "x"}
    figures |= {spec.name: _rounded(ratios.get(spec.name)) for spec in PEERS}
    figures["asked"] = "no more than JAX"
    if OURS in ratios and "JAX" in ratios:
        figures["met"] = ratios[OURS] <= ratios["JAX"]
    return figures


def _rounded(value: float | None) -> float | str:
    return "-" if value is None else float(f"{value:.3g}")


@contextmanager
def spinning(count: int) -> Iterator[None]:
    """Run processes that only spin."""
    command = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
