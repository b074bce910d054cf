"""The cost of an op on distributed tensors above the same op on a rank's parts, eager and compiled."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import tensorbus as tb
from tensorbus import distributed as dist

from benchmarks.measure import microseconds

LIMIT = 6.0
"""Microseconds above the local op that an eager one may take once its plan is cached."""
WARM_UP = 100
"""Calls ahead, among which a compiled function is compared with an eager one."""


def cases() -> dict[str, tuple[Any, ...]]:
    """Return, by name, a function and the placements of its operands: 4x8, 8x8 and 8 float32 elements."""
    rows, whole, columns = dist.Shard(0), dist.Replicate(), dist.Shard(1)
    return {
        "x + x": (lambda x, w, b: x + x, rows, whole, whole),
        "x + b": (lambda x, w, b: x + b, rows, whole, whole),
        "x * 2.0": (lambda x, w, b: x * 2.0, rows, whole, whole),
        "exp": (lambda x, w, b: tb.exp(x), rows, whole, whole),
        "sum of all": (lambda x, w, b: x.sum(), rows, whole, whole),
        "matmul": (lambda x, w, b: x @ w, whole, columns, whole),
        "reshape": (lambda x, w, b: x.reshape((-1, 2, 4)), rows, whole, whole),
        "x[:, 1:3]": (lambda x, w, b: x[:, 1:3], rows, whole, whole),
        "softmax": (lambda x, w, b: tb.nn.functional.softmax(x, 1), rows, whole, whole),
        "x.add_(1)": (lambda x, w, b: x.add_(1), rows, whole, whole),
        "three ops, compiled": (
            lambda x, w, b: tb.nn.functional.relu(x @ w + b), whole, columns, dist.Shard(0),
        ),
    }  # fmt: skip


def run() -> list[dict[str, Any]]:
    """Measure every case on one of two ranks, in microseconds of the processor; return a row for each."""

    def rank() -> list[dict[str, Any]]:
        mesh = dist.init_device_mesh("cpu", (2,))
        rows = []
        if dist.get_rank() == 0:  # no case communicates
            for name, (function, *places) in cases().items():
                shapes = ((4, 8), (8, 8), (8,))
                laid = [
                    dist.ones(shape, device_mesh=mesh, placements=[place])
                    for shape, place in zip(shapes, places, strict=True)
                ]
                parts = [x.to_local().clone() for x in laid]
                calls: dict[str, Callable[[], Any]] = {}
                for kind, operands in (("parts", parts), ("distributed", laid)):
                    call = tb.compile(function) if name.endswith("compiled") else function
                    calls[kind] = partial(call, *operands)
                    for _ in range(WARM_UP):
                        calls[kind]()
                times = microseconds(calls, timer=time.thread_time)
                above = times["distributed"] - times["parts"]
                row = {"op": name, **{key: round(t, 2) for key, t in times.items()}}
                rows.append({**row, "above": round(above, 2), f"under {LIMIT}": above < LIMIT})
        dist.barrier()
        return rows

    return dist.run_ranks(rank, 2)[0]
