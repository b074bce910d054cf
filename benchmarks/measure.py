"""Timing that can be compared: medians and minima of repeats, every peer in the same run."""

from __future__ import annotations

import statistics
import timeit
from collections.abc import Callable
from typing import Any


def microseconds(
    functions: dict[str, Callable[[], Any]], repeats: int = 15, seconds: float = 0.02,
    timer: Callable[[], float] = timeit.default_timer,
) -> dict[str, float]:  # fmt: skip
    """Return the median microseconds of a call of each function, in turn, so that drift hits all alike.

    ``time.thread_time`` for ``timer`` counts what the processor does, also where others keep it busy.
    """
    counts = {}
    for name, function in functions.items():
        function()
        once = max(timeit.Timer(function, timer=timer).timeit(100) / 100, 1e-8)
        counts[name] = max(int(seconds / once), 1)
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            times[name].append(timeit.Timer(function, timer=timer).timeit(counts[name]) / counts[name])
    return {name: statistics.median(seconds) * 1e6 for name, seconds in times.items()}


def peer_torch(threads: int) -> Any:
    """Return PyTorch, held to that many threads; None where it is not installed."""
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(threads)
    return torch
